"""Where an error comes from, by exchanging one part of the forecast and measuring what is left.

No story is told: each cause is a part that can be replaced by the truth, and what it explains is
the error that is gone when it is. Losses are those of the risk probe, on the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dreamcheck.digest import Value
from dreamcheck.imagination.futures import Futures, replay
from dreamcheck.imagination.risk import Imagined, RiskProbe
from dreamcheck.imagination.targets import reduce_steps, step_losses
from dreamcheck.models.protocol import Decode
from dreamcheck.streams import stream
from dreamcheck.tasks.protocol import CannotBranch, Restartable


@dataclass(frozen=True)
class Substitutions:
    """B rows (one per environment seed) of one input. Losses in the interface's unit.

    loss: [B], the forecast as it is.
    true_loss: [B], mean |probe(imagined) - true state| in place of the probe on real frames;
        None without a state readout.
    readout_error: [B], mean |probe(real) - true state|; None likewise.
    replaced_before, replaced_after: [B, K - 1]. Column k - 1: mean loss of the steps after
        forecast step k, as it is and with the latent of step k replaced by the encoded real
        frame. None for a forecast of one step.
    reencoded_after: [B, K - 1], the same with the imagined latent of step k replaced by the
        encoding of the frame it stands for (decoded, or rendered at the state the probe reads):
        error that goes away was off the encoder's manifold. None with ``reencoded_reason``.
    foreign_loss: [B], with forecast actions drawn from all rows' forecast actions.
    imagined_response, real_response: [B], how far the forecast, and the real future, move under
        those actions (mean over the forecast, in the target's unit); their ratio is 0 for a model
        that ignores actions and 1 for one that follows them. real_response is None where the
        target cannot be read from simulator states.
    """

    loss: np.ndarray
    true_loss: np.ndarray | None
    readout_error: np.ndarray | None
    replaced_before: np.ndarray | None
    replaced_after: np.ndarray | None
    reencoded_after: np.ndarray | None
    reencoded_reason: str | None
    foreign_loss: np.ndarray
    imagined_response: np.ndarray
    real_response: np.ndarray | None


def substitute(
    probe: RiskProbe,
    inputs: Sequence[Mapping[str, Value]] | None,
    seeds: Sequence[int],
    *,
    identity: str,
) -> Substitutions:
    """Exchange every part in turn, on one input and its seeds.

    Args:
        inputs: the same input once per seed, or None for the default reset.
        seeds: environment seeds; at least two, so that another row's actions exist.
        identity: of the input; names the stream of the action exchange.

    Raises:
        NotFinite: the model returned NaN or infinity on one of the rows.

    Source: spec/discovery.md, failure card; evidence.md section 6.
    """
    batch = probe.imagine(inputs, seeds)
    parts = _Parts(probe, batch)
    before, after = parts.replaced(parts.real_future)
    again, reason = parts.reencoded()
    foreign, response, real_response = parts.foreign_actions(
        stream(probe.root_seed, "substitution", identity)
    )
    readings = probe.readings(parts.imagined, parts.real_future, batch.futures)
    return Substitutions(
        loss=parts.reduce(parts.base),
        true_loss=_column(
            [None if s is None else float(np.mean(s)) for s in readings["true_steps"]]
        ),
        readout_error=_column(readings["readout_error"]),
        replaced_before=before,
        replaced_after=after,
        reencoded_after=None if again is None else parts.replaced(again)[1],
        reencoded_reason=reason,
        foreign_loss=foreign,
        imagined_response=response,
        real_response=real_response,
    )


class _Parts:
    """One imagined batch and the ways to run it again with a part exchanged."""

    def __init__(self, probe: RiskProbe, batch: Imagined) -> None:
        self.probe = probe
        self.futures: Futures = batch.futures
        self.imagined: Tensor = probe.runner.checked(batch.imagined, "predict")
        real = probe.runner.checked(batch.real, "encode")
        h = probe.horizons
        self.history = real[:, : h.history]
        self.real_future = real[:, h.history :]
        self.blocks = probe.runner.model.conventions.blocks(self.futures.actions)
        self.reference = probe.target.reference(self.real_future, self.futures)
        self.read = probe.target.read(self.imagined)
        self.base = self._steps(self.read)

    def _steps(self, read: np.ndarray, first: int = 0) -> np.ndarray:
        reference = self.reference[:, first:]
        return step_losses(read, reference, discrepancy=self.probe.discrepancy)

    def reduce(self, steps: np.ndarray) -> np.ndarray:
        return reduce_steps(steps, rule=self.probe.step_rule)

    def replaced(self, latents: Tensor) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Loss after step k, as it is and with latents[:, k - 1] in the place of step k."""
        b, k_all = self.base.shape
        if k_all < 2:
            return None, None
        before, after = np.empty((b, k_all - 1)), np.empty((b, k_all - 1))
        for k in range(1, k_all):
            seen = torch.cat(
                [self.history, self.imagined[:, : k - 1], latents[:, k - 1 : k]], dim=1
            )
            later = self.probe.runner.rollout(seen, self.blocks)
            before[:, k - 1] = self.base[:, k:].mean(axis=1)
            after[:, k - 1] = self._steps(self.probe.target.read(later), k).mean(axis=1)
        return before, after

    def reencoded(self) -> tuple[Tensor | None, str | None]:
        """The imagined latents seen again through the encoder, [B, K, *shape]; or why not."""
        model, task = self.probe.runner.model, self.probe.task
        b, k = self.imagined.shape[:2]
        flat = self.imagined.reshape(b * k, *self.imagined.shape[2:])
        if isinstance(model, Decode):
            with torch.no_grad():
                frames = model.decode(flat).cpu().numpy()
        elif self.probe.readout is None:
            return None, "the model does not decode, and no state readout says what it imagines"
        elif not isinstance(task, Restartable):
            return None, f"the model does not decode, and {task.name} cannot show a given state"
        else:
            states = self.probe.readout.predict(flat)
            placed = task.with_state(
                task.branch(self.futures.at_history, np.repeat(np.arange(b), k)), states
            )
            size = self.probe.render_size()
            frames = task.observe(placed, ("pixels",), image_size=size)["pixels"]
        again = self.probe.runner.encode(frames)
        return again.reshape(b, k, *again.shape[1:]), None

    def foreign_actions(
        self, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Loss and response under forecast actions of any row and step, drawn without return.

        Whole blocks move, so an action keeps its neighbours inside a block. The blocks of one row
        alone would not do: shuffled, they still add up to the same motion.
        """
        h = self.probe.horizons
        b = len(self.futures.actions)
        own = self.futures.actions[:, h.observed_steps :]
        a = own.shape[2]
        pool = own.reshape(b * h.forecast, h.frameskip, a)
        mixed = pool[rng.permutation(len(pool))].reshape(own.shape)
        actions = np.concatenate([self.futures.actions[:, : h.observed_steps], mixed], axis=1)
        blocks = self.probe.runner.model.conventions.blocks(actions)
        read = self.probe.target.read(self.probe.runner.rollout(self.history, blocks))
        loss = self.reduce(self._steps(read))
        response = self._moved(read, self.read)
        truth = self.probe.target.of_states(self.futures.frame_states[:, h.history :])
        if truth is None:
            return loss, response, None
        task = self.probe.task
        try:
            start = task.branch(self.futures.at_history, np.arange(b))
        except CannotBranch:
            return loss, response, None
        states = replay(task, start, mixed)[:, h.frameskip :: h.frameskip]
        moved = self.probe.target.of_states(states)
        assert moved is not None
        return loss, response, self._moved(moved, truth)

    def _moved(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return step_losses(a, b, discrepancy=self.probe.discrepancy).mean(axis=1)


def _column(values: Sequence[float | None]) -> np.ndarray | None:
    known = [v for v in values if v is not None]
    return np.array(known, dtype=np.float64) if len(known) == len(values) else None
