"""Does the evaluated policy's first action follow the recorded action it cannot know?"""

from __future__ import annotations

import numpy as np
from scipy import stats as sps

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.results import ResultSet
from dreamcheck.doctor.subject import Subject
from dreamcheck.errors import Abstention

LEAST = 40
DRAWS = 1999


class HistoryLeak:
    """Agreement of the policy's first action with the recorded one, beyond what the start and goal
    explain.

    A policy that starts at frame t of a recorded episode knows frames up to t and the action before
    it, never the action that leaves t. What state and goal explain is taken out of both actions;
    the agreement left is compared with that of the recorded actions one row before and after, in
    random sign flips over starts. Two policies with the same habits agree with all three rows, a
    leak with the one.
    """

    name = "history_leak"
    title = "The policy does not know the recorded action"
    group = "results"
    needs: tuple[str, ...] = ("results", "state")

    def examine(self, subject: Subject) -> Finding:
        """Partial correlation of the two first actions, its p, and the share of exact copies."""
        results: ResultSet = subject.results
        played, recorded, beside, known = self._rows(subject, results)
        n = len(played)
        copies = float(np.mean(np.abs(played - recorded).max(axis=1) < 1e-6))
        a = _residual(known, played)
        own = (a * _residual(known, recorded)).mean(axis=1)
        near = np.mean([(a * _residual(known, b)).mean(axis=1) for b in beside], axis=0)
        ahead = own - near  # [starts]
        r = float(ahead.mean())
        signs = subject.rng(self.name).choice([-1.0, 1.0], (DRAWS, n))
        p = float((1 + ((signs @ ahead) / n >= r).sum()) / (DRAWS + 1))
        threshold = subject.thresholds.get(self.name, "p")
        # Whether the residuals agree beyond chance; copies may also come from saturated actions.
        bad = p < threshold.value
        limit = float(sps.norm.isf(threshold.value) * ahead.std(ddof=1) / np.sqrt(n))
        return finding(
            self,
            Verdict.WRONG if bad else Verdict.FINE,
            measured={
                "leak": (r, "partial correlation"),
                "agreement": (float(own.mean()), "partial correlation"),
                "p": (p, "p"),
                "copies": (copies, "share of equal actions"),
                "starts": (n, "starts"),
            },
            limit=(limit, "partial correlation"),
            threshold=threshold,
            evidence=[
                f"{n} first actions against the recorded action of the same row, state and "
                f"goal held fixed: {own.mean():.3f}, with its neighbours {near.mean():.3f}"
            ],
            fix="begin an evaluation with the previous action (zero at a reset), never with the "
            "action stored in the start row" if bad else "",
        )  # fmt: skip

    def _rows(
        self, subject: Subject, results: ResultSet
    ) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray], np.ndarray]:
        """First actions played [N, A], recorded, recorded a row before and after; what is known."""
        assert subject.episodes is not None
        data = subject.episodes
        played, recorded, around, known = [], [], [], []
        seen: set[tuple[object, ...]] = set()
        for row in results.rows:
            if row.action is None or row.start is None or row.situation in seen:
                continue
            e, t = int(row.episode), row.start
            if not 0 <= e < len(data.lengths) or not 0 < t < int(data.lengths[e]) - 2:
                continue
            seen.add(row.situation)
            state = np.asarray(data.state(e), np.float64)
            actions = np.asarray(data.actions(e), np.float64)
            goal = state[min(t + (row.gap or len(state)), len(state) - 1)]
            if not np.isfinite(actions[t - 1 : t + 2]).all():
                continue
            if len(row.action) != actions.shape[1]:
                raise Abstention(
                    f"the policy's first action has {len(row.action)} numbers, the recorded one "
                    f"{actions.shape[1]}."
                )
            way = goal - state[t]
            way = way / max(float(np.linalg.norm(way)), 1e-9)
            played.append(row.action)
            recorded.append(actions[t])
            around.append(actions[[t - 1, t + 1]])
            known.append(np.concatenate([state[t], goal, way]))
        if len(played) < LEAST:
            raise Abstention(
                f"{len(played)} results name a recorded start after frame 0 and their first action (`action`); "
                f"{LEAST} are needed."
            )
        pairs = np.array(around)
        return (
            np.array(played),
            np.array(recorded),
            (pairs[:, 0], pairs[:, 1]),
            np.array(known),
        )


def _residual(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What a ridge on standardised features leaves of y, standardised."""
    x = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-9)
    x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    w = np.linalg.solve(x.T @ x + 1e-3 * np.eye(x.shape[1]), x.T @ y)
    rest = y - x @ w
    return rest / (rest.std(axis=0) + 1e-9)


CHECK = HistoryLeak()
