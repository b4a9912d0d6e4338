"""Was the reported run chosen after its outcome was seen?"""

from __future__ import annotations

import numpy as np
from scipy import integrate
from scipy import stats as sps

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.results import ResultSet, Row
from dreamcheck.doctor.subject import Subject
from dreamcheck.errors import Abstention

Run = tuple[str, int | None, str]
Runs = dict[Run, tuple[Row, ...]]


class SelectedResult:
    """One of several repeats, or the best of several epochs, reported as if it were the only one.

    The expected maximum of K equal runs is above their mean by E[max of K normals] standard
    errors: that is what the choice alone gives.
    """

    name = "selected_result"
    title = "The reported run was not picked by its outcome"
    group = "results"
    needs: tuple[str, ...] = ("results",)

    def examine(self, subject: Subject) -> Finding:
        """Expected optimism of the choice, and how far the reported rate lies above the mean."""
        results: ResultSet = subject.results
        threshold = subject.thresholds.get(self.name, "bias")
        runs = results.runs()
        reported = {k for k, rows in runs.items() if any(r.reported for r in rows)}
        rates = {k: float(np.mean([r.success for r in rows])) for k, rows in runs.items()}
        if not reported:
            raise Abstention("no row is marked as reported.")
        partial = [k for k, rows in runs.items() if 0 < sum(r.reported for r in rows) < len(rows)]
        k = len(runs)
        n = min(len(rows) for rows in runs.values())
        mean = float(np.mean(list(rates.values())))
        se = float(np.sqrt(max(mean * (1 - mean), 1e-9) / n))
        bias = expected_maximum(k) * se if len(reported) < k else 0.0
        ahead = float(np.mean([rates[r] for r in reported])) - mean
        others = [v for r, v in rates.items() if r not in reported]
        best = bool(others) and min(rates[r] for r in reported) >= max(others) and ahead > 0
        last = _is_last(runs, reported)
        evidence = [
            f"{k} runs of at least {n} episodes, {len(reported)} reported: "
            f"{', '.join(f'{rates[r]:.1%}' for r in sorted(reported, key=repr))}; mean of all "
            f"{mean:.1%}"
        ]
        verdict, fix = Verdict.FINE, ""
        picked = [k for k in partial if _better(runs[k])]
        if picked:
            verdict = Verdict.WRONG
            evidence.append(f"{picked[0]}: only part of its episodes is reported, the better part")
            fix = "report every episode that was evaluated"
        elif best and results.selection is None and not last:
            verdict = Verdict.WRONG if bias > threshold.value else Verdict.WARN
            fix = "report all runs, or choose on other episodes than those reported"
        elif best and results.selection is None and last:
            verdict = Verdict.CANNOT_TELL
            evidence.append("the reported run is the best and also the last: a fixed rule would do")
        elif results.selection is not None:
            evidence.append(f"chosen beforehand: {results.selection}")
        return finding(
            self,
            verdict,
            measured={
                "bias": (bias, "success rate"),
                "ahead": (ahead, "success rate"),
                "runs": (k, "runs"),
            },
            limit=(threshold.value, "success rate"),
            threshold=threshold,
            evidence=evidence,
            fix=fix,
        )


def expected_maximum(count: int) -> float:
    """E[max] of ``count`` independent standard normals: 0, 0.5642, 0.8463, 1.0294, ..."""
    if count < 2:
        return 0.0
    value, _ = integrate.quad(
        lambda x: x * count * sps.norm.pdf(x) * sps.norm.cdf(x) ** (count - 1), -8, 8
    )
    return float(value)


def _is_last(runs: Runs, reported: set[Run]) -> bool:
    epochs = [epoch for _, epoch, _ in runs if epoch is not None]
    if len(set(epochs)) < 2:
        return False
    return all(epoch == max(epochs) for _, epoch, _ in reported)


def _better(rows: tuple[Row, ...]) -> bool:
    """Whether the reported part of a run succeeds more than chance allows (exact, 1 in 1000)."""
    told = [r.success for r in rows if r.reported]
    rest = [r.success for r in rows if not r.reported]
    table = [[sum(told), len(told) - sum(told)], [sum(rest), len(rest) - sum(rest)]]
    return bool(sps.fisher_exact(table, alternative="greater").pvalue < 1e-3)


CHECK = SelectedResult()
