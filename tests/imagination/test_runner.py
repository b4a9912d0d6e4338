from __future__ import annotations

import numpy as np
import pytest
import torch

from dreamcheck.errors import UsageError
from dreamcheck.imagination.runner import NotFinite, Runner, frozen, open_loop
from toys import CentroidModel


class Recurrent(CentroidModel):
    """Depends on the whole window, so that a wrong window changes the answer."""

    def predict(self, latents, actions, *, row_seeds=None):
        weights = torch.arange(1.0, latents.shape[1] + 1).reshape(1, -1, 1)
        return (latents * weights).sum(1) + 10 * actions[..., :2].sum(1) + latents.shape[1]


def test_the_window_grows_to_its_limit_and_then_slides():
    model = Recurrent()
    z = torch.tensor([[[1.0, 0.0]]])
    a = torch.zeros(1, 4, 10)
    a[0, :, 0] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    out = open_loop(model, z, a)[0, :, 0]
    # step 1: 1*1 + 10*1 + 1 = 12
    # step 2: 1 + 2*12 + 10*(1+2) + 2 = 57
    # step 3: 1 + 2*12 + 3*57 + 10*(1+2+3) + 3 = 259
    # step 4, window [12, 57, 259], actions [2, 3, 4]: 12 + 114 + 777 + 90 + 3 = 996
    assert out.tolist() == [12.0, 57.0, 259.0, 996.0]


def test_history_longer_than_the_model_reads_is_cut_from_the_old_end():
    model = Recurrent()
    z = torch.randn(2, 5, 2)
    a = torch.randn(2, 6, 10)
    whole = open_loop(model, z, a)
    cut = open_loop(model, z[:, 2:], a[:, 2:])
    assert torch.equal(whole, cut)


def test_too_few_action_blocks_are_refused():
    with pytest.raises(UsageError, match="action blocks"):
        open_loop(Recurrent(), torch.zeros(1, 3, 2), torch.zeros(1, 2, 10))


def test_a_row_does_not_depend_on_its_batch_mates():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 96), torch.nn.GELU(), torch.nn.Linear(96, 2))

    class Net(CentroidModel):
        def predict(self, latents, actions, *, row_seeds=None):
            return net(latents[:, -1])

    runner = Runner(Net(), tile=32)
    z = torch.randn(70, 3, 2)
    blocks = np.zeros((70, 5, 10), dtype=np.float32)
    together = runner.rollout(z, blocks)
    for i in (0, 31, 32, 69):
        assert torch.equal(runner.rollout(z[i : i + 1], blocks[i : i + 1])[0], together[i])


def test_every_call_has_the_tile_shape():
    model = CentroidModel()
    Runner(model, tile=32).encode(np.zeros((70, 3, 56, 56), dtype=np.uint8))
    assert model.calls == [32, 32, 32]


def test_a_tile_under_32_rows_is_refused():
    with pytest.raises(UsageError, match="32 rows"):
        Runner(CentroidModel(), tile=16)


def test_nan_from_a_model_is_named_with_its_row():
    runner = Runner(CentroidModel(nan_left_of=0.0))
    z = torch.zeros(3, 3, 2)
    z[1] -= 5
    with pytest.raises(NotFinite, match="1 of 3 rows .first: row 1"):
        runner.rollout(z, np.zeros((3, 3, 10), dtype=np.float32))


def test_mode_and_buffers_are_restored_after_a_call():
    class WithModule(CentroidModel):
        def __init__(self):
            super().__init__()
            self.module = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Dropout(0.5))

    model = WithModule()
    model.module.train()
    model.module[1].eval()
    before = model.module[0].running_mean.clone()
    with frozen(model):
        assert not model.module[0].training
        model.module[0].running_mean.add_(1.0)
        assert not torch.is_grad_enabled()
    assert model.module[0].training and not model.module[1].training
    assert torch.equal(model.module[0].running_mean, before)
