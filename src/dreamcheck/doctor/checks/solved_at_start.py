"""How many starts already satisfy the success rule?"""

from __future__ import annotations

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.subject import Subject
from dreamcheck.errors import Abstention, UsageError
from dreamcheck.planning.admission import audit
from dreamcheck.planning.recorded import Recorded
from dreamcheck.stats import wilson_interval
from dreamcheck.tasks.criteria import load_criteria

CASES = 400


class SolvedAtStart:
    """Share of the protocol's starts that are solved before anything moves (S9)."""

    name = "solved_at_start"
    title = "Starts are not already solved"
    group = "protocol"
    needs: tuple[str, ...] = ("protocol", "state")

    def examine(self, subject: Subject) -> Finding:
        """The share over up to 400 of the protocol's cases, with its Wilson interval."""
        assert subject.episodes is not None
        protocol = subject.protocol
        if protocol.episode_list is None:
            protocol = protocol.replace(num_eval=max(CASES, protocol.num_eval))
        data = Recorded(subject.episodes, subject.episodes_from, "")
        try:
            report, _ = audit(
                protocol,
                data,
                load_criteria(protocol.task),
                history=int(getattr(subject.model, "history_max", 1)),
            )
        except UsageError as e:
            raise Abstention(f"no case could be made: {e}") from e
        assert report.trivial is not None and report.num_cases is not None
        share = report.trivial / report.num_cases
        interval = wilson_interval(report.trivial, report.num_cases)
        warn = subject.thresholds.get(self.name, "warn")
        wrong = subject.thresholds.get(self.name, "wrong")
        verdict = Verdict.FINE
        # A few trivial cases among few are chance: the lower bound has to clear half the limit.
        if share > warn.value and interval.low > warn.value / 2:
            verdict = Verdict.WRONG if share > wrong.value else Verdict.WARN
        elif interval.high > 4 * warn.value:
            verdict = Verdict.CANNOT_TELL
        return finding(
            self,
            verdict,
            measured={
                "solved": (share, "share of starts"),
                "cases": (report.num_cases, "cases"),
                "median_distance": (float(report.distance_median or 0), report.unit),
            },
            limit=(interval.high - share, "share of starts"),
            threshold=wrong if verdict is Verdict.WRONG else warn,
            evidence=[
                f"{report.label}: {report.trivial} of {report.num_cases} starts satisfy the rule "
                f"(95 % interval {interval.low:.1%} to {interval.high:.1%})"
            ],
            fix="leave them out of the rate and say so, or take a larger offset"
            if verdict.severity >= Verdict.WARN.severity else "",
        )  # fmt: skip


CHECK = SolvedAtStart()
