"""Variance components recovered from simulated tables."""

import numpy as np
import pytest

from dreamcheck.stats import NotTestable, variance_split
from dreamcheck.streams import stream


def test_deterministic_rollouts_leave_nothing_to_the_seeds():
    table = np.repeat(np.arange(5.0)[:, None], 8, axis=1)
    split = variance_split(table)
    assert split.seeds == 0.0 and split.share("inputs") == 1.0
    assert split.inputs == pytest.approx(2.5)  # sample variance of 0..4


def test_seed_noise_alone_leaves_nothing_to_the_inputs():
    split = variance_split(stream(0, "t").normal(size=(400, 50)))
    assert split.share("inputs") < 0.01 and split.seeds == pytest.approx(1.0, abs=0.05)


def test_three_components_are_told_apart():
    rng = stream(1, "t")
    checkpoints, inputs, seeds = 40, 300, 10
    table = (
        2.0 * rng.normal(size=(1, inputs, 1))
        + 1.5 * rng.normal(size=(checkpoints, inputs, 1))
        + 1.0 * rng.normal(size=(checkpoints, inputs, seeds))
    )
    split = variance_split(table)
    assert split.inputs == pytest.approx(4.0, rel=0.25)
    assert split.checkpoints == pytest.approx(2.25, rel=0.1)
    assert split.seeds == pytest.approx(1.0, rel=0.05)
    assert split.total == split.inputs + split.checkpoints + split.seeds


def test_a_common_checkpoint_offset_is_a_checkpoint_effect():
    rng = stream(2, "t")
    table = rng.normal(size=(60, 1, 1)) * 3 + np.zeros((60, 20, 5))
    split = variance_split(table)
    assert split.checkpoints == pytest.approx(9.0, rel=0.4) and split.inputs < 0.05


def test_missing_losses_and_single_seeds_are_refused():
    with pytest.raises(NotTestable, match="complete"):
        variance_split([[1.0, np.nan], [1.0, 2.0]])
    with pytest.raises(NotTestable, match="2 seeds"):
        variance_split([[1.0], [2.0]])
