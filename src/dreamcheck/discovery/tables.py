"""Score tables from where they are kept: a study's evaluations, a CSV file, or an NPZ file."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dreamcheck.digest import Value
from dreamcheck.discovery.library import Library
from dreamcheck.discovery.replay import ScoreTable
from dreamcheck.discovery.search import Failure, Outcome, Score
from dreamcheck.discovery.specification import InputSpecification, get_specification
from dreamcheck.errors import IncompleteError, InterfaceMismatch, UsageError
from dreamcheck.evidence import Evaluation, Store, entry_of

TRUE, FALSE = ("true", "1", "yes"), ("false", "0", "no")


@dataclass(frozen=True, eq=False)
class NamedTable:
    """A score table and where it comes from.

    label: the file's or folder's name.
    measured_on: what its scores depend on besides the inputs: interface, seeds and statistic of a
        study; empty for a file, which does not say.
    scale: what its scores were multiplied with.
    """

    label: str
    table: ScoreTable
    measured_on: Mapping[str, Any]
    scale: float = 1.0


def library_of(specification: InputSpecification) -> Library:
    """The library, with the task's own rules where the task is here.

    Raises:
        SpecificationError: it names a rule of a task that is not installed.
    """
    from dreamcheck.tasks import get_task, task_names

    try:
        known = specification.task in task_names()
        rules = get_task(specification.task).rules() if known else None
    except UsageError:  # its extra is not installed; the preset's own rules need no simulator
        rules = None
    return Library.build(specification, task_rules=rules)


def read_table(
    path: str | Path, *, specification: str | None = None, scale: float = 1.0
) -> NamedTable:
    """The score table of a whole library.

    A study directory gives its evaluations on the search seeds. A CSV file has a column "score"
    and either "id" or one column per coordinate; "active" (true or false) and "failure" (why a
    measurement failed; its score is then empty) are optional. An NPZ file has "scores" [N] and
    the same as arrays ("id" or coordinates, "active", "failed" bool [N]); without ids or
    coordinates its rows are in library order.

    Args:
        path: folder of a study, or a file ending in .csv or .npz.
        specification: the library's; needed for files, and for a study that searched several.
        scale: scores are multiplied by it.

    Raises:
        UsageError: no such file, no or several libraries, a bad column, a row given twice.
        IncompleteError: a row is missing; the first such input is named.
        InterfaceMismatch: a study's scores of one library were measured in different ways.
    """
    path = Path(path)
    if path.is_dir():
        return _of_study(path, specification, scale)
    if not path.is_file():
        raise UsageError(f"score table {str(path)!r} does not exist.")
    if path.suffix not in (".csv", ".npz"):
        raise UsageError(
            f"score table {path.name!r} is neither .csv nor .npz nor a study's folder."
        )
    if specification is None:
        raise UsageError(
            f"{path.name} does not say which library its rows are from: name it with "
            "--specification, or with a --protocol that has one."
        )
    library = library_of(get_specification(specification))
    read = _rows_of_csv if path.suffix == ".csv" else _rows_of_npz
    outcomes = read(path, library)
    return NamedTable(
        path.stem, ScoreTable.from_scores(library, _scaled(outcomes, scale)), {}, scale
    )


def _scaled(outcomes: Mapping[str, Outcome], scale: float) -> dict[str, Outcome]:
    return {
        i: Score(o.value * scale, o.active) if isinstance(o, Score) else o
        for i, o in outcomes.items()
    }


# A study ---------------------------------------------------------------------------------------


def _of_study(path: Path, specification: str | None, scale: float) -> NamedTable:
    with Store.read(path) as store:
        entries: list[Evaluation] = [entry_of(r) for r in store.records("evaluation")]
    entries = [e for e in entries if e.partition == "search"]
    if not entries:
        raise UsageError(f"{path} holds no evaluations; it is no discovery study, or it is empty.")
    recorded = sorted({e.spec for e in entries})
    if specification is None and len(recorded) > 1:
        raise UsageError(
            f"{path} searched {', '.join(recorded)}: choose one of them with --specification."
        )
    # A specification of the user's own is recorded by its file, and has a name besides.
    specs = {name: get_specification(name) for name in recorded}
    wanted = specification
    if specification is not None and specification.endswith(".toml"):
        wanted = get_specification(specification).name
    chosen = [n for n, s in specs.items() if specification is None or wanted in (n, s.name)]
    if not chosen:
        raise UsageError(f"{path} has no evaluations of {wanted!r}; it has {', '.join(recorded)}.")
    spec = specs[chosen[0]]
    entries = [e for e in entries if e.spec in chosen]
    ways = {(e.interface, e.seeds, e.statistic.model_dump_json()) for e in entries}
    if len(ways) > 1:
        raise InterfaceMismatch(
            f"{path} measured {spec.name!r} in {len(ways)} ways (prediction interface, search seeds "
            "or statistic differ); their scores are not one table (law 7)."
        )
    first = entries[0]
    outcomes: dict[str, Outcome] = {}
    for e in entries:
        if e.score is None:
            outcomes[e.input] = Failure(e.failure or "no score")
        else:
            outcomes[e.input] = Score(e.score, active=e.task_active)
    library = library_of(spec)
    try:
        table = ScoreTable.from_scores(library, _scaled(outcomes, scale))
    except IncompleteError as e:
        raise IncompleteError(
            f"{path}: {e} A search evaluates part of a library; a replay needs all of it."
        ) from None
    return NamedTable(
        path.name,
        table,
        {
            "interface": first.interface,
            "seeds": list(first.seeds),
            "statistic": first.statistic.model_dump(),
        },
        scale,
    )


# Files -----------------------------------------------------------------------------------------


def _rows_of_csv(path: Path, library: Library) -> dict[str, Outcome]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        columns = tuple(reader.fieldnames or ())
        keyed = _keyed_by(columns, library, path.name, score="score")
        outcomes: dict[str, Outcome] = {}
        for line, row in enumerate(reader, start=2):
            at = f"{path.name}, line {line}"
            if None in row or None in row.values():
                raise UsageError(f"{at}: has another number of cells than the head.")
            name = _id(row, keyed, library, at)
            outcome = _outcome(
                row["score"], row.get("active", ""), row.get("failure", ""), at, name, library
            )
            _keep(outcomes, name, outcome, at)
    return outcomes


def _rows_of_npz(path: Path, library: Library) -> dict[str, Outcome]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError) as e:
        raise UsageError(f"{path.name} cannot be read as an NPZ file of plain arrays: {e}.") from e
    keyed = _keyed_by(tuple(arrays), library, path.name, score="scores", in_order=True)
    size = len(library) if keyed is None else len(arrays["scores"])
    for name, array in arrays.items():
        if array.shape != (size,):
            why = f" a library of {size} inputs" if keyed is None else " its scores"
            raise UsageError(
                f"{path.name}: {name} has the shape {array.shape} and does not fit{why}."
            )
    failed = arrays.get("failed", np.zeros(size, dtype=bool)).astype(bool)
    active = arrays.get("active", np.ones(size, dtype=bool)).astype(bool)
    outcomes: dict[str, Outcome] = {}
    for n in range(size):
        at = f"{path.name}, row {n}"
        if keyed is None:
            name = library.id(n)
        else:
            name = _id({c: arrays[c][n].item() for c in keyed}, keyed, library, at)
        value = float(arrays["scores"][n])
        if failed[n] and np.isfinite(value):
            raise UsageError(f"{at}: has the score {value:g} and is marked failed.")
        if failed[n]:
            _keep(outcomes, name, Failure("failed"), at)
        elif np.isfinite(value):
            _keep(outcomes, name, Score(value, bool(active[n])), at)
        # Neither: the row is missing, and the table names the first such input.
    return outcomes


def _keyed_by(
    columns: Sequence[str], library: Library, file: str, *, score: str, in_order: bool = False
) -> tuple[str, ...] | None:
    """Columns that name an input: ("id",) or the coordinates; None for rows in library order."""
    if score not in columns:
        raise UsageError(f"{file} has no column {score!r}; it has {', '.join(columns) or 'none'}.")
    if "id" in columns:
        return ("id",)
    missing = [n for n in library.names if n not in columns]
    if not missing:
        return library.names
    if in_order and len(missing) == len(library.names):
        return None
    raise UsageError(
        f"{file} has neither a column 'id' nor all coordinates of "
        f"{library.specification.name!r}: {missing[0]!r} is missing."
    )


def _id(row: Mapping[str, Any], keyed: Iterable[str] | None, library: Library, at: str) -> str:
    assert keyed is not None
    if tuple(keyed) == ("id",):
        library.index(str(row["id"]))
        return str(row["id"])
    values: dict[str, Value] = {}
    for name, levels in zip(library.names, library.levels, strict=True):
        found = next((v for v in levels if _same(v, row[name])), None)
        if found is None:
            raise UsageError(
                f"{at}: {name} = {row[name]!r} is not admissible; choose one of {list(levels)}."
            )
        values[name] = found
    return library.id(library.find(values))


def _same(level: Value, given: Any) -> bool:
    if isinstance(level, str):
        return level == str(given)
    try:
        return float(given) == level
    except (TypeError, ValueError):
        return False


def _outcome(
    score: str, active: str, failure: str, at: str, name: str, library: Library
) -> Outcome:
    score, active, failure = score.strip(), active.strip().lower(), failure.strip()
    if failure and score:
        raise UsageError(f"{at}: has the score {score} and the failure {failure!r}; one of them.")
    if failure:
        return Failure(failure)
    try:
        value = float(score)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise IncompleteError(
            f"{at}: input {name} {library.values(library.index(name))} has the score {score!r}. "
            "Measure it, or say why it failed in a column 'failure'."
        )
    if active and active not in (*TRUE, *FALSE):
        raise UsageError(f"{at}: active = {active!r} is neither true nor false.")
    return Score(value, active=active not in FALSE)


def _keep(outcomes: dict[str, Outcome], name: str, outcome: Outcome, at: str) -> None:
    if name in outcomes:
        raise UsageError(f"{at}: the input {name} is in the table already.")
    outcomes[name] = outcome
