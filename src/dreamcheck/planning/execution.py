"""Running actions in the simulator and noting what the success rule saw, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dreamcheck.errors import Abstention, UsageError
from dreamcheck.planning.cases import Case
from dreamcheck.planning.protocol import Protocol
from dreamcheck.streams import RowStreams
from dreamcheck.tasks.criteria import SuccessRule
from dreamcheck.tasks.protocol import CannotBranch, Column, Task


@dataclass(frozen=True)
class Rows:
    """R = cases x planner streams, cases outermost.

    case: index of each row's case [R]. names: identities of the rows' random streams.
    """

    cases: tuple[Case, ...]
    case: np.ndarray
    stream: np.ndarray

    @classmethod
    def of(cls, cases: tuple[Case, ...], streams: int) -> Rows:
        """Every case on every stream."""
        index = np.repeat(np.arange(len(cases)), streams)
        return cls(cases, index, np.tile(np.arange(streams), len(cases)))

    def __len__(self) -> int:
        return len(self.case)

    @property
    def names(self) -> tuple[str, ...]:
        """ "episode:start/stream", one per row."""
        pairs = zip(self.case.tolist(), self.stream.tolist(), strict=True)
        return tuple(f"{self.cases[c].id}/{s}" for c, s in pairs)

    @property
    def starts(self) -> np.ndarray:
        """[R, S]."""
        return np.array([self.cases[c].start_state for c in self.case])

    @property
    def goals(self) -> np.ndarray:
        """[R, S]."""
        return np.array([self.cases[c].goal_state for c in self.case])


def placed(task: Task, rows: Rows) -> Any:
    """The simulator's state with every row at its start and its goal set.

    Raises:
        Abstention: the task cannot be placed at a state.
    """
    if not hasattr(task, "with_state") or not hasattr(task, "with_goal"):
        raise Abstention(
            f"task {task.name} offers no `with_state` and `with_goal`: recorded starts and goals "
            "cannot be placed in it, so planning cannot be evaluated."
        )
    state = task.reset(None, [0] * len(rows))
    state = task.with_goal(state, rows.goals)
    return task.with_state(state, rows.starts)


def some(task: Task, state: Any, index: np.ndarray) -> Any:
    """Copies of some rows.

    Raises:
        CannotBranch: the task cannot copy them.
    """
    return task.branch(state, np.asarray(index, np.int64))


@dataclass(frozen=True)
class Trajectories:
    """What happened to R rows.

    states: [R, budget + 1, S], NaN after a row stopped. actions: [R, budget, A] as given to the
    environment (it clamps), NaN after the stop. satisfied: bool [R, budget]. steps: [R] executed.
    first_success: [R], -1 where the rule was never fulfilled. discontinuity: [R] largest jump that
    the environment itself made, task units.
    """

    states: np.ndarray
    actions: np.ndarray
    satisfied: np.ndarray
    steps: np.ndarray
    first_success: np.ndarray
    discontinuity: np.ndarray


class Execution:
    """Steps the rows of one arm; rows that have stopped are left where they are."""

    def __init__(
        self,
        task: Task,
        rows: Rows,
        *,
        protocol: Protocol,
        rule: SuccessRule,
        columns: tuple[Column, ...],
    ) -> None:
        self.task = task
        self.rows = rows
        self.rule = rule
        self.columns = columns
        self.protocol = protocol
        self.state = placed(task, rows)
        n, budget = len(rows), protocol.budget_steps
        self.goals = rows.goals
        first = self.observed()
        self.states = np.full((n, budget + 1, first.shape[1]), np.nan)
        self.states[:, 0] = first
        self.actions = np.full((n, budget, task.action_box.width), np.nan)
        self.satisfied = np.zeros((n, budget), bool)
        self.discontinuity = np.zeros(n)
        self._run = np.zeros(n, np.int64)
        self.first_success = np.full(n, -1, np.int64)
        self.steps = np.zeros(n, np.int64)
        self.live = np.ones(n, bool)
        self.time = 0

    def observed(self) -> np.ndarray:
        """The simulator's state vector [R, S]."""
        return np.asarray(self.task.observe(self.state, ("state",))["state"], np.float64)

    @property
    def done(self) -> bool:
        """Whether no row can take another step."""
        return self.time >= self.protocol.budget_steps or not self.live.any()

    def step(self, actions: np.ndarray) -> None:
        """One environment step of every live row; actions [R, A], those of stopped rows unused."""
        t, live = self.time, self.live.copy()
        given = np.where(live[:, None], actions, 0.0)
        after = self.task.step(self.state, given)
        measured = self.task.measure(self.state, given, after)
        self.state = after
        now = self.observed()
        self.states[live, t + 1] = now[live]
        self.actions[live, t] = given[live]
        jump = np.asarray(measured.get("discontinuity", np.zeros(len(live))))
        self.discontinuity = np.where(
            live, np.maximum(self.discontinuity, jump), self.discontinuity
        )
        ok = self.rule.satisfied(now, self.goals, self.columns) & live
        self.satisfied[:, t] = ok
        self._run = np.where(ok, self._run + 1, 0)
        self.steps += live
        self.time = t + 1
        if self.rule.at_end:
            reached = ok & (self.time == self.protocol.budget_steps)
        else:
            reached = self._run >= self.rule.hold_steps
        self.first_success = np.where(
            live & reached & (self.first_success < 0), self.time, self.first_success
        )
        if self.protocol.stop == "success" and not self.rule.at_end:
            self.live = live & (self.first_success < 0)

    def trajectories(self) -> Trajectories:
        """What happened."""
        return Trajectories(
            self.states,
            self.actions,
            self.satisfied,
            self.steps,
            self.first_success,
            self.discontinuity,
        )


def run_control(
    name: str,
    task: Task,
    rows: Rows,
    *,
    protocol: Protocol,
    rule: SuccessRule,
    columns: tuple[Column, ...],
) -> Trajectories:
    """A control arm: "random" (fresh uniform action each step, P14), "zero", or "oracle" (S14).

    Its random numbers belong to the case and the stream, never to a checkpoint.

    Raises:
        Abstention: no oracle is known for this task.
    """
    run = Execution(task, rows, protocol=protocol, rule=rule, columns=columns)
    streams = RowStreams.of(protocol.seed, "random-control", rows.names)
    low, high = np.asarray(task.action_box.low), np.asarray(task.action_box.high)
    oracle = _oracle(task) if name == "oracle" else None
    if name not in ("random", "zero", "oracle"):
        raise UsageError(f"control {name!r} is not one of random, zero, oracle.")
    while not run.done:
        if oracle is not None:
            observed = task.observe(run.state, ("state", "goal", "geometry"))
            actions = oracle.act(observed, streams)
        elif name == "random":
            actions = low + (high - low) * streams.uniform(len(low))
        else:
            actions = np.zeros((len(rows), len(low)))
        run.step(np.asarray(actions, np.float64))
    return run.trajectories()


def _oracle(task: Task) -> Any:
    if task.name == "tworoom":
        from dreamcheck.tasks.tworoom import Oracle

        return Oracle()
    raise Abstention(f"no oracle policy is known for task {task.name}: that control is left out.")


def realised(task: Task, state: Any, actions: np.ndarray) -> tuple[Any, np.ndarray]:
    """Branches run open loop: the state after all actions, and its vector.

    Args:
        state: rows to start from (copied). actions: [R, steps, A].

    Raises:
        CannotBranch: the task cannot be copied.
    """
    index = np.arange(len(actions))
    now = some(task, state, index)
    for t in range(actions.shape[1]):
        now = task.step(now, actions[:, t])
    return now, np.asarray(task.observe(now, ("state",))["state"], np.float64)


__all__ = [
    "CannotBranch",
    "Execution",
    "Rows",
    "Trajectories",
    "placed",
    "realised",
    "run_control",
    "some",
]
