"""Where each number of an imported checkpoint came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dreamcheck.digest import plain

Source = Literal[
    "config",
    "tensor shape",
    "pickled attribute",
    "data",
    "file",
    "family default",
    "user",
    "assumed",
]
"""tensor shape and pickled attribute are facts of the file; family default is what every public
model of the family uses; assumed is a stand-in that may be wrong, and is said so."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One convention or size. note: why, or what to do when it is wrong."""

    name: str
    value: Any
    source: Source
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "name": self.name,
            "value": plain(self.value),
            "source": self.source,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Mean and deviation of one column's dimensions.

    divisor: "n" (population, stable-worldmodel 0.1.1) or "n-1" (0.0.6, le-wm and VIS-WM code).
    rows: how many went in; nan_rows: how many were left out because a number was missing.
    """

    column: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    divisor: Literal["n", "n-1"]
    rows: int
    nan_rows: int
    constant_dims: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "column": self.column,
            "mean": list(self.mean),
            "std": list(self.std),
            "divisor": self.divisor,
            "rows": self.rows,
            "nan_rows": self.nan_rows,
            "constant_dims": list(self.constant_dims),
        }


@dataclass(frozen=True)
class ImportReport:
    """What an import found, decided and left out. Nothing in it is guessed without saying so.

    facts: every size and convention with its source.
    skipped: what could not be done, and what it needs.
    left_out: tensors of the file that inference does not use, with the reason.
    """

    source: str
    files: Mapping[str, str]
    layout: str
    family: str
    out: str
    identity: str
    num_parameters: int
    facts: tuple[Fact, ...]
    statistics: tuple[ColumnStatistics, ...] = ()
    notes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = field(default=())

    def fact(self, name: str) -> Fact:
        """The fact of that name.

        Raises:
            KeyError: there is none.
        """
        for f in self.facts:
            if f.name == name:
                return f
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: goes into the checkpoint as its provenance."""
        return {
            "source": self.source,
            "files": dict(self.files),
            "layout": self.layout,
            "family": self.family,
            "num_parameters": self.num_parameters,
            "facts": [f.to_dict() for f in self.facts],
            "statistics": [s.to_dict() for s in self.statistics],
            "notes": list(self.notes),
            "skipped": list(self.skipped),
            "left_out": [{"tensor": t, "why": w} for t, w in self.left_out],
            "warnings": list(self.warnings),
        }

    def lines(self) -> list[str]:
        """Plain text, one fact per line, for a console."""
        width = max((len(f.name) for f in self.facts), default=0)
        out = [
            f"{self.source}: {self.layout}, family {self.family}, {self.num_parameters:,} parameters"
        ]
        for f in self.facts:
            note = f" ({f.note})" if f.note else ""
            out.append(f"  {f.name:<{width}}  {_short(f.value)}  <- {f.source}{note}")
        for s in self.statistics:
            out.append(
                f"  statistics of {s.column}: {s.rows} rows, divisor {s.divisor}, {s.nan_rows} rows "
                "with NaN left out"
                + (f", constant dimensions {list(s.constant_dims)}" if s.constant_dims else "")
            )
        if self.left_out:
            reasons: dict[str, int] = {}
            for _, why in self.left_out:
                reasons[why] = reasons.get(why, 0) + 1
            out += [f"  left out: {n} tensors, {why}" for why, n in reasons.items()]
        out += [f"  note: {n}" for n in self.notes]
        out += [f"  warning: {w}" for w in self.warnings]
        out += [f"  skipped: {s}" for s in self.skipped]
        out.append(f"  written to {self.out}, identity {self.identity[:12]}")
        return out


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        shown = ", ".join(_short(v) for v in value[:6])
        return f"[{shown}{', …' if len(value) > 6 else ''}]"
    return str(value)
