"""Results of a whole diagnosis (plan, explain, doctor, score, ...) as records of one kind.

A diagnosis keeps what its numbers are computed from (per-episode outcomes, per-check
measurements) beside them, so that a report can show it and ``verify`` can recompute it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dreamcheck.digest import digest, plain
from dreamcheck.evidence.leftovers import DATABASE
from dreamcheck.evidence.record import Record
from dreamcheck.evidence.store import Store

KIND = "diagnosis"
PROTOCOL = {"title": "Diagnoses", "kind": "diagnoses"}
"""study.toml of a directory that holds diagnoses and no search."""


def open_store(directory: str | Path) -> Store:
    """The store of a directory, opened for writing; made, without seeds, where there is none."""
    directory = Path(directory)
    if not (directory / DATABASE).exists():
        return Store.create(directory, protocol=PROTOCOL)
    return Store.open(directory)


def diagnosis_key(name: str, *, subject: Mapping[str, Any], inputs: Mapping[str, Any]) -> str:
    """Name of a diagnosis inside its kind: the digest of everything its value depends on."""
    return f"{name}-{digest(plain({'name': name, 'subject': subject, 'inputs': inputs}))}"


def record_diagnosis(
    directory: str | Path,
    *,
    name: str,
    subject: Mapping[str, Any],
    inputs: Mapping[str, Any],
    result: Mapping[str, Any],
    artifacts: Mapping[str, bytes | Mapping[str, np.ndarray]] | None = None,
    stamps: tuple[str, ...] = (),
    meta: Mapping[str, Any] | None = None,
) -> Record:
    """Keep one diagnosis; the same one again is no news.

    Args:
        directory: a study to add it to, or a new directory.
        name: which diagnosis, lower case: its section is ``reports/diagnoses/<name>.py``.
        subject: what was examined: labels and digests of checkpoints, task and data.
        inputs: everything else the result depends on: protocol, seeds, settings, versions.
        result: JSON-ready numbers and the cases they come from. Names without dots, since a
            displayed number is found by its dotted path. No wall times: they go in ``meta``.
        artifacts: pictures (PNG bytes) or named arrays that the section shows.
        stamps: failed guards that were allowed (law 2).
        meta: wall time and the like, kept beside the record and never digested.

    Raises:
        EvidenceError: the same subject and inputs are stored with another result.
    """
    with open_store(directory) as store:
        refs = {
            key: store.artifacts.put_bytes(value, "png")
            if isinstance(value, bytes)
            else store.artifacts.put_arrays(value)
            for key, value in (artifacts or {}).items()
        }
        record = Record.make(
            KIND,
            diagnosis_key(name, subject=subject, inputs=inputs),
            {
                "name": name,
                "subject": dict(subject),
                "inputs": dict(inputs),
                "result": dict(result),
                "artifacts": refs,
                "stamps": list(stamps),
            },
            meta=meta,
        )
        store.commit([record])
    return record
