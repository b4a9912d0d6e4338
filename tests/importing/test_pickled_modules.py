"""What the restricted reader extracts from honest files equals what torch itself loads."""

from __future__ import annotations

import collections

import pytest
import torch

from dreamcheck.errors import CheckpointError
from dreamcheck.models.importing.archives import open_torch
from dreamcheck.models.importing.records import Record
from dreamcheck.models.importing.weights import read_weights


class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = 4
        self.norm = torch.nn.BatchNorm1d(5)
        self.register_buffer("scratch", torch.ones(3), persistent=False)
        self.register_buffer("table", torch.arange(6).view(2, 3).t())
        self.optional = None


class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.parts = torch.nn.ModuleList([Inner(), torch.nn.Linear(5, 2)])
        self.tied = self.parts[1]
        self.small = torch.nn.Parameter(torch.randn(4).to(torch.bfloat16), requires_grad=False)
        self.callbacks = {"a": [1, (2.5, "x")], "set": {1, 2}}


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("whole", [False, True])
def test_tensors_equal_those_torch_loads(tmp_path, legacy, protocol, whole):
    model = Outer()
    path = tmp_path / "m.pt"
    torch.save(
        model if whole else model.state_dict(),
        path,
        _use_new_zipfile_serialization=not legacy,
        pickle_protocol=protocol,
    )
    read = read_weights(path)
    want = model.state_dict()
    assert set(read.tensors) == set(want)
    for name, value in want.items():
        assert read.tensors[name].dtype == value.dtype
        assert torch.equal(read.tensors[name], value), name
        assert read.tensors[name].is_contiguous()
    if whole:
        assert read.kind == "pickled module"
        assert read.classes[""].endswith("Outer")
        assert read.classes["parts.1"] == "torch.nn.modules.linear.Linear"
        assert read.attributes["parts.0"]["heads"] == 4
        assert read.attributes["parts.0"]["optional"] is None


def test_a_foreign_class_becomes_a_record_of_its_name(tmp_path):
    path = tmp_path / "m.pt"
    torch.save({"state_dict": {"w": torch.ones(2)}, "object": Inner()}, path)
    root = open_torch(path).root
    assert isinstance(root["object"], Record)
    assert root["object"].cls.endswith("test_pickled_modules.Inner")


@pytest.mark.parametrize(
    "wrap, kind",
    [
        (lambda d: d, "state dict"),
        (lambda d: collections.OrderedDict(d), "state dict"),
        (lambda d: {"state_dict": d, "epoch": 3, "optimizer": {"lr": 0.1}}, "trainer file"),
        (lambda d: {"model": d, "args": None}, "trainer file"),
    ],
)
def test_weights_are_found_where_trainers_put_them(tmp_path, wrap, kind):
    path = tmp_path / "w.ckpt"
    torch.save(wrap({"a.weight": torch.ones(2, 2)}), path)
    read = read_weights(path)
    assert read.kind == kind and list(read.tensors) == ["a.weight"]


def test_a_slice_keeps_its_place_in_its_storage(tmp_path):
    base = torch.arange(24.0).view(4, 6)
    path = tmp_path / "v.pt"
    torch.save(
        {"rows": base[1:3], "columns": base[:, 2], "turned": base.t(), "none": base[:0]}, path
    )
    read = read_weights(path).tensors
    assert torch.equal(read["rows"], base[1:3]) and torch.equal(read["columns"], base[:, 2])
    assert torch.equal(read["turned"], base.t()) and read["none"].shape == (0, 6)


def test_files_written_without_checksums_are_read(tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"w": torch.arange(5.0)}, tmp_path / "w.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert read_weights(tmp_path / "w.pt").tensors["w"].tolist() == [0, 1, 2, 3, 4]


def test_big_endian_files_are_turned_round(tmp_path):
    from dreamcheck.models.importing.archives import Entry, TorchFile
    from dreamcheck.models.importing.records import Storage, TensorSpec

    path = tmp_path / "b.bin"
    path.write_bytes(torch.tensor([1.0, 2.0]).numpy().astype(">f4").tobytes())
    spec = TensorSpec(Storage("0", "float32", 2), "float32", 0, (2,), (1,))
    file = TorchFile(path, None, (), {"0": Entry(0, 8)}, big_endian=True)
    assert file.read({"x": spec})["x"].tolist() == [1.0, 2.0]


def test_a_file_without_weights_says_what_it_holds(tmp_path):
    torch.save({"epoch": 3, "lr": 0.1}, tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match="epoch, lr"):
        read_weights(tmp_path / "w.pt")
    torch.save([torch.ones(2)], tmp_path / "l.pt")
    with pytest.raises(CheckpointError, match="neither a state dict"):
        read_weights(tmp_path / "l.pt")
    (tmp_path / "t.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(CheckpointError, match="safetensors"):
        read_weights(tmp_path / "t.safetensors")
