"""Many scores in one table: text for a console, CSV for a notebook."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

from dreamcheck.diagnostics.viscore.cells import run_of
from dreamcheck.diagnostics.viscore.record import ScoreRecord, rank

MANY_NEAR_TIES = 0.25
"""Share of anchors under the search's resolution above which several seeds are advised (ours)."""

COLUMNS = (
    "cell_id",
    "run",
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
    "probe_r2_mlp",
    "effective_rank",
    "embedding_spread",
    "one_step_to_frozen",
    "epoch",
    "training_loss",
    "task",
    "factors",
    "width",
    "width_status",
    "nats_per_effective_dimension",
    "samples_per_dimension",
    "scale",
    "model_identity",
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
        values["run"] = run_of(record.cell_id)
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
    lines += [note for r in ordered for note in _notes(r)]
    twins: dict[str, list[str]] = {}
    for r in ordered:
        twins.setdefault(r.model_identity, []).append(r.cell_id)
    lines += [
        f"{', '.join(names)}: the same weights under several names; they differ by search noise"
        for names in twins.values()
        if len(names) > 1
    ]
    everywhere = set(first.saturated).intersection(*(r.saturated for r in ordered))
    if everywhere and len(ordered) > 1:
        lines.append(
            f"saturated for every checkpoint, so it ranks none: {', '.join(sorted(everywhere))}"
        )
    return "\n".join(lines)


def _notes(record: ScoreRecord) -> list[str]:
    """What a reader of one row must know beside it."""
    notes = []
    if "I" in record.factors and record.width_status != "calibrated":
        notes.append(
            f"{record.cell_id}: {record.width_status} ({record.width} numbers), "
            f"m_emp {record.m_emp:.4g} nats, "
            f"{record.nats_per_effective_dimension:.3g} nats per effective dimension, "
            f"{record.samples_per_dimension:.3g} samples per dimension"
        )
    ties = len(record.near_ties)
    if ties > MANY_NEAR_TIES * max(len(record.gaps), 1):
        notes.append(
            f"{record.cell_id}: {ties} of {len(record.gaps)} gaps are below the search's "
            f"resolution ({record.near_tie_below:.3g}); average sobriety over several seeds "
            "before ranking close checkpoints"
        )
    return notes


BASELINES = (
    ("straightness", "straight"),
    ("probe_r2", "R2 ridge"),
    ("probe_r2_mlp", "R2 net"),
    ("empowerment_nats", "m_emp"),
    ("effective_rank", "eff. rank"),
    ("embedding_spread", "spread"),
    ("one_step_to_frozen", "1-step/frozen"),
    ("epoch", "epoch"),
    ("training_loss", "train loss"),
)


def baseline_table(records: Sequence[ScoreRecord]) -> str:
    """The baselines on the same bank, in the order given; empty when none were measured."""
    measured = [(r.cell_id, r.baselines) for r in records if r.baselines is not None]
    if not measured:
        return ""
    width = max(len("baselines"), *(len(name) for name, _ in measured))
    head = "  ".join(f"{title:>9}" for _, title in BASELINES)
    lines = [f"{'baselines':{width}}  {head}"]
    for name, b in measured:
        cells = [f"{_short(getattr(b, key)):>{max(9, len(title))}}" for key, title in BASELINES]
        lines.append(f"{name:{width}}  {'  '.join(cells)}")
    return "\n".join(lines)


def _short(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "-"


def _number(value: float, width: int) -> str:
    return f"{value:{width}.4f}" if math.isfinite(value) else f"{'-':>{width}}"
