"""Two gloo processes with half a batch each equal one process with all of it (le-wm issue 24)."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest
import torch
import torch.distributed as dist

from dreamcheck.training.distributed import gather_batch, sigreg_across, visreg_across
from dreamcheck.training.losses import sigreg, unit_directions, visreg

if not dist.is_available() or not dist.is_gloo_available():
    pytest.skip("torch was built without gloo", allow_module_level=True)

SCRIPT = textwrap.dedent(
    """
    import datetime, json, sys
    import torch, torch.distributed as dist
    from dreamcheck.training.distributed import shared_directions, sigreg_across, visreg_across
    from dreamcheck.training.losses import sigreg
    torch.set_num_threads(1)
    rank, world, store, cut = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world,
                            timeout=datetime.timedelta(seconds=90))
    data = torch.load(store + ".data")
    # Every process draws its own directions; process 0's must win.
    torch.manual_seed(100 + rank)
    own = torch.randn(6, 8)
    given = data["directions"] if rank == 0 else own
    directions = shared_directions(given)
    cuts = {0: slice(0, cut), 1: slice(cut, None)}[rank]
    out = {"directions": directions.tolist()}
    for name, loss in (
        ("sigreg", lambda z: sigreg_across(z, directions)),
        ("visreg", lambda z: visreg_across(z, directions).loss),
        ("naive", lambda z: sigreg(z, directions)),
    ):
        if name == "visreg" and cut * 2 != data["x"].shape[1]:
            continue
        weight = data["weight"].clone().requires_grad_(True)
        value = loss(data["x"][:, cuts] @ weight)
        value.backward()
        grad = weight.grad.clone()
        dist.all_reduce(grad)  # what DistributedDataParallel does: average over processes
        out[name] = {"value": value.item(), "grad": (grad / world).tolist()}
    if rank == 0:
        json.dump(out, open(store + ".json", "w"))
    dist.barrier()
    dist.destroy_process_group()
    """
)


@pytest.fixture(scope="module")
def case():
    g = torch.Generator().manual_seed(0)
    return {
        "x": torch.randn(2, 12, 5, generator=g) * 1.5 + 0.3,
        "weight": torch.randn(5, 6, generator=g),
        "directions": unit_directions(torch.randn(6, 8, generator=g)),
    }


def run_two(tmp_path, case, cut) -> dict:
    store = tmp_path / "store"
    torch.save(case, f"{store}.data")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(rank), "2", str(store), str(cut)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=150)
        assert process.returncode == 0, errors[-2000:]
    return json.loads((tmp_path / "store.json").read_text())


def one_process(case, loss) -> tuple[float, torch.Tensor]:
    weight = case["weight"].clone().requires_grad_(True)
    value = loss(case["x"] @ weight)
    value.backward()
    return value.item(), weight.grad


@pytest.mark.parametrize("cut", [6, 4])
def test_two_processes_equal_one_in_value_and_gradient(tmp_path, case, cut):
    """Equal halves, and 4 + 8 rows."""
    two = run_two(tmp_path, case, cut)
    directions = case["directions"]
    assert torch.allclose(torch.tensor(two["directions"]), directions)
    losses = {"sigreg": lambda z: sigreg(z, directions)}
    if cut == 6:
        losses["visreg"] = lambda z: visreg(z, directions).loss
    for name, loss in losses.items():
        value, grad = one_process(case, loss)
        assert two[name]["value"] == pytest.approx(value, rel=1e-5)
        torch.testing.assert_close(torch.tensor(two[name]["grad"]), grad, rtol=1e-4, atol=1e-6)
    # Per process and averaged, as the public code does it, is another loss.
    value, grad = one_process(case, losses["sigreg"])
    assert abs(two["naive"]["value"] / value - 1) > 0.05
    assert float((torch.tensor(two["naive"]["grad"]) - grad).abs().max()) > 0.05


def test_in_one_process_nothing_changes(case):
    z = case["x"] @ case["weight"]
    directions = case["directions"]
    torch.testing.assert_close(sigreg_across(z, directions), sigreg(z, directions))
    torch.testing.assert_close(
        visreg_across(z, directions, shape_weight=2.0).loss,
        visreg(z, directions, shape_weight=2.0).loss,
    )
    assert gather_batch(z) is z
