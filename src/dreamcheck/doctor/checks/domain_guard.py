"""Does the simulator draw the frames the model was trained on?"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.subject import Subject
from dreamcheck.errors import Abstention
from dreamcheck.models.protocol import plan_space
from dreamcheck.tasks.protocol import Restartable

FRAMES = 128


class DomainGuard:
    """Distances between latents of real frames and of the simulator's, in two kinds (E2-E4).

    paired: the same states drawn again, median distance; used where states can be set. nn: from
    the simulator's own resets to the nearest real latent, a larger number of another kind. The
    yardstick is the real set's own median nearest-neighbour spacing.
    """

    name = "domain_guard"
    title = "The simulator draws what the model was trained on"
    group = "environment"
    needs = ("model", "task")

    def examine(self, subject: Subject) -> Finding:
        """Wrong at or above the absolute or the relative threshold, or when spacing is nil."""
        model, task = subject.model, subject.task
        assert model is not None and task is not None
        real, states, source = self._real(subject)
        spacing = _spacing(real)
        per_spacing = subject.thresholds.get(self.name, "per_spacing")
        absolute = subject.thresholds.get(self.name, "paired")
        nearest_most = subject.thresholds.get(self.name, "nearest_per_spacing")
        evidence = [f"{len(real)} real frames: {source}; their own spacing {spacing:.3g}"]
        measured = {"spacing": (spacing, "latent units")}
        if states is not None and isinstance(task, Restartable):
            drawn = self._drawn(subject, states)
            paired = float(np.median(np.linalg.norm(drawn - real[: len(drawn)], axis=1)))
            value = paired / spacing if spacing > 0 else float("inf")
            measured = {
                "paired_per_spacing": (value, "of the real set's spacing"),
                "paired": (paired, "latent units"),
                **measured,
            }
            evidence.append(f"the same states drawn by {task.name}: median distance {paired:.3g}")
            wrong = paired >= absolute.value or value >= per_spacing.value
            threshold = per_spacing if value >= per_spacing.value else absolute
        else:
            drawn = self._resets(subject)
            nearest = _nearest(drawn, real)
            value = float(np.median(nearest)) / spacing if spacing > 0 else float("inf")
            measured = {
                "nearest_per_spacing": (value, "of the real set's spacing"),
                "nearest": (float(np.median(nearest)), "latent units"),
                **measured,
            }
            evidence.append(
                f"default resets of {task.name}: nearest real latent at "
                f"{float(np.median(nearest)):.3g} (not paired: states cannot be set or are not "
                "known)"
            )
            wrong, threshold = value >= nearest_most.value, nearest_most
        degenerate = spacing < 1e-6
        if degenerate:
            evidence.append("the real latents coincide: a collapsed encoder passes every distance")
        bad = wrong or degenerate or not np.isfinite(value)
        return finding(
            self,
            Verdict.WRONG if bad else Verdict.FINE,
            measured=measured,
            limit=(threshold.value, threshold.unit),
            threshold=threshold,
            evidence=evidence,
            fix="evaluate in the simulator that made the training frames: compare size, colours, "
            "target marker and renderer version frame by frame; a position probe cannot see this"
            if bad else "",
        )  # fmt: skip

    def _real(self, subject: Subject) -> tuple[np.ndarray, np.ndarray | None, str]:
        """Real latents [N, P], their states where known, and where they come from."""
        model = subject.model
        assert model is not None
        rng = subject.rng("guard")
        if subject.support is not None:
            rows = rng.permutation(len(subject.support.latents))[: 8 * FRAMES]
            z = torch.from_numpy(np.asarray(subject.support.latents)[rows]).float()
            z = plan_space(model, z.reshape(len(z), *model.latent.shape))
            return _numbers(z), subject.support.states[rows][:FRAMES], "the training reference"
        if not subject.has("frames"):
            raise Abstention(
                "there are no real frames to compare the simulator with: give episodes (--data) "
                "or keep support.json beside the checkpoint."
            )
        sample = subject.sample
        z = plan_space(model, sample.latents.flatten(0, 1))
        states = sample.states.reshape(-1, sample.states.shape[-1])
        order = rng.permutation(len(z))
        known = states.shape[1] == len(cast(Any, subject.task).columns)
        return (
            _numbers(z)[order],
            states[order][:FRAMES] if known else None,
            f"{subject.episodes_from} episodes",
        )

    def _drawn(self, subject: Subject, states: np.ndarray) -> np.ndarray:
        """Latents of the states set in the simulator."""
        task = subject.task
        assert task is not None and isinstance(task, Restartable)
        blank = task.reset(None, list(range(len(states))))
        return self._seen(subject, task.with_state(blank, np.asarray(states, dtype=np.float64)))

    def _resets(self, subject: Subject) -> np.ndarray:
        assert subject.task is not None
        return self._seen(subject, subject.task.reset(None, list(range(FRAMES // 2))))

    @staticmethod
    def _seen(subject: Subject, state: Any) -> np.ndarray:
        assert subject.task is not None and subject.model is not None
        size = subject.model.conventions.image_size
        side = size if size in subject.task.sizes else None
        pixels = subject.task.observe(state, ("pixels",), image_size=side)["pixels"]
        return _numbers(plan_space(subject.model, subject.encode(pixels)))


def _numbers(z: torch.Tensor) -> np.ndarray:
    return z.double().numpy()


def _nearest(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    from scipy.spatial import cKDTree

    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return np.full(len(a), np.inf)
    return np.asarray(cKDTree(b).query(a, k=1)[0])


def _spacing(real: np.ndarray) -> float:
    """Median distance to the nearest other row."""
    from scipy.spatial import cKDTree

    if len(real) < 2 or not np.isfinite(real).all():
        return 0.0
    return float(np.median(cKDTree(real).query(real, k=2)[0][:, 1]))


CHECK = DomainGuard()
