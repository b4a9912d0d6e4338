"""Scoring while a model trains: one record at the end of an epoch, always on the same probe."""

from __future__ import annotations

from pathlib import Path

from dreamcheck.data.episodes import Episodes
from dreamcheck.diagnostics.viscore.criteria import Criterion
from dreamcheck.diagnostics.viscore.probe import Probe, build_probe
from dreamcheck.diagnostics.viscore.record import ScoreRecord
from dreamcheck.diagnostics.viscore.scoring import score
from dreamcheck.diagnostics.viscore.settings import ScoreSettings
from dreamcheck.diagnostics.viscore.table import from_csv, to_csv
from dreamcheck.errors import UsageError
from dreamcheck.models.protocol import WorldModel


class ScoreCallback:
    """Call it at epoch end with the model in any mode; training goes on as if it had not run.

    It fits ``train_preset(..., on_epoch=callback)``, ``Training.run(on_epoch=callback)`` and any
    loop of your own.

    Args:
        run: name of the training run; a cell is called ``<run>__epoch<n>``.
        every: epochs between two scores.
        csv: rewritten after every score, when given; rows of a run that was stopped stay in it.

    Attributes:
        records: one per score, oldest first.
    """

    def __init__(
        self,
        criterion: Criterion,
        data: Episodes | Probe,
        *,
        run: str,
        every: int = 1,
        settings: ScoreSettings | None = None,
        csv: str | Path | None = None,
    ) -> None:
        if every < 1:
            raise UsageError(f"every = {every} must be at least 1 epoch.")
        self._criterion, self._settings = criterion, settings
        self._probe = (
            data if isinstance(data, Probe) else build_probe(data, frameskip=criterion.frameskip)
        )
        self._run, self._every = run, every
        self._csv = Path(csv) if csv is not None else None
        self.records: list[ScoreRecord] = []
        self._before: list[dict[str, str]] = []
        if self._csv is not None and self._csv.exists():
            self._before = from_csv(self._csv.read_text(encoding="utf-8"))

    def __call__(
        self, model: WorldModel, epoch: int, training_loss: float = float("nan")
    ) -> ScoreRecord | None:
        """The epoch's record, or None when this epoch is not scored."""
        if epoch % self._every:
            return None
        record = score(
            model,
            self._criterion,
            self._probe,
            cell_id=f"{self._run}__epoch{epoch}",
            settings=self._settings,
            epoch=float(epoch),
            training_loss=training_loss,
        )
        self.records.append(record)
        if self._csv is not None:
            part = self._csv.with_name(self._csv.name + ".part")
            part.write_text(to_csv(self.records, before=self._before), encoding="utf-8")
            part.replace(self._csv)
        return record
