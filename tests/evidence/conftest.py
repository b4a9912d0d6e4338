"""Studies of these tests lie in memory where the machine offers it: they sync hundreds of times."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """A fresh directory, as pytest's own, on a memory file system if there is one."""
    if not (_MEMORY.is_dir() and os.access(_MEMORY, os.W_OK)):
        yield tmp_path
        return
    directory = Path(tempfile.mkdtemp(prefix="dreamcheck-", dir=_MEMORY))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)
