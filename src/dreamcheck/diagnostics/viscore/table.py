"""Many scores in one table: text for a console, CSV for a notebook."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

from dreamcheck.diagnostics.viscore.record import ScoreRecord, rank

COLUMNS = (
    "cell_id",
    "status",
    "vis",
    "veracity",
    "influence",
    "sobriety",
    "binding",
    "saturated",
    "m_emp",
    "d_tol",
    "sigma_roll",
    "nmse",
    "p_hat",
    "gap_resolution",
    "num_gaps_below_resolution",
    "straightness",
    "probe_r2",
    "effective_rank",
    "one_step_to_frozen",
    "epoch",
    "training_loss",
    "task",
    "factors",
    "scale",
    "probe_digest",
    "reasons",
)


def rows(records: Sequence[ScoreRecord]) -> list[dict[str, str]]:
    """One mapping per record, in the order given; missing numbers are empty."""
    out = []
    for record in records:
        values = {**record.to_dict(), **(record.to_dict()["baselines"] or {})}
        # The baselines carry reasons of their own; the table shows those of the factors.
        values["reasons"] = "; ".join(f"{k}: {v}" for k, v in record.reasons)
        values["saturated"] = " ".join(record.saturated)
        out.append({c: _text(values.get(c)) for c in COLUMNS})
    return out


def _text(value: object) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return repr(value) if isinstance(value, float) else str(value)


def to_csv(records: Sequence[ScoreRecord]) -> str:
    """CSV text with a header; one line per record, scores of any scale (the columns say which)."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(records))
    return out.getvalue()


def table(records: Sequence[ScoreRecord]) -> str:
    """Plain text, best first, the limiting factor named, abstentions with their reasons.

    Raises:
        InterfaceMismatch: the records are on different scales, so there is no order.

    Source: spec/viscore.md section 7.
    """
    ordered = rank(records)
    if not ordered:
        return "no checkpoint was scored"
    first = ordered[0]
    name = "VIS" if first.factors == "VIS" else f"VIS[{first.factors}]"
    width = max(len("checkpoint"), *(len(r.cell_id) for r in ordered))
    lines = [
        f"task {first.task}, probe {first.probe_digest[:12]}, {first.scale}",
        f"{'checkpoint':{width}}  {name:>8}  veracity  influence  sobriety  limited by",
    ]
    for r in ordered:
        cells = [_number(r.vis, 8), _number(r.veracity, 8), _number(r.influence, 9)]
        cells.append(_number(r.sobriety, 8))
        why = r.binding or "abstained: " + "; ".join(f"{k}: {v}" for k, v in r.reasons)
        flag = f" (saturated: {', '.join(r.saturated)})" if r.saturated else ""
        lines.append(f"{r.cell_id:{width}}  {'  '.join(cells)}  {why}{flag}")
    everywhere = set(first.saturated).intersection(*(r.saturated for r in ordered))
    if everywhere and len(ordered) > 1:
        lines.append(
            f"saturated for every checkpoint, so it ranks none: {', '.join(sorted(everywhere))}"
        )
    return "\n".join(lines)


def _number(value: float, width: int) -> str:
    return f"{value:{width}.4f}" if math.isfinite(value) else f"{'-':>{width}}"
