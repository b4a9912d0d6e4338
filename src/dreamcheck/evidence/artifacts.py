"""Large arrays and frames: files named by their content, written whole or not at all."""

from __future__ import annotations

import io
import os
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from dreamcheck.digest import sha256_bytes
from dreamcheck.errors import EvidenceError, UsageError
from dreamcheck.evidence.disk import telling_full

_REF = re.compile(r"[0-9a-f]{64}\.[a-z0-9]+\Z")
_EXT = re.compile(r"[a-z0-9]+\Z")


class Artifacts:
    """Files of a study under ``artifacts/ab/<sha256>.<extension>``.

    A reference is the file's name. Writing is idempotent, and durable before it returns: a record
    may refer to an artifact as soon as it has the reference.
    """

    def __init__(
        self, directory: Path, *, writable: bool = True, kept: Callable[[], str] = lambda: ""
    ) -> None:
        self.directory = directory / "artifacts"
        self._writable = writable
        self._kept = kept

    def put_bytes(self, data: bytes, ext: str) -> str:
        """Store bytes under their content's name; returns the reference.

        Raises:
            UsageError: a read-only store, or an extension that is not lower-case letters, digits.
            EvidenceError: a file of that name is there with other content.
            IncompleteError: the disk is full; nothing is left behind.
        """
        if not self._writable:
            raise UsageError("this store is open for reading; artifacts need Store.open().")
        if not _EXT.match(ext):
            raise UsageError(f"artifact extension {ext!r}: use lower-case letters and digits.")
        ref = f"{sha256_bytes(data)}.{ext}"
        path = self.path(ref)
        if path.exists():
            self.get(ref)  # an altered file must not pass for this one
            return ref
        with telling_full(self.directory, self._kept):
            self._write(path, data)
        return ref

    def put_arrays(self, arrays: Mapping[str, np.ndarray], *, compress: bool = False) -> str:
        """Store named arrays as one .npz; equal arrays give equal bytes, hence one reference.

        compress: smaller, but the bytes then depend on the zlib that wrote them, so the same
        arrays may get another reference on another machine.
        """
        return self.put_bytes(npz_bytes(arrays, compress=compress), "npz")

    def get(self, ref: str) -> bytes:
        """The bytes behind a reference.

        Raises:
            EvidenceError: the file is missing, or its content is not what its name says.
        """
        path = self.path(ref)
        try:
            data = path.read_bytes()
        except FileNotFoundError as e:
            raise EvidenceError(f"artifact {ref} is missing: {path} does not exist.") from e
        found = sha256_bytes(data)
        if found != ref.partition(".")[0]:
            raise EvidenceError(
                f"artifact {ref} is altered: its {len(data)} bytes have SHA-256 {found}. "
                "Restore the file from a copy, or measure again what refers to it."
            )
        return data

    def get_arrays(self, ref: str) -> dict[str, np.ndarray]:
        """The arrays behind a reference made by ``put_arrays``; pickled objects are refused."""
        with np.load(io.BytesIO(self.get(ref)), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}

    def path(self, ref: str) -> Path:
        """Where the file lies: for links from a report."""
        check_ref(ref)
        return self.directory / ref[:2] / ref

    def __contains__(self, ref: str) -> bool:
        return self.path(ref).exists()

    def _write(self, path: Path, data: bytes) -> None:
        waiting = self.directory / ".tmp"
        waiting.mkdir(parents=True, exist_ok=True)
        new_folder = not path.parent.exists()
        path.parent.mkdir(exist_ok=True)
        temporary = waiting / f"{path.name}.{os.getpid()}"
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
        if new_folder:
            sync_folder(self.directory)


def check_ref(ref: str) -> None:
    """Refuse what is not an artifact reference.

    Raises:
        UsageError: not "<64 hexadecimal digits>.<extension>".
    """
    if not isinstance(ref, str) or not _REF.match(ref):
        raise UsageError(
            f"artifact reference {ref!r} is not '<sha256>.<extension>': pass what put_bytes() or "
            "put_arrays() returned."
        )


def npz_bytes(arrays: Mapping[str, np.ndarray], *, compress: bool = False) -> bytes:
    """Named arrays as the bytes of an .npz: fixed order, dates and byte order.

    Raises:
        UsageError: an array of Python objects.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(arrays):
            array = np.asarray(arrays[name])
            if array.dtype.hasobject:
                raise UsageError(f"array {name!r} holds Python objects; artifacts hold numbers.")
            if array.dtype.byteorder == ">":
                array = array.astype(array.dtype.newbyteorder("<"))
            body = io.BytesIO()
            np.lib.format.write_array(
                body, np.asarray(array, order="C"), version=(1, 0), allow_pickle=False
            )
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
            archive.writestr(entry, body.getvalue())
    return buffer.getvalue()


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that a reader, or a crash, sees all of it or none."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename inside a folder durable, where the platform can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
