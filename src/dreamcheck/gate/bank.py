"""A failure bank on disk: a folder with one readable file, made to be committed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from dreamcheck.digest import digest
from dreamcheck.errors import EvidenceError, UsageError

FILE = "bank.json"
FORMAT = 1

Role = Literal["failure", "default-reset", "random", "searched"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BankEntry(_Part):
    """One input of a bank.

    role: "failure", confirmed on the old model; "default-reset" and "random" are sentinels, drawn
        without looking at any model; "searched" is a failure found by searching the new model.
    values: typed coordinates; None is the default reset.
    risk: on the study's validation seeds with the model that was searched.
    stratum: its support then.
    """

    id: str
    role: Role
    specification: str
    values: dict[str, int | float | str] | None
    risk: float
    frozen_risk: float | None = None
    stratum: str | None = None

    @property
    def sentinel(self) -> bool:
        """Whether the entry stands for what used to pass."""
        return self.role in ("default-reset", "random")


class Measured(_Part):
    """How the bank's risks were measured: what a replay has to share.

    history, forecast, frameskip: resolved. columns, unit: of the state readout.
    levels: by specification; a risk above it is a failure, in ``unit``: the 95th percentile of the
        study's random inputs of that specification under the model that was searched.
    """

    task: str
    task_version: str
    package_version: str
    policy: str
    policy_digest: str
    target: str
    unit: str
    columns: tuple[str, ...]
    history: int
    forecast: int
    frameskip: int
    levels: dict[str, float]


class Bank(_Part):
    """Failures and sentinels of one study, with everything a replay needs.

    protocol: the study's protocol, its model excluded from what a replay shares.
    model: identity of the model that was searched.
    used_seeds: every seed the study declared; a replay takes others.
    """

    format: int = FORMAT
    title: str
    model: str
    measured: Measured
    protocol: dict[str, Any]
    used_seeds: tuple[int, ...]
    entries: tuple[BankEntry, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON of everything in it."""
        return digest(self.model_dump(mode="json"))

    def fresh_seeds(self, count: int) -> tuple[int, ...]:
        """The first ``count`` seeds that the study never declared."""
        used, seed = set(self.used_seeds), 0
        out: list[int] = []
        while len(out) < count:
            if seed not in used:
                out.append(seed)
            seed += 1
        return tuple(out)


def save_bank(bank: Bank, folder: str | Path) -> Path:
    """Write ``folder/bank.json``, one entry a line, with its digest; whole or not at all.

    Raises:
        UsageError: another bank is there.
    """
    path = Path(folder) / FILE
    if path.exists() and load_bank(folder).digest != bank.digest:
        raise UsageError(
            f"{path} already holds another bank ({load_bank(folder).title}); choose another "
            "folder, or delete it if it is to be replaced."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    values = bank.model_dump(mode="json")
    entries = values.pop("entries")
    head = json.dumps({**values, "digest": bank.digest}, indent=1, sort_keys=True)[:-2]
    lines = ",\n  ".join(json.dumps(e, sort_keys=True) for e in entries)
    new = path.with_name(FILE + ".new")
    new.write_text(f'{head},\n "entries": [\n  {lines}\n ]\n}}\n', encoding="utf-8")
    os.replace(new, path)
    return path


def load_bank(folder: str | Path) -> Bank:
    """The bank of a folder.

    Raises:
        UsageError: there is none, or it is of another format.
        EvidenceError: it cannot be read, or was altered after it was written.
    """
    path = Path(folder) / FILE
    if not path.is_file():
        raise UsageError(
            f"{folder} holds no {FILE}. Make a bank with `dreamcheck bank STUDY --out {folder}`."
        )
    try:
        values: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if values.get("format") != FORMAT:
            raise UsageError(
                f"{path} has format {values.get('format')!r}; this version reads {FORMAT}."
            )
        bank = Bank.model_validate({k: v for k, v in values.items() if k != "digest"})
    except (ValueError, ValidationError) as error:
        raise EvidenceError(f"{path} cannot be read as a bank: {error}") from error
    if values.get("digest") != bank.digest:
        raise EvidenceError(
            f"{path} was altered after it was written: its digest is {bank.digest[:12]}, the file "
            f"says {str(values.get('digest'))[:12]}. Take it from version control again."
        )
    return bank
