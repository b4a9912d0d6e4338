"""Were the action statistics fitted on data like these?"""

from __future__ import annotations

import numpy as np

from dreamcheck.data.episodes import Episodes
from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.forecasting import contest, declared, drive
from dreamcheck.doctor.subject import Subject

MOST_EPISODES = 200


class ActionScaler:
    """The conventions' action mean and deviation against the data's own, and which predict better.

    Held-out data of another policy differ legitimately, so a difference alone is a warning; it is
    wrong when the training data differ, or when the data's own statistics predict better.
    """

    name = "action_scaler"
    title = "The action statistics belong to these data"
    group = "model"
    needs = ("model", "episodes")

    def examine(self, subject: Subject) -> Finding:
        """Largest difference of a mean (in deviations) or log ratio of deviations."""
        assert subject.model is not None
        c = subject.model.conventions
        data = subject.train if subject.train is not None else subject.episodes
        assert data is not None
        most = subject.thresholds.get(self.name, "difference")
        margin = subject.thresholds.get(self.name, "margin")
        mean, std, noise = _statistics(data, subject)
        shift = np.abs(np.asarray(c.action_mean) - mean) / std
        stretch = np.abs(np.log(np.asarray(c.action_std) / std))
        worst = float(max(shift.max(), stretch.max()))
        limit = max(noise, most.value)
        differs = worst > limit
        evidence = [
            f"declared mean {_text(c.action_mean)}, data {_text(mean)}",
            f"declared deviation {_text(c.action_std)}, data {_text(std)}",
        ]
        better = False
        if differs and subject.has("frames"):
            own = c.model_copy(
                update={"action_mean": tuple(mean.tolist()), "action_std": tuple(std.tolist())}
            )
            sample = subject.sample
            result = contest(
                declared(subject),
                {"the data's own": drive(subject, sample.latents, own.blocks(sample.actions))},
                margin,
            )
            better = result.best is not None
            evidence += result.lines()
        wrong = differs and (better or subject.train is not None)
        verdict = Verdict.WRONG if wrong else Verdict.WARN if differs else Verdict.FINE
        return finding(
            self,
            verdict,
            measured={
                "difference": (worst, "deviations, or log ratio of deviations"),
            },
            limit=(limit, "deviations, or log ratio of deviations"),
            threshold=most,
            evidence=evidence,
            fix="keep the training data's statistics with the checkpoint (NaN rows left out) and "
            "drive with them; a scaler refitted on the evaluation file is another one"
            if differs else "",
        )  # fmt: skip


def _statistics(data: Episodes, subject: Subject) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean, deviation per dimension, and three standard errors over episodes of the worst one."""
    n = len(data.lengths)
    chosen = np.sort(subject.rng("scaler").permutation(n)[:MOST_EPISODES])
    per = []
    for e in chosen.tolist():
        a = np.asarray(data.actions(e), dtype=np.float64)
        a = a[~np.isnan(a).any(axis=1)]
        if len(a):
            per.append((len(a), a.mean(axis=0), (a**2).mean(axis=0)))
    w = np.array([p[0] for p in per], dtype=np.float64)
    means, squares = np.stack([p[1] for p in per]), np.stack([p[2] for p in per])
    mean, square = np.average(means, axis=0, weights=w), np.average(squares, axis=0, weights=w)
    std = np.sqrt(np.maximum(square - mean**2, 0))
    std = np.where(std < 1e-8, 1.0, std)
    if len(per) < 3:
        return mean, std, float("inf")
    root = np.sqrt(len(per))
    of_mean = means.std(axis=0, ddof=1) / std / root
    of_std = squares.std(axis=0, ddof=1) / (2 * std**2) / root
    return mean, std, 3 * float(max(of_mean.max(), of_std.max()))


def _text(values: object) -> str:
    return ", ".join(f"{v:.3g}" for v in np.asarray(values))


CHECK = ActionScaler()
