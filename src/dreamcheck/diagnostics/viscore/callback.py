"""Scoring while a model trains: one record at the end of an epoch, always on the same probe."""

from __future__ import annotations

from pathlib import Path

from dreamcheck.data.episodes import Episodes
from dreamcheck.diagnostics.viscore.criteria import Criterion
from dreamcheck.diagnostics.viscore.probe import Probe, build_probe
from dreamcheck.diagnostics.viscore.record import ScoreRecord
from dreamcheck.diagnostics.viscore.scoring import score
from dreamcheck.diagnostics.viscore.settings import ScoreSettings
from dreamcheck.diagnostics.viscore.table import to_csv
from dreamcheck.errors import UsageError
from dreamcheck.models.protocol import WorldModel


class ScoreCallback:
    """Call it at epoch end with the model in any mode; training goes on as if it had not run.

    Args:
        run: name of the training run; a cell is called ``<run>__epoch<n>``.
        every: epochs between two scores.
        csv: rewritten after every score, when given.

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

    def __call__(
        self, model: WorldModel, *, epoch: int, training_loss: float = float("nan")
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
            part.write_text(to_csv(self.records), encoding="utf-8")
            part.replace(self._csv)
        return record
