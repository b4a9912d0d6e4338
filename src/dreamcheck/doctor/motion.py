"""Recorded steps and the law they follow: displacement against action, walls and contacts aside."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dreamcheck.data.episodes import Episodes
from dreamcheck.errors import Abstention
from dreamcheck.tasks.protocol import Task

FOLLOWS = 0.9
"""Explained share of displacement from which a task's motion counts as additive in the action."""


@dataclass(frozen=True)
class Steps:
    """N recorded steps. before, after: [N, S]. actions: [N, A]. episodes, times: [N]."""

    before: np.ndarray
    actions: np.ndarray
    after: np.ndarray
    episodes: np.ndarray
    times: np.ndarray

    def __len__(self) -> int:
        return len(self.actions)


def steps_of(
    episodes: Episodes,
    *,
    span: int = 1,
    lag: int = 0,
    limit: int = 4000,
    chosen: int = 64,
    columns: np.ndarray | None = None,
) -> Steps:
    """Steps of ``span`` environment steps; actions summed over the span, taken ``lag`` rows later.

    Args:
        limit: most steps kept, evenly spread. chosen: most episodes read, evenly spread.
        columns: positions of the state columns to keep; all by default.

    Raises:
        Abstention: fewer than 30 finite steps.
    """
    lengths = np.asarray(episodes.lengths)
    picked = np.unique(np.linspace(0, len(lengths) - 1, min(chosen, len(lengths))).astype(int))
    before, after, acts, where, when = [], [], [], [], []
    for e in picked.tolist():
        state = np.asarray(episodes.state(e), np.float64)
        state = state if columns is None else state[:, columns]
        action = np.asarray(episodes.actions(e), np.float64)
        ts = np.arange(max(0, -lag), len(state) - span - max(0, lag))
        if not len(ts):
            continue
        before.append(state[ts])
        after.append(state[ts + span])
        acts.append(sum(action[ts + lag + i] for i in range(span)))
        where.append(np.full(len(ts), e))
        when.append(ts)
    if not before:
        raise Abstention(f"no episode is longer than {span} steps.")
    made = [np.concatenate(x) for x in (before, acts, after, where, when)]
    good = np.isfinite(np.concatenate(made[:3], axis=1)).all(axis=1)
    rows = np.flatnonzero(good)
    if len(rows) < 30:
        raise Abstention(f"{len(rows)} complete steps were found; at least 30 are needed.")
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(limit, len(rows))).astype(int))]
    return Steps(*(x[rows] for x in made))


def columns_of(episodes: Episodes, task: Task) -> np.ndarray:
    """Where the data hold the simulator's state columns: by name, else by position.

    Raises:
        Abstention: a column is missing and the widths differ.
    """
    names, wanted = [c.name for c in episodes.columns], [c.name for c in task.columns]
    if set(wanted) <= set(names):
        return np.array([names.index(w) for w in wanted])
    if len(names) == len(wanted):
        return np.arange(len(names))
    raise Abstention(
        f"the data's state is {', '.join(names)}, the simulator's {', '.join(wanted)}: map the "
        "recorded columns to the simulator's names."
    )


@dataclass(frozen=True)
class Law:
    """displacement = coefficients @ action + constant, fitted on the steps it explains best.

    coefficients: [A, S]. explained: share of squared displacement explained on the kept steps,
    per column [S]. error: median absolute residual over all steps, divided by the median
    displacement. kept: steps of the fit.
    """

    coefficients: np.ndarray
    explained: np.ndarray
    error: float
    kept: int

    @property
    def best(self) -> float:
        """Explained share, averaged over the columns that the action moves at all."""
        return float(self.explained.mean())


def fit_law(actions: np.ndarray, moved: np.ndarray, *, trim: float = 0.25) -> Law:
    """Least squares with the worst ``trim`` of the steps left out twice: contacts do not count.

    Args:
        actions: [N, A]. moved: [N, S] displacements.
    """
    x = np.concatenate([actions, np.ones((len(actions), 1))], axis=1)
    scale = moved.std(axis=0)
    scale = np.where(scale > 1e-12, scale, 1.0)
    keep = np.ones(len(x), bool)
    w = np.zeros((x.shape[1], moved.shape[1]))
    for _ in range(4):
        w = np.linalg.lstsq(x[keep], moved[keep], rcond=None)[0]
        residual = np.abs((moved - x @ w) / scale).max(axis=1)
        keep = residual <= np.quantile(residual, 1 - trim)
    rest = moved[keep] - x[keep] @ w
    total = ((moved[keep] - moved[keep].mean(axis=0)) ** 2).sum(axis=0)
    explained = 1 - (rest**2).sum(axis=0) / np.where(total > 1e-12, total, np.inf)
    explained = np.where(total > 1e-12, explained, 0.0)
    size = float(np.median(np.linalg.norm(moved, axis=1)))
    error = float(np.median(np.linalg.norm(moved - x @ w, axis=1)))
    return Law(w[:-1], explained, error / size if size > 0 else float("nan"), int(keep.sum()))


def simulated(task: Task, *, rng: np.random.Generator, span: int = 1, rows: int = 200) -> Steps:
    """Steps made in the simulator from default resets with uniform actions."""
    low, high = np.array(task.action_box.low), np.array(task.action_box.high)
    state = task.reset(None, [int(s) for s in rng.integers(0, 2**31 - 1, rows)])
    # One step first: a reset may lie where the environment itself moves the agent.
    state = task.step(state, np.zeros((rows, len(low)), np.float32))
    before = np.asarray(task.observe(state, ("state",))["state"], np.float64)
    total = np.zeros((rows, len(low)))
    for _ in range(span):
        action = rng.uniform(low, high, (rows, len(low))).astype(np.float32)
        total += action
        state = task.step(state, action)
    after = np.asarray(task.observe(state, ("state",))["state"], np.float64)
    return Steps(before, total, after, np.zeros(rows, int), np.zeros(rows, int))


def follows(task: Task | None, rng: np.random.Generator, *, span: int = 1) -> tuple[bool, Law]:
    """Whether the simulator's own motion is additive in the action, and its law.

    Raises:
        Abstention: no simulator.
    """
    if task is None:
        raise Abstention("a simulator (--task) is needed to know how actions move the state.")
    made = simulated(task, rng=rng, span=span)
    law = fit_law(made.actions, made.after - made.before)
    return bool(law.explained.max() >= FOLLOWS), law
