"""A readout with an angle, read in one unit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dreamcheck.errors import UsageError
from dreamcheck.imagination.readouts import InLengths
from dreamcheck.imagination.targets import StateTarget
from dreamcheck.models.readout import CrossFitted
from dreamcheck.tasks.protocol import Column


class Probe:
    columns = (Column("block_x", "px"), Column("block_sin", "1"), Column("block_cos", "1"))

    def __init__(self, shift):
        self.shift, self.identity = shift, f"p{shift}"
        self.errors = tuple(type("E", (), {"mae": m, "rmse": m})() for m in (3.0, 0.1, 0.2))

    def predict(self, latents):
        return latents.numpy().astype(float) + self.shift


def test_sine_and_cosine_become_the_tip_of_an_arm():
    both = CrossFitted(Probe(0.0), Probe(2.0))
    read = InLengths(both, arm=60.0)
    latents = torch.tensor([[100.0, 0.0, 1.0]])
    # The mean of both probes is the latent + 1: (101, 1, 2), the last two times 60.
    assert read.predict(latents)[0] == pytest.approx([101, 60, 120])
    assert {c.unit for c in read.columns} == {"px"}
    assert read.heldout_mae == pytest.approx([3, 6, 12])
    assert read.disagreement(latents)[0] == pytest.approx((2 + 120 + 120) / 3)
    assert read.identity != both.identity != InLengths(both, arm=30.0).identity
    target = StateTarget(read)
    states = np.array([[[50.0, 0.6, 0.8]]])
    assert target.unit == "px" and target.of_states(states)[0, 0] == pytest.approx([50, 36, 48])


def test_mixed_units_without_an_arm_are_refused():
    with pytest.raises(UsageError, match="mixes units"):
        StateTarget(CrossFitted(Probe(0.0), Probe(2.0)))
