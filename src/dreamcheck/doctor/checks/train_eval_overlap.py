"""Are the evaluation episodes among the training episodes?"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from dreamcheck.data.episodes import Episodes
from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.subject import Subject
from dreamcheck.errors import Abstention

WINDOW = 5
NEAR = 1e-3
"""Of a column's spread: what rounding to half precision or another unit leaves of a copy."""


class TrainEvalOverlap:
    """Windows of states and actions that occur in both sets, exactly or nearly.

    A window is its first state and the five actions that leave it.
    """

    name = "train_eval_overlap"
    title = "Evaluation episodes are not training episodes"
    group = "data"
    needs: tuple[str, ...] = ("episodes", "train")

    def examine(self, subject: Subject) -> Finding:
        """Share of evaluation windows with a near copy among the training windows."""
        assert subject.episodes is not None and subject.train is not None
        if subject.episodes is subject.train:
            share, exact, n, count = 1.0, 1.0, 0, len(subject.episodes.lengths)
            evidence = ["both are the same object"]
        else:
            share, exact, n, count, evidence = self._compare(subject.episodes, subject.train)
        threshold = subject.thresholds.get(self.name, "share")
        bad = share > threshold.value
        return finding(
            self,
            Verdict.WRONG if bad else Verdict.FINE,
            measured={
                "share": (share, "share of evaluation windows"),
                "exact": (exact, "share of evaluation windows, equal to the last bit"),
                "episodes": (count, "evaluation episodes with a copy"),
            },
            limit=(max(threshold.value, 1 / max(n, 1)), "share of evaluation windows"),
            threshold=threshold,
            evidence=evidence,
            fix="evaluate on episodes that no split of the training data holds, split by episode, "
            "or say that rates are in-sample" if bad else "",
        )  # fmt: skip

    def _compare(self, held: Episodes, train: Episodes) -> tuple[float, float, int, int, list[str]]:
        mine, owner = _windows(held)
        theirs, source = _windows(train)
        if mine.shape[1] != theirs.shape[1]:
            raise Abstention(
                f"windows have {mine.shape[1]} and {theirs.shape[1]} numbers: the two data sets "
                "hold other columns or action widths and cannot be compared."
            )
        spread = theirs.std(axis=0)
        spread = np.where(spread > 1e-12, spread, 1.0)
        distance, index = cKDTree(theirs / spread).query(mine / spread, p=np.inf, workers=1)
        # A window of resting or saturated actions alone is no copy: its state must agree as well,
        # which the maximum norm over all numbers asks for.
        hit = distance < NEAR
        exact = distance == 0
        evidence = [f"{len(mine)} evaluation windows against {len(theirs)} training windows"]
        if hit.any():
            i = int(np.flatnonzero(hit)[0])
            evidence.append(
                f"evaluation episode {owner[i]} has a window of training episode {source[index[i]]}"
            )
        copied = len(set(owner[hit].tolist()))
        return float(hit.mean()), float(exact.mean()), len(mine), copied, evidence


def _windows(episodes: Episodes, *, most: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """State and five actions of every window [N, S + 5 A], and its episode [N].

    Raises:
        Abstention: no episode holds five steps.
    """
    rows, owner = [], []
    lengths = np.asarray(episodes.lengths)
    for e in range(min(len(lengths), most)):
        actions = np.asarray(episodes.actions(e), np.float64)
        state = np.asarray(episodes.state(e), np.float64)
        if state.shape[1] == 0:
            raise Abstention("without state columns chance matches cannot be told from copies.")
        n = len(actions) - WINDOW
        if n < 1:
            continue
        blocks = [actions[i : i + n] for i in range(WINDOW)]
        rows.append(np.concatenate([state[:n], *blocks], axis=1))
        owner.append(np.full(n, e))
    if not rows:
        raise Abstention(f"no episode holds {WINDOW} steps.")
    flat, names = np.concatenate(rows), np.concatenate(owner)
    good = np.isfinite(flat).all(axis=1)
    if not good.any():
        raise Abstention("no window is complete.")
    return flat[good], names[good]


CHECK = TrainEvalOverlap()
