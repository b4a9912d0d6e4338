"""Has the encoder collapsed: do different frames get different latents?"""

from __future__ import annotations

import numpy as np
import torch

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.subject import Subject
from dreamcheck.training.measures import effective_rank


class Collapse:
    """Mean spread of the latents, their effective rank, and dimensions that never move (R4, R5).

    From the sample, or from the latents kept beside the checkpoint when there are no data.
    """

    name = "collapse"
    title = "The embedding has not collapsed"
    group = "model"
    needs = ("model",)

    def examine(self, subject: Subject) -> Finding:
        """Wrong under the spread or rank threshold; a warning when many dimensions are dead."""
        model = subject.model
        assert model is not None
        least = subject.thresholds.get(self.name, "spread")
        rank_least = subject.thresholds.get(self.name, "rank")
        dead_most = subject.thresholds.get(self.name, "dead")
        if subject.has("frames"):
            z, source = subject.sample.latents.flatten(0, 1).flatten(1), "the held-out sample"
        elif subject.support is not None:
            z = torch.from_numpy(np.asarray(subject.support.latents)).float().flatten(1)
            source = "the training reference beside the checkpoint"
        else:
            return finding(
                self, Verdict.SKIPPED,
                needs="recorded episodes (--data), a simulator (--task), or support.json",
            )  # fmt: skip
        if not torch.isfinite(z).all():
            return finding(
                self, Verdict.CANNOT_TELL, evidence=["latents are not finite; see `model_nan`"]
            )
        std = z.std(dim=0)
        spread, width = float(std.mean()), z.shape[1]
        rank = effective_rank(z) if width > 1 and spread > 0 else 1.0
        dead = float((std < 1e-3 * std.max().clamp_min(1e-12)).float().mean())
        flat = spread < least.value
        thin = width > 1 and rank < rank_least.value
        warn = dead > dead_most.value
        return finding(
            self,
            Verdict.WRONG if flat or thin else Verdict.WARN if warn else Verdict.FINE,
            # The headline is the number that the threshold decided.
            measured={
                **({"spread": (spread, "latent units")} if flat else {}),
                "rank": (rank, f"effective dimensions of {width}"),
                "spread": (spread, "latent units"),
                "dead": (dead, "of the dimensions"),
            },
            limit=(least.value, "latent units")
            if flat
            else (rank_least.value, "effective dimensions"),
            threshold=least if flat else rank_least,
            evidence=[f"{len(z)} frames of {source}: mean deviation {spread:.3g}, effective rank "
                      f"{rank:.2f} of {width}, {dead:.0%} of the dimensions never move"],
            fix="the regulariser is too weak or not wired in; a collapsed encoder passes every "
            "absolute test of distance" if flat or thin or warn else "",
        )  # fmt: skip


CHECK = Collapse()
