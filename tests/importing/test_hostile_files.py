"""Files made to harm: nothing of theirs runs, nothing is written, memory stays bounded."""

from __future__ import annotations

import collections
import io
import os
import pickle
import struct
import subprocess
import sys
import textwrap
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from dreamcheck.errors import CheckpointError, UsageError
from dreamcheck.models.importing.archives import open_torch
from dreamcheck.models.importing.statistics import read_statistics
from dreamcheck.models.importing.weights import read_weights


class Calls:
    """Pickles as a call of any function with any arguments."""

    def __init__(self, function, *args):
        self.function, self.args = function, args

    def __reduce__(self):
        return self.function, self.args


def archive(path: Path, data: bytes, entries: dict[str, bytes] | None = None, **kw) -> Path:
    """A torch zip archive around a pickle of ours."""
    with zipfile.ZipFile(path, "w", **kw) as z:
        z.writestr("archive/data.pkl", data)
        z.writestr("archive/version", b"3\n")
        for name, content in (entries or {}).items():
            z.writestr(name, content)
    return path


def tensor_pickle(*, count: int, offset: bytes, shape: bytes, stride: bytes, key=b"0") -> bytes:
    """{"w": tensor} with every number chosen by us."""
    return (
        b"\x80\x02}X\x01\x00\x00\x00w"
        b"ctorch._utils\n_rebuild_tensor_v2\n("
        b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX"
        + struct.pack("<I", len(key))
        + key
        + b"X\x03\x00\x00\x00cpu"
        + number(count)
        + b"tQ"
        + offset
        + shape
        + stride
        + b"\x89ccollections\nOrderedDict\n)RtRs."
    )


def number(n: int) -> bytes:
    raw = n.to_bytes(9, "little", signed=True)
    return b"\x8a\x09" + raw


def numbers(*ns: int) -> bytes:
    return b"(" + b"".join(number(n) for n in ns) + b"t"


# --- code -----------------------------------------------------------------------------------------


def run_payloads(canary: Path) -> list[tuple[str, object]]:
    touch = f"touch {canary}"
    code = f"open({str(canary)!r}, 'w').close()"
    return [
        ("os.system", Calls(os.system, touch)),
        ("subprocess", Calls(subprocess.call, ["touch", str(canary)])),
        ("eval", Calls(eval, f"__import__('os').system({touch!r})")),
        ("exec", Calls(exec, code)),
        ("open", Calls(open, str(canary), "w")),
        ("getattr of import", Calls(getattr, Calls(__import__, "os"), "system")),
        ("nested in a state dict", collections.OrderedDict(a=Calls(os.system, touch))),
        ("nested in a tuple key", {("k", 1): [Calls(os.system, touch)]}),
        ("pickle inside a pickle", Calls(pickle.loads, pickle.dumps(Calls(os.system, touch)))),
        ("torch.load", Calls(torch.load, str(canary))),
        ("io.open", Calls(io.open, str(canary), "w")),
        ("writes a file", Calls(Path.touch, canary)),
    ]


@pytest.mark.parametrize("protocol", [0, 1, 2, 4, 5])
@pytest.mark.parametrize("index", range(12))
@pytest.mark.parametrize("container", ["zip", "legacy"])
def test_a_file_that_calls_something_is_refused_and_calls_nothing(
    tmp_path, index, protocol, container
):
    canary = tmp_path / "canary"
    name, payload = run_payloads(canary)[index]
    data = pickle.dumps(payload, protocol=protocol)
    path = tmp_path / "evil_object.ckpt"
    if container == "zip":
        archive(path, data)
    else:
        head = b"".join(pickle.dumps(v, 2) for v in (0x1950A86A20F9469CFC6C, 1001, {}))
        path.write_bytes(head + data + pickle.dumps([], 2))
    before = set(os.listdir(tmp_path))
    with pytest.raises(CheckpointError, match="evil_object.ckpt"):
        read_weights(path)
    assert not canary.exists(), name
    assert set(os.listdir(tmp_path)) == before


def test_the_control_really_would_have_run(tmp_path):
    # Without this the tests above could pass because the payloads are broken.
    canary = tmp_path / "canary"
    pickle.loads(pickle.dumps(Calls(os.system, f"touch {canary}")))
    assert canary.exists()


def test_the_refusal_names_what_was_asked_for(tmp_path):
    path = archive(tmp_path / "a.pt", pickle.dumps({"w": Calls(os.system, "true")}, 2))
    with pytest.raises(CheckpointError, match=r"a\.pt asks for posix\.system .*state_dict"):
        read_weights(path)
    unknown = b"\x80\x02cmytrainer.tricks\nunpack\n)R."
    with pytest.raises(CheckpointError, match=r"asks to call mytrainer\.tricks\.unpack"):
        read_weights(archive(tmp_path / "b.pt", unknown))


def test_a_name_is_never_imported(tmp_path):
    module = tmp_path / "unlucky_module.py"
    module.write_text(f"open({str(tmp_path / 'canary')!r}, 'w').close()\nclass Net: pass\n")
    sys.path.insert(0, str(tmp_path))
    try:
        data = b"\x80\x02cunlucky_module\nNet\n)\x81}X\x01\x00\x00\x00aK\x01sb."
        with pytest.raises(CheckpointError, match="unlucky_module.Net"):
            read_weights(archive(tmp_path / "m.pt", data))
    finally:
        sys.path.remove(str(tmp_path))
    assert not (tmp_path / "canary").exists() and "unlucky_module" not in sys.modules


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02\x82\x01.",  # EXT1: a name from the copyreg registry
        b"\x80\x05\x97.",  # NEXT_BUFFER: data from outside
        b"\x80\x02(iposix\nsystem\n.",  # INST
        b"\x80\x02(cposix\nsystem\nX\x04\x00\x00\x00trueo.",  # OBJ
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93)\x81.",  # STACK_GLOBAL, NEWOBJ
        b"\x80\x02cbuiltins\nobject\n)\x81N\x92.",  # NEWOBJ_EX with nonsense
        b"\x80\x02K\x01)R.",  # call a number
    ],
)
def test_unusual_instructions_are_refused(tmp_path, data):
    with pytest.raises(CheckpointError, match=r"e\.pt"):
        read_weights(archive(tmp_path / "e.pt", data))


# --- paths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [b"../../../etc/passwd", b"/etc/passwd", b"..\\x", b"a/../../b"])
def test_a_storage_name_is_no_path(tmp_path, key):
    data = tensor_pickle(count=1, offset=b"K\x00", shape=numbers(1), stride=numbers(1), key=key)
    path = archive(tmp_path / "t.pt", data, {"archive/data/0": b"\0" * 4})
    with pytest.raises(CheckpointError, match="does not hold"):
        read_weights(path)


def test_entries_with_climbing_names_are_never_unpacked(tmp_path):
    good = io.BytesIO()
    torch.save({"w": torch.ones(2)}, good)
    path = tmp_path / "inner" / "t.pt"
    path.parent.mkdir()
    path.write_bytes(good.getvalue())
    with zipfile.ZipFile(path, "a") as z:
        z.writestr("../../escaped.txt", "out")
        z.writestr("/tmp/dreamcheck-escaped.txt", "out")
    assert read_weights(path).tensors["w"].tolist() == [1.0, 1.0]
    assert not (tmp_path / "escaped.txt").exists()
    assert not Path("/tmp/dreamcheck-escaped.txt").exists()
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["inner", "t.pt"]


def test_a_hub_reference_cannot_leave_its_folder(tmp_path):
    from dreamcheck.models.importing.recognise import recognise

    folder = tmp_path / "models--user--net"
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("../../../../etc")
    with pytest.raises(CheckpointError, match="not in"):
        recognise(folder)


# --- memory ---------------------------------------------------------------------------------------


def test_a_zip_bomb_is_refused_by_name(tmp_path):
    data = tensor_pickle(count=8 << 20, offset=b"K\x00", shape=numbers(8 << 20), stride=numbers(1))
    path = archive(
        tmp_path / "bomb.pt",
        data,
        {"archive/data/0": b"\0" * (32 << 20)},
        compression=zipfile.ZIP_DEFLATED,
    )
    assert path.stat().st_size < 1 << 20
    with pytest.raises(CheckpointError, match="compressed"):
        read_weights(path)


def test_overlapping_entries_are_refused(tmp_path):
    # Every entry of the directory points at the same bytes: the sum exceeds the file.
    path = archive(tmp_path / "o.pt", b"\x80\x02}.", {"archive/data/0": b"\0" * 4096})
    raw = bytearray(path.read_bytes())
    at = raw.rfind(b"PK\x01\x02")
    entry = bytes(raw[at : raw.rfind(b"PK\x05\x06")])
    end = raw.rfind(b"PK\x05\x06")
    copies = 50
    tail = bytearray(raw[end:])
    n = struct.unpack("<H", tail[8:10])[0] + copies
    tail[8:12] = struct.pack("<HH", n, n)
    size = struct.unpack("<I", tail[12:16])[0] + copies * len(entry)
    tail[12:16] = struct.pack("<I", size)
    path.write_bytes(bytes(raw[:end]) + entry * copies + bytes(tail))
    with pytest.raises(CheckpointError, match="overlap|readable zip"):
        read_weights(path)


@pytest.mark.parametrize(
    "count, offset, shape, stride, message",
    [
        (1, 0, (1 << 40,), (0,), "elements over a storage of 1"),
        (1, 0, (1 << 40,), (1,), "reaches element"),
        (4, 0, (2, 2), (3, 1), "reaches element 4"),
        (4, 3, (2,), (1,), "reaches element 4"),
        (4, -1, (2,), (1,), "negative offset"),
        (4, 0, (-2,), (1,), "shape"),
        (4, 0, (2,), (-1,), "stride"),
        (4, 0, (2, 2), (1,), "strides"),
        (4, 0, (1,) * 40, (1,) * 40, "shape"),
        (1 << 50, 0, (1,), (1,), "4 bytes are there|bytes are there"),
        (-5, 0, (1,), (1,), "not read"),
        (4, 0, ((1 << 62) - 1, 2), (0, 0), "elements over"),
    ],
)
def test_a_shape_the_storage_cannot_hold_is_refused(
    tmp_path, count, offset, shape, stride, message
):
    data = tensor_pickle(
        count=count, offset=number(offset), shape=numbers(*shape), stride=numbers(*stride)
    )
    path = archive(tmp_path / "s.pt", data, {"archive/data/0": b"\0" * 16})
    with pytest.raises(CheckpointError, match=message):
        read_weights(path)


def test_the_same_storage_under_thousands_of_names_is_refused(tmp_path):
    one = torch.zeros(1 << 16)
    path = tmp_path / "alias.pt"
    torch.save({f"w{i}": one for i in range(2000)}, path)
    with pytest.raises(CheckpointError, match="too many names"):
        read_weights(path)


def test_deep_and_cyclic_objects_end_without_exhausting_the_stack(tmp_path):
    deep = b"\x80\x02" + b"]" * 50_000 + b"a" * 49_999 + b"."
    with pytest.raises(CheckpointError):
        read_weights(archive(tmp_path / "deep.pt", deep))
    # A tuple doubled 200 times is one small stream and 2^200 leaves: it must not be walked or hashed.
    doubled = b"\x80\x02K\x01" + b"q\x00h\x00\x86" * 200 + b"."
    with pytest.raises(CheckpointError):
        read_weights(archive(tmp_path / "wide.pt", doubled))
    key = b"\x80\x02}K\x01" + b"q\x00h\x00\x86" * 200 + b"K\x01s."
    with pytest.raises(CheckpointError, match="dictionary key"):
        read_weights(archive(tmp_path / "key.pt", key))
    # A module that is its own child.
    cyclic = (
        b"\x80\x02cjepa\nJEPA\n)\x81q\x01}(X\x0b\x00\x00\x00_parameters}X\x08\x00\x00\x00_modules}"
        b"X\x01\x00\x00\x00ah\x01sub."
    )
    with pytest.raises(CheckpointError, match="nested|contain each other"):
        read_weights(archive(tmp_path / "cycle.pt", cyclic))


def test_memory_stays_bounded_for_every_greedy_file(tmp_path):
    """One process under a limit of 400 MB above its start meets each greedy file in turn."""
    huge = (1 << 62) - 1
    files = {
        # Announced lengths far beyond the file.
        "string": b"\x80\x04\x8d" + struct.pack("<Q", huge) + b"x.",
        "bytes": b"\x80\x04\x8e" + struct.pack("<Q", huge) + b"x.",
        "array": b"\x80\x05\x96" + struct.pack("<Q", huge) + b"x.",
        "long": b"\x80\x02\x8b" + struct.pack("<i", 1 << 30) + b"\x01.",
        "digits": b"\x80\x02I" + b"9" * 5000 + b"\n.",
        # A small string copied on every call: 1 MB x 100 000.
        "copies": b"\x80\x02(X" + struct.pack("<I", 1 << 20) + b"a" * (1 << 20) + b"q\x01"
        + b"c_codecs\nencode\nh\x01\x85R" * 100_000 + b"t.",
        # A long list turned into a set again and again.
        "sets": b"\x80\x02(](" + b"N" * 300_000 + b"eq\x01"
        + b"c__builtin__\nset\nh\x01\x85R" * 2_000 + b"t.",
        "memo": b"\x80\x02N" + b"r\xff\xff\xff\xff" + b".",
        "tensor": tensor_pickle(
            count=1, offset=b"K\x00", shape=numbers(1 << 38), stride=numbers(0)
        ),
    }  # fmt: skip
    for name, data in files.items():
        archive(tmp_path / f"{name}.pt", data, {"archive/data/0": b"\0" * 4})
    script = textwrap.dedent(
        """
        import resource, sys
        from pathlib import Path
        from dreamcheck.errors import CheckpointError
        from dreamcheck.models.importing.weights import read_weights
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (400 << 20),) * 2)
        for path in sorted(Path(sys.argv[1]).glob("*.pt")):
            try:
                read_weights(path)
            except CheckpointError:
                print("refused", path.stem)
        """
    )
    if not Path("/proc/self/statm").exists():
        pytest.skip("address-space limits are measured through /proc")
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split("\n")[:-1] == [f"refused {n}" for n in sorted(files)]


# --- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("legacy", [False, True])
def test_a_file_cut_anywhere_is_refused(tmp_path, legacy):
    whole = tmp_path / "w.pt"
    torch.save(
        {"a": torch.arange(100.0), "b": torch.ones(3, 4)},
        whole,
        _use_new_zipfile_serialization=not legacy,
    )
    raw = whole.read_bytes()
    assert set(read_weights(whole).tensors) == {"a", "b"}
    for share in (0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99):
        cut = tmp_path / "cut.pt"
        cut.write_bytes(raw[: int(len(raw) * share)])
        with pytest.raises(CheckpointError, match=r"cut\.pt"):
            read_weights(cut)


def test_a_flipped_bit_in_the_weights_is_noticed(tmp_path):
    path = tmp_path / "f.pt"
    torch.save({"a": torch.arange(1000.0)}, path)
    raw = bytearray(path.read_bytes())
    at = raw.find(struct.pack("<f", 500.0))
    raw[at] ^= 1
    path.write_bytes(bytes(raw))
    with pytest.raises(CheckpointError, match="checksum"):
        read_weights(path)


def test_things_that_are_no_checkpoint_are_told_apart(tmp_path):
    cases = {
        "empty.pt": (b"", "is empty"),
        "text.pt": (b"hello", "no torch file"),
        "lfs.pt": (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        "plain.pkl": (pickle.dumps({"a": 1}), "no torch file"),
    }
    for name, (content, message) in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CheckpointError, match=message):
            open_torch(tmp_path / name)
    with pytest.raises(CheckpointError, match="not a file"):
        open_torch(tmp_path / "absent.pt")
    with zipfile.ZipFile(tmp_path / "other.pt", "w") as z:
        z.writestr("a.txt", "x")
    with pytest.raises(CheckpointError, match="no torch checkpoint"):
        open_torch(tmp_path / "other.pt")
    archive(tmp_path / "jit.pt", b"\x80\x02}.", {"archive/constants.pkl": b"\x80\x02)."})
    with pytest.raises(CheckpointError, match="TorchScript"):
        open_torch(tmp_path / "jit.pt")


def test_hostile_safetensors_and_statistics_are_refused_in_little_memory(tmp_path):
    header = b'{"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}'
    overlap = (
        b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
        b'"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}'
    )
    files = {
        "long": struct.pack("<Q", 1 << 62) + b"{}",
        "claims": struct.pack("<Q", len(header)) + header + bytes(16),
        "overlap": struct.pack("<Q", len(overlap)) + overlap + bytes(12),
        "empty": b"",
    }
    tracemalloc.start()
    try:
        for name, content in files.items():
            path = tmp_path / f"{name}.safetensors"
            path.write_bytes(content)
            with pytest.raises(CheckpointError, match=f"{name}.safetensors"):
                read_weights(path)
        np.savez_compressed(tmp_path / "s.npz", action_mean=np.zeros(1 << 18), action_std=[1.0])
        (tmp_path / "deep.json").write_text("[" * 100_000)
        (tmp_path / "torn.npz").write_bytes((tmp_path / "s.npz").read_bytes()[:100])
        for name, message in (
            ("s.npz", "unpacks to"),
            ("deep.json", "no readable"),
            ("torn.npz", "no readable"),
        ):
            with pytest.raises(UsageError, match=message):
                read_statistics(tmp_path / name)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
