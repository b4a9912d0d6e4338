"""Can the protocol be followed on these data, and on which of them?"""

from __future__ import annotations

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.subject import Subject
from dreamcheck.errors import UsageError
from dreamcheck.planning.admission import feasibility
from dreamcheck.planning.recorded import Recorded


class ProtocolFeasibility:
    """Eligible episodes, legal starts, selection shift, and what plan and budget reach (P7, P8)."""

    name = "protocol_feasibility"
    title = "The protocol can be followed on these data"
    group = "protocol"
    needs: tuple[str, ...] = ("protocol", "episodes")

    def examine(self, subject: Subject) -> Finding:
        """Share of episodes that are eligible, with the audit's flags."""
        assert subject.episodes is not None
        protocol = subject.protocol
        # The content digest is not needed here, and is slow on large data.
        data = Recorded(subject.episodes, subject.episodes_from, "")
        history = int(getattr(subject.model, "history_max", 1))
        shift = subject.thresholds.get(self.name, "shift")
        try:
            report = feasibility(
                protocol, data.lengths, terminated=data.terminated(), history=history
            )
        except UsageError as e:
            return finding(
                self,
                Verdict.WRONG,
                measured={"eligible": (0, "share of episodes")},
                threshold=shift,
                limit=(1 / max(len(data.lengths), 1), "share of episodes"),
                evidence=[str(e)],
                fix="lower the offset, change the filter, or use data with longer episodes",
            )
        measured = {"eligible": (report.num_eligible / report.num_episodes, "share of episodes")}
        evidence = [
            f"{report.label}: {report.num_eligible} of {report.num_episodes} episodes are eligible, "
            f"with {report.total_legal_starts} legal starts",
            *report.reasons,
        ]
        moved = None
        if report.solved_share is not None and report.eligible_solved_share is not None:
            moved = abs(report.solved_share - report.eligible_solved_share)
            measured["shift"] = (moved, "difference of solved shares")
        else:
            evidence.append("selection shift was not measured: the data carry no terminated flag")
        flags = [f for f in report.flags if f != "selection-shifted"]
        if moved is not None and moved > shift.value:
            flags.append("selection-shifted")
        measured["flags"] = (len(flags), "flags")
        # Degenerate sampling is a warning (P8): the rate is real, its start rule is only idle.
        severe = {"budget-short"} & set(flags)
        return finding(
            self,
            Verdict.WRONG if severe else Verdict.WARN if flags else Verdict.FINE,
            measured=measured,
            limit=(1 / report.num_episodes, "share of episodes"),
            threshold=shift,
            evidence=evidence,
            fix=f"{', '.join(flags)}: lower the offset, lengthen horizon or budget, or state the "
            "restriction beside every rate" if flags else "",
        )  # fmt: skip


CHECK = ProtocolFeasibility()
