"""Questions for a model of any framework: frames and actions in a plain NPZ file.

A folder of three files. ``queries.npz`` is all that a script needs; ``truth.npz`` holds what
followed and is for scoring only; ``manifest.json`` says in words and digests what both are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dreamcheck.data.episodes import Episodes
from dreamcheck.data.summary import has_pixels
from dreamcheck.data.windows import Windows
from dreamcheck.digest import digest_arrays
from dreamcheck.errors import EvidenceError, UsageError
from dreamcheck.streams import stream

FORMAT = "dreamcheck-queries"
FORMAT_VERSION = 1
QUERIES_FILE, TRUTH_FILE, MANIFEST_FILE = "queries.npz", "truth.npz", "manifest.json"

HOW_TO_ANSWER = (
    "Write answers.npz with three arrays. latents: float32 [F, ...], one latent per frame of "
    "queries.npz, in order. predictions: float32 [Q, K, ...], the K latents that follow the last "
    "observed frame of every row under its actions; predictions[q, k] belongs k + 1 model frames "
    "after history[q, -1]. queries: the text of the array `digest` of queries.npz, copied. Actions "
    "are raw, in environment units; scale them as in training. actions[q, i * frameskip : (i + 1) "
    "* frameskip] leave the i-th model frame of the row, history frames first."
)


@dataclass(frozen=True)
class Queries:
    """An exported set of questions, with the truth.

    frames: uint8 [F, 3, H, W]. history: int64 [Q, h] into frames, oldest first. actions: float64
    [Q, (h + K - 1) * frameskip, A] raw. future: int64 [Q, K] into frames. control: bool [Q], rows
    that were given another episode's actions. episodes: int64 [Q]. states: float64 [F, S], NaN
    where unknown. frame_episodes: int64 [F].
    """

    manifest: Mapping[str, Any]
    frames: np.ndarray
    history: np.ndarray
    actions: np.ndarray
    future: np.ndarray
    control: np.ndarray
    episodes: np.ndarray
    states: np.ndarray
    frame_episodes: np.ndarray

    @property
    def digest(self) -> str:
        """SHA-256 of frames, history and actions."""
        return str(self.manifest["queries_sha256"])


def _write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    new = path.with_name(path.name + ".new")
    with open(new, "wb") as f:
        np.savez_compressed(f, **arrays)  # type: ignore[arg-type]
    os.replace(new, path)


def export_queries(
    episodes: Episodes,
    out: str | Path,
    *,
    frameskip: int,
    history: int = 3,
    horizon: int = 5,
    windows: int = 64,
    seed: int = 0,
) -> Queries:
    """Write a folder of questions cut from recorded episodes.

    Half as many rows again are controls: the same frames with another episode's actions, mixed in
    without a mark. A model that follows actions does worse on them.

    Args:
        out: folder to write; it must not hold questions already.
        frameskip: environment steps between two model frames.
        history: observed frames per row; horizon: forecast frames.
        windows: rows drawn without replacement, beside the controls.

    Raises:
        UsageError: no pictures, too short episodes, or a folder in use.
    """
    out = Path(out)
    if (out / MANIFEST_FILE).exists():
        raise UsageError(f"{out} already holds questions; answers refer to them. Choose another.")
    if not has_pixels(episodes):
        raise UsageError("these data hold no pictures, and a model is asked about pictures.")
    clean = [
        e
        for e in range(len(episodes.lengths))
        if not np.isnan(np.asarray(episodes.actions(e))[:-1]).any()
    ]
    if not clean:
        raise UsageError("every episode has a NaN action inside; nothing can be asked about them.")
    cut = Windows(episodes, num_frames=history + horizon, frameskip=frameskip, subset=clean)
    rng = stream(seed, "export queries", len(cut))
    index = np.sort(rng.choice(len(cut), size=min(windows, len(cut)), replace=False))
    clips = cut.take(index, pixels=False)
    rows, columns = len(index), history + horizon
    # Every frame once: rows of one episode share frames.
    places = np.stack(
        [
            np.repeat(clips.episodes[:, None], columns, axis=1),
            clips.bases[:, None] + frameskip * np.arange(columns),
        ],
        axis=-1,
    ).reshape(-1, 2)
    unique, inverse = np.unique(places, axis=0, return_inverse=True)
    # In random order, so that the order of frames does not tell which one follows.
    order = rng.permutation(len(unique))
    unique = unique[order]
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    numbers = position[np.asarray(inverse).reshape(-1)].reshape(rows, columns)
    frames = np.empty((len(unique), *episodes.frames(int(unique[0, 0]), [0]).shape[1:]), np.uint8)
    states = np.full((len(unique), len(episodes.columns)), np.nan)
    for e in np.unique(unique[:, 0]):
        here = np.flatnonzero(unique[:, 0] == e)
        ts = unique[here, 1]
        frames[here] = episodes.frames(int(e), ts)
        if episodes.columns:
            states[here] = np.asarray(episodes.state(int(e)), dtype=np.float64)[ts]
    several = len(np.unique(clips.episodes)) > 1
    control_rows = np.arange(rows // 2 if several else 0)
    donors = (control_rows + rows // 2) % rows
    history_all = np.concatenate([numbers[:, :history], numbers[control_rows, :history]])
    future_all = np.concatenate([numbers[:, history:], numbers[control_rows, history:]])
    actions = np.concatenate([clips.actions, clips.actions[donors]])
    control = np.concatenate([np.zeros(rows, bool), np.ones(len(donors), bool)])
    owners = np.concatenate([clips.episodes, clips.episodes[control_rows]])
    shuffle = rng.permutation(len(control))
    asked = {
        "frames": frames,
        "history": history_all[shuffle],
        "actions": actions[shuffle],
    }
    name = digest_arrays(asked)
    manifest = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "queries_sha256": name,
        "data": str(getattr(episodes, "source", type(episodes).__name__)),
        "data_sha256": episodes.digest,
        "frameskip": frameskip,
        "history": history,
        "horizon": horizon,
        "action_dim": int(actions.shape[2]),
        "rows": len(control),
        "frames": len(frames),
        "columns": [[c.name, c.unit] for c in episodes.columns],
        "seed": seed,
        "how_to_answer": HOW_TO_ANSWER,
    }
    out.mkdir(parents=True, exist_ok=True)
    truth = {
        "future": future_all[shuffle],
        "control": control[shuffle],
        "episodes": owners[shuffle],
        "states": states,
        "frame_episodes": unique[:, 0],
    }
    manifest["truth_sha256"] = digest_arrays(truth)
    _write_npz(
        out / QUERIES_FILE,
        {
            **asked,
            "frameskip": np.array(frameskip),
            "horizon": np.array(horizon),
            "digest": np.array(name),
        },
    )
    _write_npz(out / TRUTH_FILE, truth)
    # Last: a folder with a manifest is complete.
    (out / MANIFEST_FILE).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return read_queries(out)


def load_arrays(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Named arrays of an NPZ file, objects refused.

    Raises:
        UsageError: missing, unreadable, or without one of the names.
    """
    if not path.is_file():
        raise UsageError(f"{path} does not exist.")
    try:
        with np.load(path, allow_pickle=False) as z:
            missing = [n for n in names if n not in z.files]
            if missing:
                raise UsageError(
                    f"{path} lacks {', '.join(missing)}; it holds {', '.join(z.files)}."
                )
            return {n: z[n] for n in names}
    except (ValueError, OSError, EOFError, KeyError) as error:
        raise UsageError(
            f"{path} cannot be read as NPZ ({error}): truncated, or it holds Python objects, which "
            "are refused. Save plain arrays with numpy.savez."
        ) from None


def read_queries(folder: str | Path) -> Queries:
    """An exported folder, its digests checked.

    Raises:
        UsageError: no such folder, or another format version.
        EvidenceError: questions or truth were changed since they were written.
    """
    folder = Path(folder)
    path = folder / MANIFEST_FILE
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path} cannot be read ({error}); give the folder that `dreamcheck export-queries` "
            "wrote."
        ) from None
    if manifest.get("format") != FORMAT or manifest.get("format_version") != FORMAT_VERSION:
        raise UsageError(f"{path} is not of format {FORMAT} {FORMAT_VERSION}; export again.")
    asked = load_arrays(folder / QUERIES_FILE, ("frames", "history", "actions"))
    truth = load_arrays(
        folder / TRUTH_FILE, ("future", "control", "episodes", "states", "frame_episodes")
    )
    for what, arrays, key in (
        (QUERIES_FILE, asked, "queries_sha256"),
        (TRUTH_FILE, truth, "truth_sha256"),
    ):
        if digest_arrays(arrays) != manifest.get(key):
            raise EvidenceError(
                f"{folder / what} does not match the digest in its manifest: it was changed after "
                "it was exported. Export again; answers to a changed file cannot be scored."
            )
    return Queries(manifest=manifest, **asked, **truth)
