"""A model of any framework under Dreamcheck, with no adapter: questions in, answers out.

    python own_model_torch.py    # writes dots.npz; your own recording does as well
    dreamcheck export-queries dots.npz --out questions --frameskip 1 --history 1
    python own_model_any_framework.py questions/queries.npz answers.npz
    dreamcheck import-answers questions answers.npz

This script needs NumPy only and knows nothing of Dreamcheck. Put JAX, TensorFlow, a compiled
binary or a remote service where ``encode`` and ``predict`` are.
"""

from __future__ import annotations

import sys

import numpy as np

PIXELS_PER_UNIT_OF_ACTION = 1.5


def encode(frames: np.ndarray) -> np.ndarray:
    """uint8 [N, 3, H, W] -> latents [N, 2]: where the brightness lies, in pixels."""
    light = frames[:, 0].astype(np.float64)
    total = light.sum(axis=(1, 2))
    x = (light.sum(axis=1) * np.arange(light.shape[2])).sum(axis=1) / total
    y = (light.sum(axis=2) * np.arange(light.shape[1])).sum(axis=1) / total
    return np.stack([x, y], axis=1).astype(np.float32)


def predict(latents: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """[Q, h, 2] observed, [Q, (h + K - 1) * frameskip, 2] raw -> [Q, K, 2] that follow."""
    future = actions[:, (latents.shape[1] - 1) :]
    return (latents[:, -1:] + PIXELS_PER_UNIT_OF_ACTION * np.cumsum(future, axis=1)).astype(
        np.float32
    )


def main(questions: str, answers: str) -> None:
    """Read the questions, answer them, write the answers."""
    with np.load(questions) as q:
        frames, history, actions = q["frames"], q["history"], q["actions"]
        frameskip, digest = int(q["frameskip"]), q["digest"]
    latents = encode(frames)
    # One block per model frame: this model adds up the actions between two of them.
    blocks = actions.reshape(len(actions), -1, frameskip, actions.shape[2]).sum(axis=2)
    np.savez(
        answers, latents=latents, predictions=predict(latents[history], blocks), queries=digest
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
