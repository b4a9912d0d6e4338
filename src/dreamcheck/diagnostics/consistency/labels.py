"""Which states count as different: label rules as data, one TOML file per task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from dreamcheck.diagnostics.consistency.radius import median_bits
from dreamcheck.diagnostics.viscore.criteria import find_columns
from dreamcheck.digest import digest
from dreamcheck.errors import UsageError
from dreamcheck.presets import model_from, parse_toml, preset_names, preset_text

RULES = "dreamcheck.tasks.criteria.label_rules"


class Bit(BaseModel):
    """One bit of a label: a standardised coordinate above its median, or a vector's length.

    of: one column, or several whose Euclidean norm counts. minus: taken off ``of``, one by one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    of: tuple[str, ...] = Field(min_length=1)
    minus: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _same_length(self) -> Bit:
        if self.minus and len(self.minus) != len(self.of):
            raise ValueError(f"minus has {len(self.minus)} columns for {len(self.of)} in `of`")
        return self


class LabelRule(BaseModel):
    """How a task's logged states are labelled; operational labels, not semantic ones.

    state: columns of the state vector in which neighbours are sought.
    bits: each above the lower median over the anchors, strictly.
    aliases: other names of a column, as in a task criterion.

    Source: consistency.md section 6.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str
    state: tuple[str, ...] = Field(min_length=1)
    bits: tuple[Bit, ...] = Field(min_length=1)
    source: str = ""
    aliases: dict[str, tuple[str, ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _bits_read_the_state(self) -> LabelRule:
        stray = {c for b in self.bits for c in (*b.of, *b.minus)} - set(self.state)
        if stray:
            raise ValueError(f"bits read {sorted(stray)}, which `state` does not hold")
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of what decides a label."""
        return digest(self.model_dump(exclude={"source", "aliases"}))

    def columns_in(self, names: Sequence[str]) -> list[int]:
        """Positions of the rule's state columns among the data's.

        Raises:
            UsageError: one is absent; the message lists what there is.
        """
        found, missing = find_columns(names, self.state, self.aliases)
        if missing:
            raise UsageError(
                f"the data have no state column {', '.join(repr(m) for m in missing)}, which the "
                f"label rule {self.task!r} reads; they have {', '.join(names) or 'none at all'}. "
                f"Take another shipped rule (--labels {'|'.join(label_rule_names())}), name your "
                "columns in one of your own (--labels FILE.toml), or map them (--mapping)."
            )
        return found

    def labels(self, states: np.ndarray) -> np.ndarray:
        """Bits [N, bits] of standardised states [N, len(state)]."""
        at = {name: i for i, name in enumerate(self.state)}
        out = []
        for bit in self.bits:
            vector = states[:, [at[c] for c in bit.of]]
            if bit.minus:
                vector = vector - states[:, [at[c] for c in bit.minus]]
            value = vector[:, 0] if len(bit.of) == 1 else np.linalg.norm(vector, axis=1)
            out.append(median_bits(value))
        return np.stack(out, axis=1)


def label_rule_names() -> tuple[str, ...]:
    """Tasks whose label rules ship."""
    return preset_names(RULES)


def label_rule(name: str | Path) -> LabelRule:
    """A shipped rule by its task's name, or one from a TOML file with `task`, `state` and [[bits]].

    Raises:
        UsageError: neither, or a field that cannot be used, named.
    """
    text, origin = preset_text(RULES, str(name), kind="label rule")
    data = parse_toml(text, origin=origin)
    return model_from(LabelRule, data, origin=f"the label rule {origin}", whole="rule")
