"""From a foreign run to one of our checkpoints: recognition, sizes, strictness, conventions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.errors import CheckpointError, UsageError
from dreamcheck.models.checkpoint import read_checkpoint
from dreamcheck.models.importing import import_checkpoint, read_foreign, recognise
from dreamcheck.models.importing.layouts import to_theirs
from dreamcheck.models.lewm import LeWMConfig, LeWMNet
from dreamcheck.tasks.protocol import Column

SMALL = LeWMConfig(
    image_size=28, patch_size=14, encoder_width=64, encoder_depth=2, encoder_heads=1,
    encoder_mlp=96, head_hidden=80, latent_width=64, action_width=10, action_hidden=128,
    predictor_width=64, predictor_depth=2, predictor_heads=2, predictor_mlp=128, history=3,
)  # fmt: skip

CONFIG = {
    "_target_": "stable_worldmodel.wm.lewm.LeWM",
    "encoder": {
        "_target_": "stable_pretraining.backbone.utils.vit_hf",
        "patch_size": 14,
        "image_size": 28,
        "num_attention_heads": 4,
    },
    "predictor": {
        "_target_": "stable_worldmodel.wm.lewm.module.Predictor",
        "num_frames": 3,
        "depth": 2,
        "heads": 4,
        "dim_head": 32,
        "mlp_dim": 128,
    },
    "action_encoder": {
        "_target_": "stable_worldmodel.wm.lewm.module.Embedder",
        "input_dim": "${action_dim}",
    },
    "projector": {
        "_target_": "stable_worldmodel.wm.lewm.module.MLP",
        "hidden_dim": 80,
        "norm_fn": {"_target_": "torch.nn.BatchNorm1d", "_partial_": True},
    },
}


def network(config: LeWMConfig = SMALL, seed: int = 0) -> LeWMNet:
    torch.manual_seed(seed)
    net = LeWMNet(config).eval()
    for p in net.parameters():
        torch.nn.init.normal_(p, std=0.1)
    for name, b in net.named_buffers():
        if name.endswith("running_mean"):
            b.normal_()
        if name.endswith("running_var"):
            b.uniform_(0.5, 2)
    return net


def run_folder(folder: Path, *, names="transformers5", config=None, net=None, prefix="") -> Path:
    net = net or network()
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        prefix + k: v for k, v in to_theirs(net.state_dict(), net.config, names=names).items()
    }
    torch.save(tensors, folder / "weights.pt")
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def episodes(*, action_dim=2, num=3, length=12, nan_inside=False, state=True) -> ArrayEpisodes:
    rng = np.random.default_rng(3)
    actions = rng.normal(2.0, 3.0, (num * length, action_dim))
    actions[length - 1 :: length] = np.nan
    if nan_inside:
        actions[4, 0] = np.nan
    return ArrayEpisodes(
        lengths=np.full(num, length),
        actions=actions,
        pixels=rng.integers(0, 256, (num * length, 3, 28, 28), dtype=np.uint8),
        state=rng.normal(size=(num * length, 2)) if state else None,
        columns=(Column("x", "px"), Column("y", "px")) if state else (),
    )


def outputs(net: LeWMNet) -> tuple[torch.Tensor, ...]:
    g = torch.Generator().manual_seed(5)
    pixels = torch.randn(2, 3, 28, 28, generator=g)
    blocks = torch.randn(2, 3, 10, generator=g)
    latents = torch.randn(2, 3, 64, generator=g)
    with torch.no_grad():
        actions = net.embed_actions(blocks)
        return net.encode(pixels), actions, net.predict_last(latents, actions)


@pytest.mark.parametrize("names", ["transformers4", "transformers5"])
@pytest.mark.parametrize("prefix", ["", "model.", "module._orig_mod."])
def test_both_vit_layouts_and_wrappers_give_the_same_network(tmp_path, names, prefix):
    net = network()
    found = read_foreign(run_folder(tmp_path / "run", names=names, net=net, prefix=prefix),
                         action_dim=2)  # fmt: skip
    # 64 wide: heads of 64 by default, one and two, as the small network has.
    assert found.report.fact("encoder key names").value == names
    for ours, theirs in zip(outputs(net), outputs(found.model.module), strict=True):
        assert torch.equal(ours, theirs)
    assert not any(m.training for m in found.model.module.modules())


def test_the_standard_network_has_the_published_size(tmp_path):
    net = LeWMNet(LeWMConfig())
    report = read_foreign(run_folder(tmp_path / "run", net=net)).report
    assert report.num_parameters == 18_034_478  # spec/ecosystem-swm.md
    assert len(to_theirs(net.state_dict(), net.config)) == 303


def test_sizes_come_from_shapes_and_heads_from_the_configuration(tmp_path):
    # 4 heads of 16 in the encoder and 4 of 32 in the predictor leave the same shapes as the default.
    net = network(SMALL.model_copy(update={"encoder_heads": 4, "predictor_heads": 4,
                                           "predictor_head_width": 32}))  # fmt: skip
    folder = run_folder(tmp_path / "run", net=net, config=CONFIG)
    found = read_foreign(folder, action_dim=2)
    assert found.model.module.config == net.config
    for ours, theirs in zip(outputs(net), outputs(found.model.module), strict=True):
        assert torch.equal(ours, theirs)
    facts = {f.name: f.source for f in found.report.facts}
    assert facts["history"] == facts["action_width"] == "tensor shape"
    assert facts["encoder_heads"] == facts["predictor_heads"] == facts["family"] == "config"
    assert any("never filled in" in n for n in found.report.notes)
    (folder / "config.json").unlink()
    guessed = read_foreign(folder, action_dim=2)
    assert guessed.report.fact("predictor_heads").source == "family default"
    assert "no trace" in guessed.report.fact("predictor_heads").note
    assert not torch.equal(outputs(net)[2], outputs(guessed.model.module)[2])


@pytest.mark.parametrize(
    "change, message",
    [
        ({"predictor": {**CONFIG["predictor"], "depth": 6}}, "predictor_depth: .* says 6.* 2"),
        ({"predictor": {**CONFIG["predictor"], "num_frames": 1}}, "history: .* says 1"),
        ({"predictor": {**CONFIG["predictor"], "heads": 5}}, "5 predictor heads of 32"),
        ({"encoder": {**CONFIG["encoder"], "image_size": 224}}, "image_size"),
    ],
)
def test_a_configuration_of_another_model_is_refused(tmp_path, change, message):
    folder = run_folder(tmp_path / "run", config={**CONFIG, **change})
    with pytest.raises(CheckpointError, match=message):
        read_foreign(folder, action_dim=2)


@pytest.mark.parametrize(
    "place",
    ["top", "encoder", "norm", "list"],
)
def test_an_unknown_target_is_named_and_refused(tmp_path, place):
    config = json.loads(json.dumps(CONFIG))
    evil = {"_target_": "os.system", "command": f"touch {tmp_path / 'canary'}"}
    if place == "top":
        config["_target_"] = "os.system"
    elif place == "encoder":
        config["encoder"] = evil
    elif place == "norm":
        config["projector"]["norm_fn"] = evil
    else:
        config["callbacks"] = [{"a": evil}]
    with pytest.raises(CheckpointError, match=r"_target_ = 'os\.system' at .*not on the list"):
        read_foreign(run_folder(tmp_path / "run", config=config))
    assert not (tmp_path / "canary").exists()


def test_families_without_an_importer_are_named(tmp_path):
    config = {"_target_": "stable_worldmodel.wm.prejepa.PreJEPA"}
    with pytest.raises(
        CheckpointError, match="PreJEPA / DINO-WM is recognised but has no importer"
    ):
        read_foreign(run_folder(tmp_path / "run", config=config))


def test_keys_that_do_not_fit_are_listed_and_nothing_is_loaded(tmp_path):
    folder = run_folder(tmp_path / "run")
    tensors = torch.load(folder / "weights.pt")
    tensors["encoder.layers.1.attention.query_proj.weight"] = tensors.pop(
        "encoder.layers.1.attention.q_proj.weight"
    )
    tensors["decoder.weight"] = torch.ones(2)
    tensors["action_encoder.embed.2.bias"] = torch.ones(7)
    torch.save(tensors, folder / "weights.pt")
    with pytest.raises(CheckpointError) as error:
        read_foreign(folder, action_dim=2)
    text = str(error.value)
    assert "missing (1): encoder.layers.1.attention.q_proj.weight" in text
    assert "not known (2): decoder.weight" in text
    assert "another shape (1): action_encoder.embed.2.bias: (7,), expected (64,)" in text
    assert "q_proj.weight <- encoder.layers.1.attention.query_proj.weight?" in text
    assert not (tmp_path / "out").exists()


def test_training_only_tensors_are_left_out_by_name(tmp_path):
    folder = run_folder(tmp_path / "run", prefix="model.")
    tensors = torch.load(folder / "weights.pt")
    tensors |= {"sigreg.t": torch.ones(17), "model.encoder.pooler.dense.weight": torch.ones(2, 2)}
    torch.save({"state_dict": tensors, "epoch": 2}, folder / "weights.pt")
    report = read_foreign(folder, action_dim=2).report
    assert report.left_out == (
        ("encoder.pooler.dense.weight", "pooler, never read by this family"),
    )
    assert any("sigreg.t" in n for n in report.notes)
    assert "trainer file" in report.layout


def test_a_layer_number_out_of_all_proportion_allocates_nothing(tmp_path):
    folder = run_folder(tmp_path / "run")
    tensors = torch.load(folder / "weights.pt")
    tensors["encoder.layers.999999999.mlp.fc1.bias"] = torch.ones(1)
    torch.save(tensors, folder / "weights.pt")
    with pytest.raises(CheckpointError, match="encoder_depth = 1000000000 is out of range"):
        read_foreign(folder, action_dim=2)


def test_weights_that_are_not_finite_are_refused(tmp_path):
    folder = run_folder(tmp_path / "run")
    tensors = torch.load(folder / "weights.pt")
    tensors["projector.net.0.weight"][0, 0] = float("nan")
    torch.save(tensors, folder / "weights.pt")
    with pytest.raises(CheckpointError, match=r"(?s)projector.net.0.weight.*"):
        read_foreign(folder, action_dim=2)


def test_another_family_is_told_by_its_parts(tmp_path):
    torch.save({"backbone.weight": torch.ones(2), "head.bias": torch.ones(1)}, tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match="its parts are backbone, head"):
        read_foreign(tmp_path / "w.pt")


# --- conventions ----------------------------------------------------------------------------------


def test_statistics_are_fitted_on_the_data_without_its_nan_rows(tmp_path):
    data = episodes(nan_inside=True)
    raw = np.concatenate([data.actions(e) for e in range(3)])
    good = raw[~np.isnan(raw).any(axis=1)]
    out = tmp_path / "ckpt"
    report = import_checkpoint(run_folder(tmp_path / "run", config=None), data=data, out=out)
    loaded = read_checkpoint(out)
    assert loaded.conventions.frameskip == 5 and loaded.conventions.action_dim == 2
    # Plain weights without a configuration: stable-worldmodel's population deviation.
    np.testing.assert_allclose(loaded.conventions.action_mean, good.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(loaded.conventions.action_std, good.std(axis=0), rtol=1e-12)
    action, state = report.statistics
    assert (action.rows, action.nan_rows, action.divisor) == (32, 4, "n")
    assert state.column == "state" and state.rows == 36
    assert report.fact("action_mean").source == "data"
    assert "4 with NaN left out" in report.fact("action_mean").note
    assert loaded.training["import"]["statistics"][0]["nan_rows"] == 4
    assert loaded.model.identity == report.identity
    assert report.skipped == ()


def test_the_divisor_is_that_of_the_training_code(tmp_path):
    data = episodes()
    raw = np.concatenate([data.actions(e)[:-1] for e in range(3)])
    swm = json.loads(json.dumps(CONFIG))
    fork = json.loads(json.dumps(CONFIG))
    fork["_target_"] = "jepa.JEPA"
    population = read_foreign(run_folder(tmp_path / "a", config=swm), data=data)
    np.testing.assert_allclose(population.model.conventions.action_std, raw.std(axis=0))
    sample = read_foreign(run_folder(tmp_path / "b", config=swm), data=data, divisor="n-1")
    np.testing.assert_allclose(sample.model.conventions.action_std, raw.std(axis=0, ddof=1))
    assert population.report.fact("action_std").note == "divisor n"
    assert read_foreign(run_folder(tmp_path / "c", config=fork), data=data).report.family == "lewm"


def test_without_data_what_is_missing_is_named(tmp_path):
    report = import_checkpoint(run_folder(tmp_path / "run"), out=tmp_path / "ckpt")
    assert any("action statistics" in s and "--data" in s for s in report.skipped)
    assert report.fact("action_mean").source == "assumed"
    assert report.fact("frameskip").source == "family default"
    assert read_checkpoint(tmp_path / "ckpt").conventions.action_mean == (0.0, 0.0)
    assert any(line.startswith("  skipped: action statistics") for line in report.lines())


@pytest.mark.parametrize("suffix", [".json", ".toml", ".npz"])
def test_statistics_may_come_from_a_file(tmp_path, suffix):
    path = tmp_path / f"stats{suffix}"
    if suffix == ".json":
        path.write_text(json.dumps({"action_mean": [1, 2], "action_std": [3, 4]}))
    elif suffix == ".toml":
        path.write_text("action_mean = [1, 2]\naction_std = [3, 4]\n")
    else:
        np.savez(path, action_mean=[1.0, 2.0], action_std=[3.0, 4.0])
    found = read_foreign(run_folder(tmp_path / "run"), statistics=path)
    assert found.model.conventions.action_std == (3.0, 4.0)
    assert found.report.fact("action_std").source == "file"


@pytest.mark.parametrize(
    "content, message",
    [
        ({"action_mean": [1, 2]}, "needs action_mean and action_std"),
        ({"action_mean": [1, 2], "action_std": [1]}, "2 numbers and action_std 1"),
        ({"action_mean": [1, 2], "action_std": [1, 0]}, "must be positive"),
        ({"action_mean": [1, 2, 3], "action_std": [1, 1, 1]}, "3 numbers but one raw action has 2"),
        ({"action_mean": ["a", 2], "action_std": [1, 1]}, "must be numbers"),
    ],
)
def test_a_statistics_file_that_cannot_be_right_is_refused(tmp_path, content, message):
    (tmp_path / "s.json").write_text(json.dumps(content))
    with pytest.raises(UsageError, match=message):
        read_foreign(run_folder(tmp_path / "run"), statistics=tmp_path / "s.json")


def test_data_of_another_action_width_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="has 10 numbers .* no multiple of the 3 numbers"):
        read_foreign(run_folder(tmp_path / "run"), data=episodes(action_dim=3))
    with pytest.raises(CheckpointError, match="frameskip 4 x action width 2 = 8"):
        read_foreign(run_folder(tmp_path / "run"), data=episodes(), frameskip=4)


# --- where a checkpoint lies ----------------------------------------------------------------------


def test_hub_snapshots_resolve_through_their_reference(tmp_path, monkeypatch):
    folder = tmp_path / "models--user--net"
    run_folder(folder / "snapshots" / "abc123", config=CONFIG)
    run_folder(folder / "snapshots" / "older")
    with pytest.raises(CheckpointError, match="2 snapshots"):
        recognise(folder)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc123\n")
    found = recognise(folder)
    assert found.layout == "hub snapshot" and found.weights.parent.name == "abc123"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert recognise("user/net").weights == found.weights
    with pytest.raises(CheckpointError, match="Nothing is downloaded unless you ask"):
        recognise("user/absent")


def test_stable_worldmodels_own_cache_is_flat(tmp_path, monkeypatch):
    monkeypatch.setenv("STABLEWM_HOME", str(tmp_path))
    run_folder(tmp_path / "checkpoints" / "models--user--net", config=CONFIG)
    assert recognise("user/net").config.family == "lewm"


def test_of_several_epochs_the_last_is_taken_and_said(tmp_path):
    folder = run_folder(tmp_path / "run", config=CONFIG)
    for epoch in (2, 9, 10):
        (folder / f"weights_epoch_{epoch}.pt").write_bytes((folder / "weights.pt").read_bytes())
    (folder / "weights.pt").unlink()
    found = recognise(folder)
    assert found.weights.name == "weights_epoch_10.pt" and "3 epochs" in found.notes[0]
    assert recognise(folder / "weights_epoch_2.pt").weights.name == "weights_epoch_2.pt"
    (folder / "other.pt").write_bytes(b"x")
    with pytest.raises(CheckpointError, match="not clear"):
        recognise(folder)


def test_our_own_checkpoint_is_recognised_and_not_converted_again(tmp_path):
    import_checkpoint(run_folder(tmp_path / "run"), out=tmp_path / "ckpt")
    with pytest.raises(CheckpointError, match="already is a checkpoint of Dreamcheck"):
        recognise(tmp_path / "ckpt")
    with pytest.raises(UsageError, match="already holds a checkpoint"):
        import_checkpoint(tmp_path / "run", out=tmp_path / "ckpt")
    with pytest.raises(UsageError, match="already holds a checkpoint|is the run itself"):
        import_checkpoint(run_folder(tmp_path / "r2", config=CONFIG), out=tmp_path / "r2")


@pytest.mark.parametrize(
    "name, message",
    [("nothing", "does not exist"), ("a.txt", "does not end in"), ("empty", "holds no weights")],
)
def test_paths_that_lead_nowhere_say_so(tmp_path, name, message):
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=message):
        recognise(tmp_path / name)


def test_a_download_happens_only_when_asked_for(tmp_path, monkeypatch):
    """A local server stands for the hub; the same name without download leaves it untouched."""
    import functools
    import http.server
    import threading

    run_folder(tmp_path / "www" / "user" / "net" / "resolve" / "main", config=CONFIG)
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            super().do_GET()

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(tmp_path / "www"))
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        monkeypatch.setenv("STABLEWM_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "none"))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(CheckpointError, match="--download"):
            read_foreign("user/net", action_dim=2)
        assert asked == []
        found = read_foreign("user/net", action_dim=2, download=True)
        assert any("was downloaded to" in n for n in found.report.notes)
        assert len(asked) == 4  # config.json, two safetensors names that are not there, weights.pt
        read_foreign("user/net", action_dim=2, download=True)
        assert len(asked) == 4
        with pytest.raises(CheckpointError, match="has none of"):
            read_foreign("user/absent", download=True)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_the_report_is_plain_data(tmp_path):
    report = read_foreign(run_folder(tmp_path / "run", config=CONFIG), data=episodes()).report
    again = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert again["family"] == "lewm" and len(again["files"]["weights.pt"]) == 64
    assert set(again["files"]) == {"weights.pt", "config.json"}
    assert all(f["source"] for f in again["facts"])
