"""Torch files as containers of tensors: zip archives and the older stream format, both read lazily.

Nothing is unpacked to disk, entries are looked up by name only, and no number of bytes is allocated
that the file itself does not hold.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from dreamcheck.errors import CheckpointError
from dreamcheck.models.importing.pickles import parse
from dreamcheck.models.importing.records import (
    ITEM_SIZES,
    WAY_OUT,
    Storage,
    TensorSpec,
    storage_dtype,
)

MAX_PICKLE_BYTES = 256 << 20
MAX_ENTRIES = 200_000
COPIES_ALLOWED = 8
"""Shared weights may appear under a few names; more total bytes than this times the file is refused."""

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
TORCH_DTYPES: Mapping[str, torch.dtype] = {
    name: getattr(torch, name) for name in ITEM_SIZES if name != "untyped"
}


@dataclass(frozen=True)
class Entry:
    """Where one storage's bytes lie in the file."""

    offset: int
    size: int
    crc: int | None = None


@dataclass
class TorchFile:
    """One opened torch file.

    root: its object, tensors as ``TensorSpec``. names: every class or function it mentions.
    """

    path: Path
    root: Any
    names: tuple[str, ...]
    entries: Mapping[str, Entry]
    big_endian: bool = False

    def read(self, specs: Mapping[str, TensorSpec]) -> dict[str, Tensor]:
        """The tensors, contiguous, each storage read once.

        Raises:
            CheckpointError: the tensors together are far larger than the file.
        """
        total = sum(s.count * ITEM_SIZES[s.dtype] for s in specs.values())
        size = self.path.stat().st_size
        if total > COPIES_ALLOWED * size:
            raise CheckpointError(
                f"{self.path} holds {size} bytes but its tensors ask for {total}: the same numbers "
                f"appear under too many names. {WAY_OUT}"
            )
        by_storage: dict[str, list[str]] = {}
        for name, spec in specs.items():
            by_storage.setdefault(spec.storage.key, []).append(name)
        out: dict[str, Tensor] = {}
        with open(self.path, "rb") as f:
            for key, names in by_storage.items():
                raw = self._bytes(f, key)
                for name in names:
                    out[name] = self._tensor(raw, specs[name])
        return {name: out[name] for name in specs}

    def _bytes(self, f: BinaryIO, key: str) -> bytearray:
        entry = self.entries[key]
        f.seek(entry.offset)
        raw = bytearray(f.read(entry.size))
        if len(raw) != entry.size:
            raise CheckpointError(
                f"{self.path} ends inside the storage {key!r}: {len(raw)} of {entry.size} bytes "
                "are there. The file is truncated; copy it again."
            )
        if entry.crc is not None and zlib.crc32(raw) != entry.crc:
            raise CheckpointError(
                f"{self.path}: the bytes of storage {key!r} do not match their checksum. The file "
                "is damaged; copy it again."
            )
        return raw

    def _tensor(self, raw: bytearray, spec: TensorSpec) -> Tensor:
        dtype = TORCH_DTYPES[spec.dtype]
        if spec.count == 0:
            return torch.empty(spec.shape, dtype=dtype)
        item = ITEM_SIZES[spec.dtype]
        if self.big_endian and item > 1:
            # Whole elements are reversed, into a copy: the storage may serve other tensors.
            swapped = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
            n = len(raw) // item * item
            raw = bytearray(swapped[:n].view(-1, item).flip(1).contiguous().numpy().tobytes())
        flat = torch.frombuffer(raw, dtype=dtype, count=len(raw) // item)
        return flat.as_strided(spec.shape, spec.stride, spec.offset).clone(
            memory_format=torch.contiguous_format
        )


def _storage(pid: Any, path: Path) -> Storage:
    """A persistent id ('storage', type, key, location, count, …) as a storage."""
    if (
        not isinstance(pid, tuple)
        or len(pid) < 5
        or pid[0] != "storage"
        or not isinstance(pid[2], str)
        or type(pid[4]) is not int
        or not 0 <= pid[4] < 1 << 62
    ):
        raise CheckpointError(f"{path} refers to data in a form that is not read. {WAY_OUT}")
    dtype = storage_dtype(pid[1])
    if dtype is None:
        raise CheckpointError(
            f"{path} asks for a storage of type {pid[1]}, which is not read. {WAY_OUT}"
        )
    return Storage(pid[2], dtype, pid[4])


def _check_held(path: Path, storage: Storage, size: int) -> None:
    need = storage.count * ITEM_SIZES[storage.dtype]
    if need > size:
        raise CheckpointError(
            f"{path}: storage {storage.key!r} claims {storage.count} numbers ({need} bytes) but "
            f"{size} bytes are there. The file is damaged or was made to mislead."
        )


def open_zip(path: Path) -> TorchFile:
    """A torch zip archive: data.pkl beside one uncompressed entry per storage.

    Raises:
        CheckpointError: not a torch archive, compressed, overlapping, truncated, or too much asked.
    """
    size = path.stat().st_size
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
            if len(infos) > MAX_ENTRIES:
                raise CheckpointError(f"{path} has {len(infos)} entries; over {MAX_ENTRIES}.")
            by_name = {i.filename: i for i in infos}
            if any(n.endswith("constants.pkl") for n in by_name):
                raise CheckpointError(
                    f"{path} is a TorchScript archive: its model is code. {WAY_OUT}"
                )
            _refuse_bombs(path, infos, size)
            pickles = [n for n in by_name if n == "data.pkl" or n.endswith("/data.pkl")]
            if len(pickles) != 1:
                raise CheckpointError(
                    f"{path} is a zip file but no torch checkpoint ({len(pickles)} entries named "
                    "data.pkl; one is expected)."
                )
            prefix = pickles[0][: -len("data.pkl")]
            if by_name[pickles[0]].file_size > MAX_PICKLE_BYTES:
                raise CheckpointError(
                    f"{path}: its pickle is {by_name[pickles[0]].file_size} bytes long; weights "
                    f"need a few megabytes. {WAY_OUT}"
                )
    except zipfile.BadZipFile as error:
        raise CheckpointError(
            f"{path} is no readable zip archive ({error}): truncated or damaged. Copy it again."
        ) from None
    except (EOFError, OSError, NotImplementedError, RuntimeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} could not be read: {error}.") from None
    entries: dict[str, Entry] = {}
    with open(path, "rb") as f:

        def whole(info: zipfile.ZipInfo) -> bytes:
            f.seek(_data_offset(f, path, info, size))
            return f.read(info.file_size)

        data = whole(by_name[pickles[0]])
        # torch can be told to leave the checksums out; they then fit no entry.
        checked = zlib.crc32(data) == by_name[pickles[0]].CRC
        order = by_name.get(f"{prefix}byteorder")
        big = order is not None and order.file_size < 16 and whole(order) == b"big"

        def persistent(pid: Any) -> Storage:
            storage = _storage(pid, path)
            info = by_name.get(f"{prefix}data/{storage.key}")
            if info is None:
                raise CheckpointError(
                    f"{path} refers to the storage {storage.key!r:.80}, which the archive does not "
                    "hold. It is damaged, or was made to mislead."
                )
            _check_held(path, storage, info.file_size)
            entries[storage.key] = Entry(
                _data_offset(f, path, info, size), info.file_size, info.CRC if checked else None
            )
            return storage

        parsed = parse(data, source=str(path), persistent=persistent)
    return TorchFile(path, parsed.value, parsed.names, entries, big)


def _refuse_bombs(path: Path, infos: Iterable[zipfile.ZipInfo], size: int) -> None:
    """torch stores entries as they are; anything that grows when read is not from torch."""
    total = 0
    for info in infos:
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise CheckpointError(
                f"{path}: the entry {info.filename!r:.80} is compressed ({info.compress_size} bytes "
                f"become {info.file_size}). torch never compresses; unzip it and zip it again "
                "without compression (zip -0), or save the checkpoint again."
            )
        if info.flag_bits & 0x1:
            raise CheckpointError(f"{path}: the entry {info.filename!r:.80} is encrypted.")
        total += info.file_size
    if total > size:
        raise CheckpointError(
            f"{path}: its entries add up to {total} bytes but the file has {size}: they overlap."
        )


def _data_offset(f: BinaryIO, path: Path, info: zipfile.ZipInfo, size: int) -> int:
    """First byte of an entry's data, behind its local header."""
    f.seek(info.header_offset)
    header = f.read(30)
    if len(header) != 30 or header[:4] != b"PK\x03\x04":
        raise CheckpointError(f"{path}: the entry {info.filename!r:.80} has no header; damaged.")
    name_length, extra_length = struct.unpack("<HH", header[26:30])
    offset = info.header_offset + 30 + name_length + extra_length
    if offset + info.file_size > size:
        raise CheckpointError(
            f"{path}: the entry {info.filename!r:.80} reaches beyond the end of the file; truncated."
        )
    return offset


def open_legacy(path: Path) -> TorchFile:
    """The format before torch 1.6: five pickles, then the storages one after the other.

    Raises:
        CheckpointError: another format, truncated, or the stream asks for what is not read.
    """
    size = path.stat().st_size
    with open(path, "rb") as f:
        data = f.read(min(size, MAX_PICKLE_BYTES))
    magic = parse(data, source=str(path))
    if magic.value != LEGACY_MAGIC:
        raise CheckpointError(
            f"{path} is a pickle but no torch file: it does not begin with torch's number. "
            f"{WAY_OUT}"
        )
    version = parse(data, source=str(path), start=magic.end)
    system = parse(data, source=str(path), start=version.end)
    little = not isinstance(system.value, dict) or system.value.get("little_endian") is not False
    storages: dict[str, Storage] = {}

    def persistent(pid: Any) -> Any:
        if isinstance(pid, tuple) and len(pid) == 4 and pid[0] == "module":
            # A class with its source text beside it; the text is never looked at.
            return pid[1]
        if isinstance(pid, tuple) and len(pid) > 5 and pid[5] is not None:
            raise CheckpointError(f"{path} shares a storage by view, which is not read. {WAY_OUT}")
        storage = _storage(pid, path)
        return storages.setdefault(storage.key, storage)

    body = parse(data, source=str(path), persistent=persistent, start=system.end)
    keys = parse(data, source=str(path), start=body.end)
    if not isinstance(keys.value, list) or any(not isinstance(k, str) for k in keys.value):
        raise CheckpointError(f"{path} lists its storages in a form that is not read. {WAY_OUT}")
    entries: dict[str, Entry] = {}
    offset = keys.end
    with open(path, "rb") as f:
        for key in keys.value:
            f.seek(offset)
            word = f.read(8)
            count = int.from_bytes(word, "little" if little else "big", signed=True)
            known = storages.get(key)
            if len(word) != 8 or known is None or count != known.count:
                raise CheckpointError(
                    f"{path}: storage {key!r:.80} is missing or of another length than announced. "
                    "The file is truncated or damaged; copy it again."
                )
            entries[key] = Entry(offset + 8, count * ITEM_SIZES[known.dtype])
            offset += 8 + entries[key].size
            if offset > size:
                raise CheckpointError(
                    f"{path} ends inside storage {key!r:.80}: it has {size} bytes and {offset} are "
                    "announced. The file is truncated; copy it again."
                )
    missing = set(storages) - set(entries)
    if missing:
        raise CheckpointError(f"{path} does not hold the storage {sorted(missing)[0]!r:.80}.")
    return TorchFile(path, body.value, body.names, entries, not little)


def open_torch(path: str | Path) -> TorchFile:
    """A ``.pt``, ``.ckpt`` or ``.pth`` file of either format, no code run and no tensor read yet.

    Raises:
        CheckpointError: missing, not a torch file, damaged, or it asks for more than tensors and
            plain containers; the message names the file and what it asked for.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"{path} is not a file.")
    if path.stat().st_size == 0:
        raise CheckpointError(f"{path} is empty.")
    with open(path, "rb") as f:
        head = f.read(4)
    if head == b"PK\x03\x04":
        return open_zip(path)
    if head[:1] == b"\x80":
        return open_legacy(path)
    lfs = " It looks like a Git LFS pointer: fetch the real file with `git lfs pull`."
    raise CheckpointError(
        f"{path} is no torch file (it begins with {head!r}).{lfs if head == b'vers' else ''}"
    )
