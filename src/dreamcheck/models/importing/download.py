"""Fetching a hub model, only ever when the user asks for it by name and with --download."""

from __future__ import annotations

import os
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from dreamcheck.errors import CheckpointError
from dreamcheck.models.importing.recognise import HUB_NAME, hub_folders

MAX_BYTES = 20 << 30
CANDIDATES = ("model.safetensors", "weights.safetensors", "weights.pt")


def _fetch(url: str, target: Path) -> bool:
    """One file, through a temporary name; False when the server has no such file."""
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as f:
                total = 0
                while piece := response.read(1 << 20):
                    total += len(piece)
                    if total > MAX_BYTES:
                        raise CheckpointError(f"{url} is over {MAX_BYTES} bytes; stopped.")
                    f.write(piece)
            os.replace(f.name, target)
    except urllib.error.HTTPError as error:
        if error.code in (401, 403, 404):
            return False
        raise CheckpointError(f"{url} could not be fetched: {error}.") from None
    except (urllib.error.URLError, OSError) as error:
        raise CheckpointError(
            f"{url} could not be fetched ({error}). Without a network, copy the model's config.json "
            "and weights into a folder and import that."
        ) from None
    return True


def download(name: str) -> Path:
    """config.json and weights of a hub model, into stable-worldmodel's local layout.

    The endpoint is HF_ENDPOINT or https://huggingface.co. Returns the folder.

    Raises:
        CheckpointError: not a hub name, not there, private, or the network failed.
    """
    if not HUB_NAME.match(name):
        raise CheckpointError(f"{name!r} is no hub name; one looks like user/model.")
    folder = hub_folders(name)[0]
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    base = f"{endpoint}/{name}/resolve/main"
    _fetch(f"{base}/config.json", folder / "config.json")
    for candidate in CANDIDATES:
        if _fetch(f"{base}/{candidate}", folder / candidate):
            return folder
    raise CheckpointError(
        f"{name} at {endpoint} has none of {', '.join(CANDIDATES)}, or is private. Download it with "
        "the hub's own client and give the folder."
    )
