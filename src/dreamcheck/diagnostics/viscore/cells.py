"""A checkpoint under test: its name in tables, its model, and the two numbers that cost nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from dreamcheck.data.episodes import Episodes
from dreamcheck.errors import UsageError
from dreamcheck.models.protocol import WorldModel

NAN = float("nan")
_STAGE = re.compile(r"(epoch|step|iter|ckpt|checkpoint|weights)", re.IGNORECASE)
_EPOCH = re.compile(r"epoch[^0-9a-z]{0,2}(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Cell:
    """One checkpoint of one run.

    cell_id: names it in every table and seeds its search; ``<run>__<stage>`` where both are known.
    epoch, training_loss: NaN where nothing says; sources: where they were read, in words.
    """

    cell_id: str
    model: WorldModel
    epoch: float = NAN
    training_loss: float = NAN
    sources: tuple[tuple[str, str], ...] = ()

    @property
    def run(self) -> str:
        """The training run: what stands before the double underscore."""
        return run_of(self.cell_id)


def run_of(cell_id: str) -> str:
    """The training run that a cell id names."""
    return cell_id.rpartition("__")[0] or cell_id


def named(text: str) -> tuple[str, str]:
    """(cell id, checkpoint) of "NAME=CHECKPOINT" or of a bare checkpoint.

    A bare path is called ``<run folder>__<checkpoint stem>``: the folder above a file, or above a
    checkpoint folder whose name tells a stage (epoch-3, step_1000, ...). Everything else keeps its
    own name.
    """
    name, mark, rest = text.partition("=")
    if mark and name and rest and not Path(text).exists():
        return name, rest
    path = Path(text)
    if path.is_file():
        folder = path.resolve().parent.name
        return (f"{folder}__{path.stem}" if folder else path.stem), text
    if path.is_dir():
        path = path.resolve()
        return (f"{path.parent.name}__{path.name}" if _STAGE.search(path.name) else path.name), text
    return text.rpartition(":")[2] or text, text


def named_all(texts: list[str]) -> list[tuple[str, str]]:
    """``named`` of each.

    Raises:
        UsageError: two checkpoints of one name, or none at all.
    """
    if not texts:
        raise UsageError("no checkpoint is named: give at least one.")
    cells = [named(t) for t in texts]
    seen: dict[str, str] = {}
    for name, checkpoint in cells:
        if name in seen:
            raise UsageError(
                f"{checkpoint} is given twice: name it once."
                if seen[name] == checkpoint
                else f"{seen[name]} and {checkpoint} would both be called {name!r}, by which tables "
                "and random streams tell them apart. Name them: FIRST=PATH SECOND=PATH."
            )
        seen[name] = checkpoint
    return cells


def open_cell(
    name: str, checkpoint: str, *, data: Episodes | None = None, device: str = "cpu"
) -> Cell:
    """Read one checkpoint, of this package or foreign, and the free baselines that it states.

    The epoch is what its trainer wrote down, or else a number after "epoch" in its name.

    Raises:
        CheckpointError: it cannot be read.
    """
    from dreamcheck.models.inspecting import load_any

    model, folder, _, _ = load_any(checkpoint, data, device)
    training = folder.training if folder is not None else {}
    epoch, loss = _number(training.get("epoch")), _number(training.get("training_loss"))
    sources = {}
    if epoch == epoch:
        sources["epoch"] = "the checkpoint's training record"
    else:
        found = _EPOCH.search(name) or _EPOCH.search(Path(checkpoint).name)
        if found:
            epoch, sources["epoch"] = float(found.group(1)), "the checkpoint's name"
    if loss == loss:
        sources["training_loss"] = "the checkpoint's training record"
    return Cell(name, model, epoch, loss, tuple(sources.items()))


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else NAN
