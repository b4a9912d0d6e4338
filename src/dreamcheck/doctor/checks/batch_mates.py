"""Does a frame's latent or prediction depend on what else is in the batch?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import torch

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.subject import Subject
from dreamcheck.models.protocol import HasModule
from dreamcheck.training.batchnorm import in_mode

ROWS = 64


class BatchMates:
    """Half of a batch is exchanged; the other half's latents and predictions must stay.

    The model is called as it was handed over, in its own mode: that is what other code does.
    """

    name = "batch_mates"
    title = "A row does not depend on its batch-mates"
    group = "model"
    needs = ("model",)

    def examine(self, subject: Subject) -> Finding:
        """Wrong when a row moves by more than float noise, relative to the latents' spread."""
        model = subject.model
        assert model is not None
        limit = subject.thresholds.get(self.name, "share")
        pixels = self._frames(subject)
        half = len(pixels) // 2
        h = model.history_max
        with torch.no_grad(), _as_handed_over(subject):
            given = torch.from_numpy(pixels).to(model.device)
            full = model.encode({"pixels": given})
            mixed = given.clone()
            mixed[half:] = given[:1]
            encoded = (model.encode({"pixels": mixed})[:half] - full[:half]).abs().max()
            spread = full.flatten(1).std(dim=0).mean().clamp_min(1e-12)
            window = torch.stack([full.roll(-i, dims=0) for i in range(h)], dim=1)
            raw = subject.rng("mates").standard_normal(
                (len(full), h, model.conventions.action_width)
            )
            actions = model.embed_actions(torch.from_numpy(raw.astype(np.float32)).to(model.device))
            base = model.predict(window, actions)
            window, actions = window.clone(), actions.clone()
            window[half:], actions[half:] = window[:1], actions[:1]
            predicted = (model.predict(window, actions)[:half] - base[:half]).abs().max()
        share = float(max(encoded, predicted) / spread)
        bad = not share <= limit.value
        return finding(
            self,
            Verdict.WRONG if bad else Verdict.FINE,
            measured={
                "share": (share, "of the latents' spread"),
                "encode": (float(encoded / spread), "of the latents' spread"),
                "predict": (float(predicted / spread), "of the latents' spread"),
            },
            limit=(limit.value, "of the latents' spread"),
            threshold=limit,
            evidence=[
                f"exchanging {half} of {2 * half} rows moves the others by up to {share:.3g} of "
                "the latents' spread"
            ],
            fix="call module.eval(): statistics over the batch are in use, so a plan depends on "
            "its neighbours" if bad else "",
        )  # fmt: skip

    @staticmethod
    def _frames(subject: Subject) -> np.ndarray:
        if subject.has("frames"):
            pixels = subject.sample.pixels
            return np.ascontiguousarray(pixels.reshape(-1, *pixels.shape[2:])[:ROWS])
        return subject.noise_frames(ROWS)


def _as_handed_over(subject: Subject) -> contextlib.AbstractContextManager[None]:
    """The model in its own modes, every buffer restored afterwards."""
    model = subject.model
    if not isinstance(model, HasModule):
        return contextlib.nullcontext()
    return _kept(model.module)


@contextlib.contextmanager
def _kept(module: torch.nn.Module) -> Iterator[None]:
    modes = {name: m.training for name, m in module.named_modules()}
    with in_mode(module, "eval"):
        for name, m in module.named_modules():
            m.training = modes[name]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            yield


CHECK = BatchMates()
