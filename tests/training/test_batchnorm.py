"""Batch normalisation: a stale network is found out and repaired; nothing else is touched."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dreamcheck.errors import UsageError
from dreamcheck.training.batchnorm import in_mode, layer_reports, mode_losses, recalibrate


class Toy(nn.Module):
    """Two normalised paths, as an encoder and a predictor's head."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.BatchNorm1d(3)
        self.drop = nn.Dropout(0.5)
        self.second = nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.drop(self.first(x)) + 2.0)


def stale_toy() -> Toy:
    """Statistics of a past in which inputs were ten times smaller."""
    net = Toy().train()
    torch.manual_seed(0)
    with torch.no_grad():
        for _ in range(50):
            net(0.1 * torch.randn(64, 3))
    return net.eval()


BATCHES = [torch.randn(64, 3, generator=torch.Generator().manual_seed(s)) for s in range(100)]


def losses(net):
    def of(x):
        torch.manual_seed(1)
        return {"loss": float(net(x).square().mean())}

    return of


def test_the_gap_of_a_stale_network_closes_after_recalibration():
    net = stale_toy()
    held_out = [
        torch.randn(64, 3, generator=torch.Generator().manual_seed(500 + s)) for s in range(8)
    ]
    before = mode_losses(net, losses(net), held_out)
    # Inputs ten times larger than the statistics: the first layer's output has variance 100, and
    # the second one's statistics know of a variance of about 2 (dropout doubled it).
    assert before["eval"]["loss"] / before["batch_statistics"]["loss"] > 20
    done = recalibrate(net, net, BATCHES)
    after = mode_losses(net, losses(net), held_out)
    assert after["eval"]["loss"] / after["batch_statistics"]["loss"] == pytest.approx(1, abs=0.05)
    # B6: the batch-statistics score depends on no stored statistic, so it cannot move.
    assert after["batch_statistics"] == before["batch_statistics"]
    assert done.batches == 100


def test_recalibrated_statistics_are_the_plain_average_over_batches():
    net = stale_toy()
    recalibrate(net, net, BATCHES)
    means = torch.stack([x.mean(0) for x in BATCHES]).mean(0)
    variances = torch.stack([x.var(0) for x in BATCHES]).mean(0)
    torch.testing.assert_close(net.first.running_mean, means)
    torch.testing.assert_close(net.first.running_var, variances)
    # B7: the count is the number of recalibration batches, not of optimiser steps.
    assert {r.name: r.batches for r in layer_reports(net)} == {"first": 100, "second": 100}


def test_recalibration_restores_mode_and_momentum():
    net = stale_toy()
    net.first.momentum, net.second.momentum = 0.3, 0.05
    net.drop.train()
    recalibrate(net, net, BATCHES[:3])
    assert (net.first.momentum, net.second.momentum) == (0.3, 0.05)
    assert [m.training for m in (net, net.first, net.drop, net.second)] == [
        False,
        False,
        True,
        False,
    ]


def test_a_forward_pass_that_misses_a_layer_is_refused_and_nothing_changes():
    net = stale_toy()
    kept = {k: v.clone() for k, v in net.state_dict().items()}
    with pytest.raises(UsageError, match=r"never reached BatchNorm layer second"):
        recalibrate(net, net.first, BATCHES[:3])
    assert all(torch.equal(v, kept[k]) for k, v in net.state_dict().items())
    with pytest.raises(UsageError, match="no BatchNorm layer"):
        recalibrate(nn.Linear(2, 2), lambda x: x, BATCHES)


def test_measuring_in_any_mode_leaves_no_trace():
    # B3: the published release did its gap checks in place, sixteen counts each.
    net = stale_toy()
    kept = {k: v.clone() for k, v in net.state_dict().items()}
    mode_losses(net, losses(net), BATCHES[:4])
    assert all(torch.equal(v, kept[k]) for k, v in net.state_dict().items())
    assert not any(m.training for m in net.modules())


def test_the_third_mode_has_batch_statistics_without_dropout():
    net = stale_toy()
    x = BATCHES[0]
    with in_mode(net, "batch_statistics"), torch.no_grad():
        assert not net.drop.training and net.first.training
        out = net(x)
    torch.testing.assert_close(out.mean(0), torch.zeros(3), atol=1e-5, rtol=0)
    with in_mode(net, "train"):
        assert net.drop.training and net.first.training


def test_amplification_is_one_over_the_root_of_the_running_variance():
    net = nn.BatchNorm1d(2, eps=0.0)
    net.running_var.copy_(torch.tensor([0.01, 0.04]))
    report = layer_reports(net)[0]
    assert report.amplification == pytest.approx((10 + 5) / 2)
    assert (report.variance_min, report.variance_max) == pytest.approx((0.01, 0.04))
