"""A whole study, in order; every stage reads what an earlier run already finished."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dreamcheck.errors import UsageError
from dreamcheck.evidence import Store
from dreamcheck.progress import Progress
from dreamcheck.study.allowing import resumed, sample_ahead, within
from dreamcheck.study.assembling import assemble
from dreamcheck.study.basins import basins
from dreamcheck.study.carding import card
from dreamcheck.study.config import Search, StudyConfig, study_from
from dreamcheck.study.editing import edit_path
from dreamcheck.study.filming import film
from dreamcheck.study.persisting import persist
from dreamcheck.study.reselecting import fresh_yardstick, reselect
from dreamcheck.study.searching import run_searches
from dreamcheck.study.study import Bench, Study
from dreamcheck.study.validating import validate


@contextmanager
def opened(
    directory: str | Path,
    config: StudyConfig | None = None,
    *,
    progress: Progress | None = None,
    device: str = "cpu",
    threads: int | None = None,
    tile: int = 64,
    mixed_numerics: bool = False,
    resume: bool = True,
    guarded: bool = False,
    allow: Sequence[str] = (),
    seconds: float | None = None,
) -> Iterator[Study]:
    """The study in a directory, opened for writing with its model and task.

    Args:
        config: its protocol; None takes the one that study.toml froze.
        guarded: run the doctor's guards of a discovery first (law 2). allow: guards that may fail;
            every record is then stamped.
        seconds: wall time allowed for everything: budgets and methods are then planned from
            measured costs, once, and frozen with the protocol.

    Raises:
        GuardRefused: a guard failed.
        UsageError: no study there and no protocol given; another protocol; resume=False and a
            study is there.
    """
    here = (Path(directory) / "evidence.sqlite").exists()
    if here and not resume:
        raise UsageError(
            f"{directory} already holds a study. Leave --no-resume out to go on with it, or "
            "choose another folder."
        )
    if config is None:
        config = protocol_of(directory)
    bench = assemble(config, device=device, threads=threads)
    stamps = guard(config, bench, allow=allow) if guarded else []
    if seconds is not None:
        config = (
            resumed(protocol_of(directory), config, seconds=seconds)
            if here
            else within(config, bench, seconds=seconds, tile=tile, progress=progress)
        )
    with Study.at(
        directory,
        config,
        bench,
        stamps=stamps,
        progress=progress,
        tile=tile,
        mixed_numerics=mixed_numerics,
    ) as study:
        yield study


def guard(config: StudyConfig, bench: Bench, *, allow: Sequence[str] = ()) -> list[str]:
    """Stamps of guards that failed and were allowed; the study's guards are those of discovery.

    Raises:
        GuardRefused: a guard failed that was not allowed.
    """
    # Imported here: the doctor reads recorded data, which a study without guards never needs.
    from dreamcheck.doctor.guards import stamps_of

    return stamps_of(
        "discover", config.model, bench.model, allow=allow, task=bench.task, readout=bench.readout
    )


def protocol_of(directory: str | Path) -> StudyConfig:
    """The frozen protocol of a study on disk."""
    with Store.read(directory) as store:
        return study_from(
            {**store.protocol, "seeds": store.seeds}, origin=f"{directory}/study.toml"
        )


def run(study: Study) -> None:
    """Search, validate, persist, film and card every search of the study."""
    sample_ahead(study)
    run_searches(study)
    for search in study.config.searches:
        findings = validate(study, search)
        _after_validation(study, search, findings)
        persist(study, search)
        film(study, search, findings)
        card(study, search, findings)


def _after_validation(study: Study, search: Search, findings: list[dict[str, Any]]) -> None:
    """What validated findings are asked further: fresh seeds, the smallest change, their reach."""
    yardstick = fresh_yardstick(study, search) if findings else None
    reselect(study, search, findings, yardstick)
    edit_path(study, search, findings, yardstick)
    basins(study, search, findings)


def validate_all(study: Study) -> list[dict[str, Any]]:
    """Validate and film every search; needs the searches to be finished.

    Raises:
        UsageError: a search has no finished trace.
    """
    _need_traces(study)
    findings = []
    for search in study.config.searches:
        own = validate(study, search)
        _after_validation(study, search, own)
        film(study, search, own)
        card(study, search, own)
        findings += own
    return findings


def persist_all(study: Study) -> list[dict[str, Any]]:
    """The neighbourhood test of every search; needs the searches to be finished.

    Raises:
        UsageError: a search has no finished trace.
    """
    _need_traces(study)
    found = [persist(study, search) for search in study.config.searches]
    return [f for f in found if f is not None]


def _need_traces(study: Study) -> None:
    for search in study.config.searches:
        if not study.store.count("trace", spec=search.specification):
            raise UsageError(
                f"{study.store.directory} has no finished search over {search.specification!r}; "
                "run `dreamcheck discover` on it first."
            )
