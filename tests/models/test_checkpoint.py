"""Checkpoints: what is written is read; everything else is refused with the reason."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch

from dreamcheck.errors import CheckpointError
from dreamcheck.models.checkpoint import read_checkpoint, save_checkpoint
from dreamcheck.models.conventions import Conventions
from dreamcheck.models.lewm import LeWMConfig, LeWMNet
from dreamcheck.models.registry import load_model, shipped_models

CONFIG = LeWMConfig(
    image_size=8, patch_size=4, encoder_width=6, encoder_depth=1, encoder_heads=3, encoder_mlp=8,
    head_hidden=8, latent_width=5, action_width=4, action_smoothed=4, action_hidden=8,
    predictor_width=6, predictor_depth=1, predictor_heads=1, predictor_head_width=4,
    predictor_mlp=8, history=2,
)  # fmt: skip
CONVENTIONS = Conventions(
    image_size=8, frameskip=2, action_dim=2, action_mean=(0.0, 0.0), action_std=(1.0, 1.0),
    history=2,
)  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    return save_checkpoint(
        tmp_path / "model", LeWMNet(CONFIG), CONVENTIONS, training={"recipe": "toy", "seed": 3}
    )


def edit(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config.update(changes)
    path.write_text(json.dumps(config))


def test_a_saved_checkpoint_comes_back_the_same(folder):
    net = LeWMNet(CONFIG)
    with torch.no_grad():
        net.projector.norm.running_mean.fill_(0.25)
    save_checkpoint(folder, net, CONVENTIONS, training={"seed": 3})
    loaded = read_checkpoint(folder)
    assert loaded.training == {"seed": 3} and loaded.conventions == CONVENTIONS
    state = loaded.model.module.state_dict()
    assert all(torch.equal(v, state[k]) for k, v in net.state_dict().items())
    assert not loaded.model.module.training
    by_file = load_model(folder / "weights.safetensors")
    assert by_file.identity == loaded.model.identity


def test_a_missing_checkpoint_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="nowhere does not exist"):
        read_checkpoint(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="no config.json"):
        read_checkpoint(tmp_path)


def test_missing_weights_are_named(folder):
    (folder / "weights.safetensors").unlink()
    with pytest.raises(CheckpointError, match="weights.safetensors does not exist"):
        read_checkpoint(folder)


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_a_truncated_file_is_refused(folder, keep):
    path = folder / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match="not a whole safetensors file"):
        read_checkpoint(folder)


def test_another_family_is_refused_with_both_names(folder):
    with pytest.raises(CheckpointError, match="is a lewm checkpoint but a dinowm one"):
        read_checkpoint(folder, family="dinowm")
    edit(folder, family="os.system")
    with pytest.raises(CheckpointError, match=r"unknown model family 'os.system'"):
        read_checkpoint(folder)


def test_another_latent_width_is_refused_with_expected_and_found(folder):
    assert read_checkpoint(folder, latent_width=5).model.latent.width == 5
    with pytest.raises(CheckpointError, match="width 5 but 192 was expected"):
        read_checkpoint(folder, latent_width=192)


class Bomb:
    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("suffix", [".pt", ".ckpt", ".pkl", ".safetensors", ""])
def test_a_pickle_is_refused_unread_whatever_it_is_called(tmp_path, suffix):
    bomb = Bomb()
    bomb.path = tmp_path / "exploded"
    path = tmp_path / f"model{suffix}"
    path.write_bytes(pickle.dumps(bomb))
    with pytest.raises(CheckpointError, match="dreamcheck import"):
        load_model(path)
    assert not bomb.path.exists()


def test_a_torch_archive_named_weights_is_refused(folder):
    torch.save({"w": torch.zeros(2)}, folder / "weights.safetensors")
    with pytest.raises(CheckpointError, match="pickle or torch archive"):
        read_checkpoint(folder)


def test_a_folder_of_pickles_is_pointed_to_the_importer(tmp_path):
    (tmp_path / "weights_10.pt").write_bytes(b"PK\x03\x04")
    with pytest.raises(CheckpointError, match=r"weights_10.pt: convert"):
        read_checkpoint(tmp_path)


def test_unknown_and_missing_weights_are_listed(folder):
    net = LeWMNet(CONFIG.model_copy(update={"predictor_depth": 2}))
    save_checkpoint(folder, net, CONVENTIONS)
    config = json.loads((folder / "config.json").read_text())
    # One layer: modulation, attention norm, output, MLP norm, up and down with bias; qkv without.
    edit(folder, architecture={**config["architecture"], "predictor_depth": 1})
    with pytest.raises(CheckpointError, match=r"13 unknown keys \(predictor.layers.1"):
        read_checkpoint(folder)
    edit(folder, architecture={**config["architecture"], "predictor_depth": 3})
    with pytest.raises(CheckpointError, match=r"13 keys missing \(predictor.layers.2"):
        read_checkpoint(folder)
    edit(folder, architecture={**config["architecture"], "encoder_mlp": 12})
    with pytest.raises(CheckpointError, match=r"expected \[12, 6\], found \[8, 6\]"):
        read_checkpoint(folder)


def test_unknown_keys_in_the_configuration_are_refused(folder):
    edit(folder, _target_="subprocess.run")
    with pytest.raises(CheckpointError, match="unknown keys"):
        read_checkpoint(folder)


def test_an_unknown_architecture_field_is_named(folder):
    config = json.loads((folder / "config.json").read_text())
    edit(folder, architecture={**config["architecture"], "_target_": "os.system"})
    with pytest.raises(CheckpointError, match="_target_"):
        read_checkpoint(folder)


def test_a_newer_format_is_refused(folder):
    edit(folder, format_version=2)
    with pytest.raises(CheckpointError, match="format version 2"):
        read_checkpoint(folder)


def test_a_configuration_of_another_tool_is_refused(folder):
    (folder / "config.json").write_text('{"model_type": "vit"}')
    with pytest.raises(CheckpointError, match="not a Dreamcheck checkpoint"):
        read_checkpoint(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="not readable JSON"):
        read_checkpoint(folder)


def test_weights_that_are_not_finite_are_neither_saved_nor_loaded(folder, tmp_path):
    net = LeWMNet(CONFIG)
    with torch.no_grad():
        net.prediction_head.down.bias[2] = float("nan")
    with pytest.raises(CheckpointError, match="prediction_head.down.bias"):
        save_checkpoint(tmp_path / "bad", net, CONVENTIONS)
    from safetensors.torch import save_file

    save_file(net.state_dict(), folder / "weights.safetensors")
    with pytest.raises(CheckpointError, match="NaN or infinity"):
        read_checkpoint(folder)


def test_an_unknown_name_lists_what_exists():
    with pytest.raises(CheckpointError, match="no model 'tworoom-tiny'") as error:
        load_model("tworoom-tiny")
    for name in shipped_models():
        assert name in str(error.value)


def test_a_factory_is_imported_because_the_user_named_it(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2]))
    assert load_model("examples.tiny_model:make").latent.width == 12
    with pytest.raises(CheckpointError, match="cannot import 'no_such_module'"):
        load_model("no_such_module:make")
    with pytest.raises(CheckpointError, match="it has"):
        load_model("examples.tiny_model:mark")
    with pytest.raises(CheckpointError, match="without conventions"):
        load_model("collections:OrderedDict")
