"""Probes on latents whose content is known."""

import pytest

from dreamcheck.doctor.bases import toy_base
from dreamcheck.doctor.probing import probe_model
from dreamcheck.doctor.subject import Subject
from dreamcheck.errors import Abstention, UsageError


@pytest.fixture(scope="module")
def probed():
    return probe_model(toy_base().subject(), frames=400, steps=100)


def test_a_latent_that_is_the_position_is_read_exactly(probed):
    assert min(e.r2 for e in probed.ridge) > 0.999
    assert min(probed.pearson) > 0.999


def test_summed_actions_are_read_from_pairs_and_from_differences_alike(probed):
    """The displacement is the summed action; x is harder, for the wall blocks it."""
    assert all(e.r2 > 0.4 for e in probed.pair)
    assert probed.pair[0].r2 == pytest.approx(probed.difference[0].r2, abs=0.15)


def test_rank_lies_between_one_and_the_width(probed):
    assert 1 <= probed.effective_rank <= probed.width == 2


def test_the_protocol_is_stated_with_the_values(probed):
    p = probed.protocol
    assert p["split"] == "episode" and p["train_frames"] + p["test_frames"] == p["frames"] == 400
    text = "\n".join(probed.lines())
    assert "split by episode" in text and "pixels" in text and "batch normalisation" in text


def test_without_state_there_is_no_probe_and_the_need_is_named():
    with pytest.raises(Abstention, match="--data"):
        probe_model(Subject(model=toy_base().subject().model))


def test_an_unknown_split_is_refused():
    with pytest.raises(UsageError, match="split = 'row'"):
        probe_model(toy_base().subject(), split="row")
