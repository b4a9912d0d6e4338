"""Random-weight LeWM and PLDM of stable-worldmodel and ours agree, both ways, to 1e-5.

Runs against whichever layout of stable-worldmodel is installed: the release keeps ``solver``,
later versions have ``planning`` and roll out over future actions only.
"""

from __future__ import annotations

import importlib
import importlib.util
import json

import pytest
import torch

if importlib.util.find_spec("stable_worldmodel") is None:
    pytest.skip("stable-worldmodel is not installed", allow_module_level=True)
pytestmark = pytest.mark.swm

from dreamcheck.imagination.runner import open_loop  # noqa: E402
from dreamcheck.models.checkpoint import read_checkpoint  # noqa: E402
from dreamcheck.models.conventions import IMAGENET_MEAN, IMAGENET_STD  # noqa: E402
from dreamcheck.models.importing import import_checkpoint  # noqa: E402
from dreamcheck.models.importing.layouts import to_theirs  # noqa: E402

MAIN_LAYOUT = importlib.util.find_spec("stable_worldmodel.planning") is not None
TOLERANCE = 1e-5
B, K = 2, 4


def vit(size="tiny"):
    factory = importlib.import_module("stable_pretraining.backbone.utils").vit_hf
    return factory(size, patch_size=14, image_size=224, pretrained=False, use_mask_token=False)


def theirs(family: str, *, latent=192, width=192, history=3, seed=0):
    """A model of stable-worldmodel with every weight and statistic random, in evaluation mode."""
    torch.manual_seed(seed)
    parts = importlib.import_module(f"stable_worldmodel.wm.{family}.module")
    home = importlib.import_module(f"stable_worldmodel.wm.{family}.{family}")
    encoder = vit()
    norm = torch.nn.BatchNorm1d
    model = {"lewm": "LeWM", "pldm": "PLDM"}[family]
    net = getattr(home, model)(
        encoder=encoder,
        predictor=parts.Predictor(
            num_frames=history, depth=6, heads=16, mlp_dim=2048, dim_head=64, dropout=0.1,
            input_dim=latent, hidden_dim=width, output_dim=width,
        ),
        action_encoder=parts.Embedder(input_dim=10, emb_dim=latent),
        projector=parts.MLP(encoder.config.hidden_size, 2048, latent, norm_fn=norm),
        pred_proj=parts.MLP(width, 2048, latent, norm_fn=norm),
    )  # fmt: skip
    with torch.no_grad():
        for name, p in net.named_parameters():
            if "adaLN" in name:  # zero at the start: the actions would change nothing
                p.normal_(std=0.05)
        for name, b in net.named_buffers():
            if name.endswith("running_mean"):
                b.normal_(std=0.3)
            if name.endswith("running_var"):
                b.uniform_(0.5, 2.0)
    return net.eval()


def config(family: str, history: int = 3) -> dict:
    name = {"lewm": "lewm.LeWM", "pldm": "pldm.pldm.PLDM"}[family]
    part = f"stable_worldmodel.wm.{family}.module"
    head = {
        "_target_": f"{part}.MLP", "input_dim": 192, "output_dim": 192, "hidden_dim": 2048,
        "norm_fn": {"_target_": "torch.nn.BatchNorm1d", "_partial_": True},
    }  # fmt: skip
    return {
        "_target_": f"stable_worldmodel.wm.{name}",
        "encoder": {
            "_target_": "stable_pretraining.backbone.utils.vit_hf", "size": "tiny",
            "patch_size": 14, "image_size": 224, "pretrained": False, "use_mask_token": False,
        },
        "predictor": {
            "_target_": f"{part}.Predictor", "num_frames": history, "input_dim": 192,
            "hidden_dim": 192, "output_dim": 192, "depth": 6, "heads": 16, "mlp_dim": 2048,
            "dim_head": 64, "dropout": 0.1, "emb_dropout": 0.0,
        },
        "action_encoder": {"_target_": f"{part}.Embedder", "input_dim": 10, "emb_dim": 192},
        "projector": head,
        "pred_proj": head,
    }  # fmt: skip


def inputs(history: int):
    g = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 256, (B, history, 3, 224, 224), generator=g, dtype=torch.uint8)
    blocks = torch.randn(B, history - 1 + K, 10, generator=g)
    mean, std = (torch.tensor(v)[:, None, None] for v in (IMAGENET_MEAN, IMAGENET_STD))
    return pixels, (pixels.float() / 255 - mean) / std, blocks


def their_rollout(net, normalised, blocks, history):
    """[B, K, D]: their K predictions after ``history`` observed frames, in either layout."""
    info = {"pixels": normalised.unsqueeze(1)}
    if MAIN_LAYOUT:
        info["action_history"] = blocks[:, : history - 1].unsqueeze(1)
        candidates = blocks[:, history - 1 :]
    else:
        candidates = blocks
    out = net.rollout(info, candidates.unsqueeze(1))["predicted_emb"]
    return out[:, 0, history:]


def assert_same(net, model, history):
    pixels, normalised, blocks = inputs(history)
    with torch.no_grad():
        info = net.encode({"pixels": normalised, "action": blocks[:, :history]})
        latents = model.encode({"pixels": pixels.flatten(0, 1)}).unflatten(0, (B, history))
        assert float(latents.std()) > 0.1
        torch.testing.assert_close(latents, info["emb"], atol=TOLERANCE, rtol=0)
        actions = model.embed_actions(blocks)
        predicted = model.predict(latents, actions[:, :history])
        theirs_next = net.predict(info["emb"], info["act_emb"])[:, -1]
        torch.testing.assert_close(predicted, theirs_next, atol=TOLERANCE, rtol=0)
        rolled = their_rollout(net, normalised, blocks, history)
        for generic in (False, True):
            ours = open_loop(model, latents, actions, generic=generic)
            torch.testing.assert_close(ours, rolled, atol=TOLERANCE, rtol=0)
        # The comparison means something only if actions and history matter.
        other = open_loop(model, latents, model.embed_actions(blocks.flip(0)))
        assert float((other - rolled).abs().max()) > 100 * TOLERANCE


@pytest.mark.parametrize("family", ["lewm", "pldm"])
@pytest.mark.parametrize("form", ["run", "object"])
def test_their_checkpoint_imported_here_computes_the_same(tmp_path, family, form):
    net = theirs(family)
    if form == "run":
        path = tmp_path / "run"
        path.mkdir()
        torch.save(net.state_dict(), path / "weights.pt")
        (path / "config.json").write_text(json.dumps(config(family)))
    else:
        path = tmp_path / f"{family}_epoch_3_object.ckpt"
        torch.save(net, path)
    report = import_checkpoint(path, out=tmp_path / "ckpt", action_dim=2)
    assert report.num_parameters == sum(p.numel() for p in net.parameters()) == 18_034_478
    assert report.family == family
    assert report.fact("encoder_heads").source == (
        "config" if form == "run" else "pickled attribute"
    )
    model = read_checkpoint(tmp_path / "ckpt").model
    assert model.identity == report.identity
    assert_same(net, model, 3)


@pytest.mark.parametrize("family", ["lewm", "pldm"])
def test_our_weights_saved_in_their_layout_load_there_and_compute_the_same(tmp_path, family):
    """Imported, saved as a run of theirs, and opened by their own loader."""
    load = importlib.import_module("stable_worldmodel.wm.utils").load_pretrained
    torch.save(theirs(family, seed=1).state_dict(), tmp_path / "weights.pt")
    import_checkpoint(tmp_path / "weights.pt", out=tmp_path / "ckpt", action_dim=2)
    model = read_checkpoint(tmp_path / "ckpt").model
    run = tmp_path / "checkpoints" / "ours"
    run.mkdir(parents=True)
    torch.save(to_theirs(model.module.state_dict(), model.module.config), run / "weights.pt")
    (run / "config.json").write_text(json.dumps(config(family)))
    other = load("ours", cache_dir=str(tmp_path))
    assert other.training  # their loader leaves it so; ours never does
    assert_same(other.eval(), model, 3)


def test_one_frame_of_history_agrees(tmp_path):
    net = theirs("lewm", history=1)
    torch.save(net, tmp_path / "tworoom_object.ckpt")
    import_checkpoint(tmp_path / "tworoom_object.ckpt", out=tmp_path / "ckpt", action_dim=2)
    model = read_checkpoint(tmp_path / "ckpt").model
    assert model.history_max == 1
    assert_same(net, model, 1)


def test_a_predictor_of_another_width_agrees_after_folding(tmp_path):
    net = theirs("lewm", latent=96)
    torch.save(net.state_dict(), tmp_path / "weights.pt")
    report = import_checkpoint(tmp_path / "weights.pt", out=tmp_path / "ckpt", action_dim=2)
    assert any("input_proj, cond_proj" in n for n in report.notes)
    assert_same(net, read_checkpoint(tmp_path / "ckpt").model, 3)


def test_their_own_saver_and_ours_agree_on_the_folder(tmp_path, monkeypatch):
    """save_pretrained writes what we import."""
    save = importlib.import_module("stable_worldmodel.wm.utils").save_pretrained
    omegaconf = pytest.importorskip("omegaconf")
    net = theirs("lewm")
    save(net, "first", config=omegaconf.OmegaConf.create(config("lewm")), cache_dir=str(tmp_path))
    folder = tmp_path / "checkpoints" / "first"
    assert (folder / "config.json").is_file()
    report = import_checkpoint(folder, out=tmp_path / "ckpt", action_dim=2)
    assert report.layout.startswith("stable-worldmodel run")
    assert_same(net, read_checkpoint(tmp_path / "ckpt").model, 3)
