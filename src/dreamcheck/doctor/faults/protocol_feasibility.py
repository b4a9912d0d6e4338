"""Protocols that the data cannot follow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.faults._rooms import graded, seed_of, walks
from dreamcheck.doctor.subject import Subject
from dreamcheck.planning.protocol import load_protocol


class Strained:
    """Grades: frames by which the goal is farther than a plan or an episode reaches."""

    check = "protocol_feasibility"
    unit = "frames"
    uses_model = False

    def cases(self, base: Base) -> Sequence[Case]:
        """One step too far for the plan, sampling without a choice, and no episode at all."""
        data = walks(seed_of(base), episodes=40)

        def subject(**changes: object) -> Subject:
            protocol = load_protocol("lewm-repo").replace(
                start_rule="sampled", num_eval=20, **changes
            )
            return Subject(protocol=protocol, episodes=data, seed=seed_of(base))

        def shifted_outcomes() -> Subject:
            # Short episodes are the solved ones, as in the published data: offset 25 loses them.
            lengths = np.where(np.arange(40) % 2 == 0, 61, 21)
            flags = np.zeros(int(lengths.sum()), bool)
            ends = np.cumsum(lengths) - 1
            flags[ends[1::2]] = True
            rows = np.concatenate([np.arange(n) for n in lengths])
            owner = np.repeat(np.arange(40), lengths)
            acts = np.stack([data.actions(int(e))[t] for e, t in zip(owner, rows, strict=True)])
            acts[ends] = np.nan
            made = ArrayEpisodes(
                lengths=lengths,
                actions=acts,
                state=np.stack([data.state(int(e))[t] for e, t in zip(owner, rows, strict=True)]),
                columns=data.columns,
                extra={"terminated": flags},
            )
            return Subject(
                protocol=load_protocol("lewm-repo").replace(num_eval=20),
                episodes=made,
                seed=seed_of(base),
            )

        return [
            *graded(
                (0.0, 1.0, 10.0, 35.0, 75.0),
                lambda g: subject(offset=25 + int(g), budget_steps=150),
            ),
            Case("budget-short", 5.0, True, lambda: subject(budget_steps=20)),
            Case("selection-shifted", 40.0, True, shifted_outcomes),
        ]


GENERATOR = Strained()
