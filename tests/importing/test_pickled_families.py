"""Whole pickled modules of the le-wm and VIS-WM code: classes that exist in no environment here.

The files are made with classes of those names in modules that are taken away before reading, so a
reader that imported anything would fail; what it must find is all in the pickle.
"""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
import torch

from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.models.importing import import_checkpoint, read_foreign
from dreamcheck.models.importing.layouts import to_theirs
from dreamcheck.models.lewm import LeWMConfig, LeWMNet

# 2 encoder heads of 32 and 4 predictor heads of 16: both differ from the family's heads of 64.
CONFIG = LeWMConfig(
    image_size=28, patch_size=14, encoder_width=64, encoder_depth=2, encoder_heads=2,
    encoder_mlp=96, head_hidden=80, latent_width=64, action_width=10, action_hidden=128,
    predictor_width=64, predictor_depth=2, predictor_heads=4, predictor_head_width=16,
    predictor_mlp=128, history=3,
)  # fmt: skip

CLASSES = {
    "": "jepa.JEPA",
    "encoder": "transformers.models.vit.modeling_vit.ViTModel",
    "predictor": "module.ARPredictor",
    "predictor.transformer": "module.Transformer",
    "action_encoder": "module.Embedder",
    "projector": "module.MLP",
    "pred_proj": "module.MLP",
}


def network(seed: int = 0) -> LeWMNet:
    torch.manual_seed(seed)
    net = LeWMNet(CONFIG).eval()
    for p in net.parameters():
        torch.nn.init.normal_(p, std=0.1)
    return net


def pickled(path, monkeypatch, *, vis: bool, wrapped: bool = False, names="transformers4"):
    """``path`` holds a module tree with those class names; the classes are gone afterwards."""
    net = network()
    stand_ins: dict[str, types.ModuleType] = {}
    with monkeypatch.context() as m:

        def cls(full: str) -> type:
            home, name = full.rsplit(".", 1)
            if home not in stand_ins:
                # The real module, where there is one, is put aside for the time of saving.
                stand_ins[home] = types.ModuleType(home)
                m.setitem(sys.modules, home, stand_ins[home])
                for i, letter in enumerate(home):
                    if letter == "." and home[:i] not in sys.modules:
                        m.setitem(sys.modules, home[:i], types.ModuleType(home[:i]))
            module = stand_ins[home]
            if not hasattr(module, name):
                setattr(module, name, type(name, (torch.nn.Module,), {"__module__": home}))
            return getattr(module, name)

        def grow(below: str, tensors: dict[str, torch.Tensor]) -> torch.nn.Module:
            out = cls(CLASSES.get(below, "module.Part"))()
            children: dict[str, dict[str, torch.Tensor]] = {}
            for key, value in tensors.items():
                head, _, rest = key.partition(".")
                if rest:
                    children.setdefault(head, {})[rest] = value
                elif value.is_floating_point() and "running" not in head:
                    out.register_parameter(head, torch.nn.Parameter(value))
                else:
                    out.register_buffer(head, value)
            for head, inside in children.items():
                setattr(out, head, grow(f"{below}.{head}".lstrip("."), inside))
            return out

        root = grow("", to_theirs(net.state_dict(), CONFIG, names=names))
        for layer in root.predictor.transformer.layers.children():
            layer.attn.heads = CONFIG.predictor_heads
        layers = root.encoder.encoder.layer if names == "transformers4" else root.encoder.layers
        for layer in layers.children():
            layer.attention.num_attention_heads = CONFIG.encoder_heads
        root.encoder.layernorm.eps = CONFIG.encoder_norm_eps
        if vis:
            # VIS-WM's class has these parts, switched off in released runs.
            root.patch_proj_clean = root.patch_proj_masked = None
        if wrapped:
            outer = cls("module.Trainer")()
            outer.model = root
            root = outer
        root.train()
        torch.save(root, path)
    return net


def outputs(net: LeWMNet) -> tuple[torch.Tensor, ...]:
    g = torch.Generator().manual_seed(5)
    pixels = torch.randn(2, 3, 28, 28, generator=g)
    blocks = torch.randn(2, 3, 10, generator=g)
    latents = torch.randn(2, 3, 64, generator=g)
    with torch.no_grad():
        actions = net.embed_actions(blocks)
        return net.encode(pixels), actions, net.predict_last(latents, actions)


def logged() -> ArrayEpisodes:
    actions = np.random.default_rng(0).normal(2.0, 3.0, (24, 2))
    actions[11::12] = np.nan
    return ArrayEpisodes(lengths=[12, 12], actions=actions)


@pytest.mark.parametrize("names", ["transformers4", "transformers5"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_pickled_jepa_is_read_without_its_classes(tmp_path, monkeypatch, names, wrapped):
    path = tmp_path / "pusht_lewm_epoch_3_object.ckpt"
    net = pickled(path, monkeypatch, vis=False, wrapped=wrapped, names=names)
    assert "jepa" not in sys.modules and "module" not in sys.modules
    with pytest.raises((ModuleNotFoundError, AttributeError)):
        torch.load(path, weights_only=False)
    data = logged()
    found = read_foreign(path, data=data)
    report = found.report
    assert report.family == "lewm" and report.layout == "pickled module"
    for name, heads in (("encoder_heads", 2), ("predictor_heads", 4)):
        assert (report.fact(name).value, report.fact(name).source) == (heads, "pickled attribute")
    for ours, theirs in zip(outputs(net), outputs(found.model.module), strict=True):
        assert torch.equal(ours, theirs)
    # It was saved while training; what is read is not.
    assert not any(m.training for m in found.model.module.modules())
    # That code standardises with torch's deviation.
    raw = np.concatenate([data.actions(e)[:-1] for e in range(2)])
    np.testing.assert_allclose(found.model.conventions.action_std, raw.std(axis=0, ddof=1))
    assert "n - 1" in report.fact("action_mean").note
    assert "jepa" not in sys.modules


def test_a_vis_wm_pickle_is_told_by_its_parts(tmp_path, monkeypatch):
    path = tmp_path / "viswm_epoch_10_object.ckpt"
    net = pickled(path, monkeypatch, vis=True)
    report = import_checkpoint(path, out=tmp_path / "ckpt", data=logged())
    assert report.family == "vis-wm"
    assert "family = lewm" in report.fact("family").note
    assert report.num_parameters == sum(p.numel() for p in net.parameters())
    # The user's word goes before what the class looks like.
    assert read_foreign(path, family="lewm", action_dim=2).report.family == "lewm"


def test_the_weights_file_beside_a_pickled_module_is_preferred_and_said(tmp_path, monkeypatch):
    """stable-worldmodel 0.0.6 keeps both: NAME_object.ckpt and NAME_weight.ckpt."""
    net = pickled(tmp_path / "pusht_object.ckpt", monkeypatch, vis=False)
    tensors = to_theirs(net.state_dict(), CONFIG, names="transformers4")
    torch.save(tensors, tmp_path / "pusht_weight.ckpt")
    (tmp_path / "config.json").write_text('{"predictor": {"heads": 4}, "encoder": {"num_attention_heads": 2}}')  # fmt: skip
    found = read_foreign(tmp_path, action_dim=2)
    assert any("pusht_weight.ckpt was preferred" in n for n in found.report.notes)
    assert set(found.report.files) == {"pusht_weight.ckpt", "config.json"}
    for ours, theirs in zip(outputs(net), outputs(found.model.module), strict=True):
        assert torch.equal(ours, theirs)
