"""Do repeats differ more, or less, than chance allows?"""

from __future__ import annotations

import numpy as np
from scipy import stats as sps

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.results import ResultSet
from dreamcheck.doctor.subject import Subject
from dreamcheck.errors import Abstention
from dreamcheck.streams import stream

DRAWS = 999


class HeterogeneousRepeats:
    """Pearson's chi-square of the repeats' success counts.

    On common episodes outcomes are permuted inside each episode, which is exact; otherwise the
    chi-square law is used. Repeats without any discordant episode are copies of one another.
    """

    name = "heterogeneous_repeats"
    title = "Repeats agree within their error"
    group = "results"
    needs: tuple[str, ...] = ("results",)

    def examine(self, subject: Subject) -> Finding:
        """p of the largest difference among repeats of one checkpoint and epoch."""
        results: ResultSet = subject.results
        groups: dict[tuple[str, int | None], list[np.ndarray]] = {}
        names: dict[tuple[str, int | None], list[list[tuple[object, ...]]]] = {}
        for (checkpoint, epoch, _), rows in results.runs().items():
            key = (checkpoint, epoch)
            ordered = sorted(rows, key=lambda r: repr(r.situation))
            groups.setdefault(key, []).append(np.array([r.success for r in ordered], float))
            names.setdefault(key, []).append([r.situation for r in ordered])
        tested = {k: v for k, v in groups.items() if len(v) > 1}
        if not tested:
            raise Abstention("no checkpoint was evaluated more than once at the same epoch.")
        # Several groups: the smallest p is held to the threshold divided by their number.
        p, key = min((self._p(groups[k], names[k], subject.seed), repr(k), k) for k in tested)[::2]
        p = min(1.0, p * len(tested))
        rates = [float(v.mean()) for v in groups[key]]
        copies = self._copies(groups[key], names[key])
        threshold = subject.thresholds.get(self.name, "p")
        bad = p < threshold.value
        n = int(min(len(v) for v in groups[key]))
        # Half-width of a repeat's rate at 99 %: a difference of two below it goes unseen.
        pooled = float(np.mean(rates))
        limit = 2.576 * float(np.sqrt(2 * pooled * (1 - pooled) / n))
        return finding(
            self,
            Verdict.WRONG if bad else Verdict.WARN if copies else Verdict.FINE,
            measured={
                "spread": (max(rates) - min(rates), "success rate"),
                "p": (p, "p"),
                "repeats": (len(rates), "repeats"),
                "copies": (copies, "identical pairs"),
            },
            limit=(limit, "success rate"),
            threshold=threshold,
            evidence=[
                f"{key[0]}: rates {', '.join(f'{r:.1%}' for r in rates)} over {n} episodes each",
                *([f"{copies} pair(s) of repeats have the same outcome on every episode"]
                  if copies else []),
            ],
            fix="report every repeat and the spread among them; find what else differs" if bad
            else "give each repeat its own planner seed, or call them one" if copies else "",
        )  # fmt: skip

    def _copies(self, outcomes: list[np.ndarray], names: list[list[tuple[object, ...]]]) -> int:
        """Pairs with equal outcomes where that is a surprise (probability below 1 in 1000)."""
        found = 0
        for i, a in enumerate(outcomes):
            for j, b in enumerate(outcomes[:i]):
                if names[i] != names[j] or not np.array_equal(a, b):
                    continue
                k = int(a.sum())
                # Independent outcomes at this rate agree everywhere by chance that rarely; a
                # deterministic planner does so always, which is what the finding says.
                chance = (k / len(a)) ** 2 + (1 - k / len(a)) ** 2
                found += chance ** len(a) < 1e-3
        return found

    def _p(
        self, outcomes: list[np.ndarray], names: list[list[tuple[object, ...]]], seed: int
    ) -> float:
        if all(n == names[0] for n in names):
            table = np.stack(outcomes)  # [R, n]
            return _permuted(table, seed)
        wins = np.array([o.sum() for o in outcomes])
        total = np.array([len(o) for o in outcomes])
        rate = wins.sum() / total.sum()
        if rate in (0.0, 1.0):
            return 1.0
        chi = float((((wins - total * rate) ** 2) / (total * rate * (1 - rate))).sum())
        return float(sps.chi2.sf(chi, len(wins) - 1))


def _permuted(table: np.ndarray, seed: int) -> float:
    """Exact test by permuting repeats inside each episode; [repeats, episodes]."""
    rng = stream(seed, "doctor", "heterogeneous_repeats")
    observed = table.sum(axis=1).var()
    drawn = np.array([rng.permuted(table, axis=0).sum(axis=1).var() for _ in range(DRAWS)])
    return float((1 + (drawn >= observed - 1e-9).sum()) / (DRAWS + 1))


CHECK = HeterogeneousRepeats()
