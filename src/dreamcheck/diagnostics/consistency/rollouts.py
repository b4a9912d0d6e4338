"""Clean and perturbed histories imagined on, sharing everything that they share.

Clean frames are encoded once for all severities and draws, actions are embedded once per tile, and
all histories go through the same canonical tiles, so that equal histories give distances of 0. Where
memory runs out and tiles are halved, the clean side is imagined again in tiles of that size, and an
unchanged frame has the clean latent itself: a distance of 0 stays 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from dreamcheck.diagnostics.consistency.anchors import Anchors
from dreamcheck.errors import UsageError
from dreamcheck.imagination.perturbations import Perturbation
from dreamcheck.imagination.runner import Runner
from dreamcheck.models.protocol import WorldModel, plan_space

ENCODED_AT_ONCE = 1024


class PairedRollouts:
    """One checkpoint on the anchors.

    clean: latents of every observed frame [N, T + H, *shape].

    Raises:
        UsageError: the anchors were cut for another history, frameskip or frame size.
        Abstention: the model's latents have no distances (tokens).
    """

    def __init__(self, model: WorldModel, anchors: Anchors, *, tile: int = 64) -> None:
        c = model.conventions
        cut = (anchors.history, anchors.frameskip, anchors.frames.shape[-1])
        reads = (model.history_max, c.frameskip, c.image_size)
        if cut != reads:
            raise UsageError(
                f"the windows have {cut[0]} history frames, frameskip {cut[1]} and {cut[2]} px, but "
                f"this model reads {reads[0]}, {reads[1]} and {reads[2]}: it cannot stand in one "
                "table with the model they were cut for."
            )
        self.model = model
        self.anchors = anchors
        self.runner = Runner(model, tile=tile)
        self.blocks = c.blocks(anchors.actions)
        self.clean = self._encode(anchors.frames)
        self._rolled: dict[int, np.ndarray] = {}

    @property
    def history(self) -> Tensor:
        """Clean latents of the history [N, T, *shape]."""
        return self.clean[:, : self.anchors.history]

    def points(self, latents: Tensor) -> np.ndarray:
        """[N, k, *shape] -> float64 [N, k, P], where the planner measures cost (Pi)."""
        n, k = latents.shape[:2]
        with torch.no_grad():
            flat = plan_space(self.model, latents.flatten(0, 1))
        return flat.unflatten(0, (n, k)).double().cpu().numpy()

    @property
    def observed(self) -> np.ndarray:
        """Points of the last history frame and the H that followed [N, H + 1, P]."""
        return self.points(self.clean[:, self.anchors.history - 1 :])

    @property
    def rolled(self) -> np.ndarray:
        """Points imagined from the clean history under the logged actions [N, H, P].

        In tiles of the runner's present size; ``roll_pairs`` keeps two sides in the same.
        """
        while self.runner.tile not in self._rolled:
            tile = self.runner.tile
            points = self.roll([self.history])[0]
            if self.runner.tile == tile:
                self._rolled[tile] = points
        return self._rolled[self.runner.tile]

    def perturbed(self, perturbation: Perturbation) -> Tensor:
        """Latents of the perturbed history [N, T, *shape]; later frames stay clean.

        A frame that the perturbation leaves as it is has its clean latent, the same bits.
        """
        if perturbation.is_identity:
            return self.history
        n, t = len(self.anchors), self.anchors.history
        seen = self.perturbed_frames(perturbation).flatten(0, 1)
        clean = self.anchors.frames[:, :t].flatten(0, 1)
        changed = (seen != clean).flatten(1).any(dim=1)
        out = self.history.flatten(0, 1).clone()
        if changed.any():
            out[changed] = self._encode(seen[changed][None])[0]
        return out.unflatten(0, (n, t))

    def perturbed_frames(self, perturbation: Perturbation) -> Tensor:
        """The perturbed history as the model is given it [N, T, 3, s, s] on the 0..255 scale."""
        n, t = len(self.anchors), self.anchors.history
        seen = perturbation.apply(
            self.anchors.frames[:, :t].flatten(0, 1),
            scenes=[s for s in self.anchors.scenes for _ in range(t)],
            moments=[str(k) for _ in range(n) for k in range(t)],
        )
        return seen.unflatten(0, (n, t))

    def goals(self, step: int, perturbation: Perturbation | None = None) -> Tensor:
        """Latents of the frame ``step`` blocks after the history [N, *shape].

        Perturbed only where a camera sees the goal too.
        """
        at = self.anchors.history - 1 + step
        if perturbation is None or perturbation.on != "camera" or perturbation.is_identity:
            return self.clean[:, at]
        seen = perturbation.apply(
            self.anchors.frames[:, at],
            scenes=self.anchors.scenes,
            moments=["goal"] * len(self.anchors),
        )
        return self._encode(seen[:, None])[:, 0]

    def roll(
        self, histories: Sequence[Tensor], blocks: np.ndarray | None = None
    ) -> list[np.ndarray]:
        """Points imagined from each history, each [N, H, P].

        Args:
            blocks: actions [N, T - 1 + H, A] in place of the anchors' own, for all histories.
        """
        given = self.blocks if blocks is None else blocks
        while True:
            tile = self.runner.tile
            futures = self.runner.rollouts(histories, given)
            if self.runner.tile == tile:
                return [self.points(f) for f in futures]
            # Memory ran out on the way: one call, one size of tiles.

    def roll_pairs(
        self, histories: Sequence[Tensor], blocks: np.ndarray | None = None
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Points from the clean history [N, H, P] and from each other one, in tiles of one size.

        Args:
            blocks: as in ``roll``.
        """
        if blocks is not None:
            clean, *others = self.roll([self.history, *histories], blocks)
            return clean, others
        others = self.roll(histories)
        while True:
            tile = self.runner.tile
            clean = self.rolled
            if self.runner.tile == tile:
                return clean, others
            others = self.roll(histories)

    def roll_rows(self, history: Tensor, rows: np.ndarray) -> np.ndarray:
        """Points imagined from other histories [n, T, *shape] under the actions of ``rows`` [n]."""
        return self.points(self.runner.rollouts([history], self.blocks[rows])[0])

    def _encode(self, frames: Tensor) -> Tensor:
        n, k = frames.shape[:2]
        flat = frames.flatten(0, 1)
        out = [
            self.runner.encode_levels(flat[i : i + ENCODED_AT_ONCE])
            for i in range(0, len(flat), ENCODED_AT_ONCE)
        ]
        return torch.cat(out).unflatten(0, (n, k))


def takes_draws(perturbation: Perturbation) -> bool:
    """Whether two draws of it differ."""
    return perturbation.kind.randomness != "none" and not perturbation.is_identity


def pair_points(
    rollouts: PairedRollouts, neighbour: Sequence[int | None]
) -> tuple[np.ndarray, np.ndarray]:
    """Clean histories of differently labelled neighbours under the anchor's own actions.

    Returns:
        The eligible anchors [n], and their neighbours' points [n, H, P]; the history actions in
        the window are the anchor's too.

    Source: consistency.md section 6.5.
    """
    eligible = np.array([i for i, j in enumerate(neighbour) if j is not None], np.int64)
    if not len(eligible):
        return eligible, np.zeros((0, *rollouts.rolled.shape[1:]))
    others = np.array([neighbour[i] for i in eligible], np.int64)
    history = rollouts.history[torch.from_numpy(others)]
    return eligible, rollouts.roll_rows(history, eligible)
