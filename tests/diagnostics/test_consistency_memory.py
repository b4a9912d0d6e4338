"""When memory runs out and tiles are halved, equal histories still lie exactly 0 apart."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_consistency_laws import episodes, lewm

from dreamcheck.diagnostics.consistency.anchors import draw_anchors
from dreamcheck.diagnostics.consistency.labels import label_rule
from dreamcheck.diagnostics.consistency.measuring import measure
from dreamcheck.diagnostics.consistency.rollouts import PairedRollouts
from dreamcheck.imagination.perturbations import Perturbation

torch.set_num_threads(1)


class TightMemory:
    """A model whose answers depend on the tile, as kernels' do, and which can run out of memory."""

    def __init__(self) -> None:
        self.model, self.room = lewm(), 64

    def __getattr__(self, name):
        return getattr(self.model, name)

    def _fits(self, rows):
        if rows > self.room:
            raise torch.OutOfMemoryError("no room")

    def rollouts(self, histories, actions):
        self._fits(len(actions))
        return [z + 0.5 * len(z) for z in self.model.rollouts(histories, actions)]

    def encode(self, observation):
        self._fits(len(observation["pixels"]))
        return self.model.encode(observation) + 0.5 * len(observation["pixels"])

    def encode_levels(self, frames):
        self._fits(len(frames))
        return self.model.encode_levels(frames) + 0.5 * len(frames)


@pytest.fixture
def rollouts():
    anchors = draw_anchors(episodes(), lewm(), count=8, horizon=5)
    return PairedRollouts(TightMemory(), anchors)


def test_the_clean_side_is_imagined_again_in_smaller_tiles(rollouts):
    before = rollouts.rolled
    rollouts.model.room = 32
    clean, (again,) = rollouts.roll_pairs([rollouts.history.clone()])
    assert rollouts.runner.tile == 32 and np.array_equal(clean, again)
    # The answers did change with the tile: without the repair the distance would not be 0.
    assert not np.array_equal(before, again)
    blocks = np.zeros_like(rollouts.blocks)
    rollouts.runner.tile = rollouts.model.room = 64
    first, (second,) = rollouts.roll_pairs([rollouts.history.clone()], blocks)
    assert np.array_equal(first, second)


def test_memory_that_runs_out_inside_a_call_leaves_one_size_of_tiles(rollouts):
    whole = rollouts.runner._tiles
    calls = []

    def once_too_large(call, *columns):
        calls.append(rollouts.runner.tile)
        if len(calls) == 1:
            rollouts.model.room = 32
        return whole(call, *columns)

    rollouts.runner._tiles = once_too_large
    (points,) = rollouts.roll([rollouts.history])
    rollouts.runner._tiles = whole
    assert calls == [64, 32] and np.array_equal(points, rollouts.rolled)


def test_unchanged_frames_keep_the_clean_latent_whatever_the_tile(rollouts):
    rollouts.model.room = 32
    nothing = Perturbation("occlusion", 0.001)  # a square of no pixel at all
    assert torch.equal(rollouts.perturbed(nothing), rollouts.history)
    found = measure(
        rollouts.model, rollouts.anchors, [nothing],
        rollouts.anchors.pairing(label_rule("tworoom")), rollouts=rollouts,
    )  # fmt: skip
    assert found.severities[0].radius.raw == 0.0 and not found.severities[0].distances.any()
    assert not found.severities[0].encoder_shift.any()
