"""Where does it break, for logs without a simulator: slices of recorded windows.

An input is a window of a recorded episode. Its coordinates are typed columns: states at the last
observed frame and metadata, binned or categorical. Its risk is the open-loop error on the recorded
actions. Slices are chosen on one half of the episodes and measured on the other, which the choice
never saw; an episode is the unit of every interval and test, because windows of one episode are not
fresh evidence.

A slice may be hard for any model. Beside the error stands that of a world that stands still; what a
slice fails by *more* than its motion explains is its excess, and only that is tested (law 11).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dreamcheck.data.episodes import Episodes, split_episodes
from dreamcheck.digest import plain
from dreamcheck.discovery.logged import Coordinate, WindowRisks, window_risks
from dreamcheck.errors import UsageError
from dreamcheck.models.protocol import WorldModel
from dreamcheck.progress import Progress
from dreamcheck.stats import benjamini_hochberg, percentile_bounds
from dreamcheck.stats.bootstrap import contracted_tail
from dreamcheck.streams import stream

RESAMPLES = 4000


@dataclass(frozen=True, slots=True)
class Condition:
    """coordinate in [low, high) (or [low, high] in the last bin), or equal to a category.

    The outer bins are open: -inf below the first, inf above the last.
    """

    coordinate: str
    unit: str
    low: float | None = None
    high: float | None = None
    category: str | None = None
    last: bool = False

    def __str__(self) -> str:
        if self.category is not None:
            return f"{self.coordinate} = {self.category}"
        unit = "" if self.unit in ("", "?", "unknown") else f" {self.unit}"
        if self.low == -np.inf:
            return f"{self.coordinate} < {self.high:.4g}{unit}"
        if self.high == np.inf:
            return f"{self.coordinate} >= {self.low:.4g}{unit}"
        return f"{self.coordinate} in [{self.low:.4g}, {self.high:.4g}{']' if self.last else ')'}{unit}"

    def holds(self, values: np.ndarray) -> np.ndarray:
        """Bool [N]."""
        if self.category is not None:
            return np.array([str(v) == self.category for v in values])
        numbers = values.astype(np.float64)
        assert self.low is not None and self.high is not None
        above = numbers >= self.low
        return above & ((numbers <= self.high) if self.last else (numbers < self.high))


@dataclass(frozen=True, slots=True)
class Slice:
    """One slice, measured on held-out episodes. All effects are inside minus outside.

    windows, episodes: held out, inside. searched_windows: of the half it was chosen on.
    error, frozen: means inside, latent units. error_effect: difference of the errors.
    excess_effect: difference of error - ratio x frozen; low, high: its interval over episodes.
    p, p_adjusted: one-sided, excess greater than 0; adjusted for the false-discovery rate over all
        slices that were tested. NaN with a reason when it cannot be tested.
    """

    conditions: tuple[Condition, ...]
    searched_windows: int
    searched_excess: float
    windows: int
    episodes: int
    error: float
    frozen: float
    error_effect: float
    excess_effect: float
    low: float
    high: float
    p: float
    p_adjusted: float
    reason: str = ""

    @property
    def confirmed(self) -> bool:
        """Whether the held-out half bears it out at a false-discovery rate of 5 %."""
        return self.p_adjusted <= 0.05

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        out = {k: plain(getattr(self, k)) for k in self.__slots__ if k != "conditions"}
        return {
            "slice": " and ".join(map(str, self.conditions)),
            **out,
            "confirmed": self.confirmed,
        }


@dataclass(frozen=True)
class SliceReport:
    """Slices, confirmed ones first, largest excess first; and what the search looked at."""

    slices: tuple[Slice, ...]
    num_considered: int
    ratio: float
    windows: tuple[int, int]
    episodes: tuple[int, int]
    interface: str
    settings: Mapping[str, Any]
    skipped: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "slices": [s.to_dict() for s in self.slices],
            "considered": self.num_considered,
            "ratio_to_frozen_world": plain(self.ratio),
            "windows": {"searched": self.windows[0], "heldout": self.windows[1]},
            "episodes": {"searched": self.episodes[0], "heldout": self.episodes[1]},
            "interface": self.interface,
            "settings": plain(self.settings),
            "skipped": list(self.skipped),
        }

    def lines(self) -> list[str]:
        """Plain text for a console."""
        out = [
            f"{self.num_considered} slices considered on {self.windows[0]} windows of "
            f"{self.episodes[0]} episodes; {len(self.slices)} measured on {self.windows[1]} windows "
            f"of {self.episodes[1]} held-out episodes. Error is {self.ratio:.3f} of a frozen world's."
        ]
        for s in self.slices:
            name = " and ".join(map(str, s.conditions))
            if s.reason:
                out.append(f"  {name}: not tested ({s.reason})")
                continue
            out.append(
                f"  {name}: {s.windows} windows, {s.episodes} episodes; excess {s.excess_effect:+.4g} "
                f"[{s.low:.4g}, {s.high:.4g}], error {s.error:.4g} against {s.frozen:.4g} frozen, "
                f"adjusted p {s.p_adjusted:.3g}{' - confirmed' if s.confirmed else ''}"
            )
        out += [f"  skipped: {s}" for s in self.skipped]
        confirmed = sum(s.confirmed for s in self.slices)
        tested = sum(not s.reason for s in self.slices)
        out.append(
            f"verdict: {confirmed} of {tested} tested slices confirmed at a false-discovery rate of "
            "5 %"
            + (
                ""
                if confirmed
                else f"; {self.episodes[1]} episodes are no proof that there are none"
            )
        )
        return out


def _conditions(c: Coordinate, searched: np.ndarray, bins: int) -> list[Condition]:
    values = c.values[searched]
    if c.kind == "categorical":
        names = sorted({str(v) for v in values})
        return [Condition(c.name, c.unit, category=n) for n in names] if len(names) > 1 else []
    numbers = values.astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers):
        return []
    edges = np.unique(np.quantile(numbers, np.linspace(0, 1, bins + 1)))
    if len(edges) < 3:
        return []
    # The outer bins are open: held-out values may lie beyond the searched ones.
    lows, highs = [-np.inf, *edges[1:-1]], [*edges[1:-1], np.inf]
    return [
        Condition(c.name, c.unit, float(low), float(high), last=bool(np.isinf(high)))
        for low, high in zip(lows, highs, strict=True)
    ]


def _effect(values: np.ndarray, inside: np.ndarray) -> float:
    return float(values[inside].mean() - values[~inside].mean())


def _bootstrap(
    values: np.ndarray, inside: np.ndarray, episodes: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Resampled effects: whole episodes are drawn, with all their windows."""
    names, slot = np.unique(episodes, return_inverse=True)
    sums = np.stack(
        [
            np.bincount(slot, w, minlength=len(names))
            for w in (
                values * inside,
                inside.astype(float),
                values * ~inside,
                (~inside).astype(float),
            )
        ],
        axis=1,
    )
    # How often each episode is drawn, times what it holds.
    n = len(names)
    drawn = rng.integers(n, size=(RESAMPLES, n)) + n * np.arange(RESAMPLES)[:, None]
    times = np.bincount(drawn.ravel(), minlength=RESAMPLES * n).reshape(RESAMPLES, n).astype(float)
    total = times @ sums
    good = (total[:, 1] > 0) & (total[:, 3] > 0)
    total = total[good]
    out: np.ndarray = total[:, 0] / total[:, 1] - total[:, 2] / total[:, 3]
    return out


def find_slices(
    risks: WindowRisks,
    *,
    bins: int = 4,
    order: int = 2,
    keep: int = 20,
    min_windows: int = 20,
    min_episodes: int = 8,
    heldout: float = 0.5,
    seed: int = 0,
) -> SliceReport:
    """Slices whose error exceeds what their motion explains, confirmed on held-out episodes.

    Args:
        bins: quantile bins per number. order: most coordinates of a slice, 1 or 2.
        keep: how many, largest searched excess first, are measured on the held-out half.
        min_windows, min_episodes: in the searched half, inside and outside the slice.
        heldout: share of episodes the choice never sees.

    Raises:
        UsageError: too few episodes to hold some out.
    """
    owners = np.unique(risks.episodes)
    if len(owners) < 2 * min_episodes:
        raise UsageError(
            f"{len(owners)} episodes hold windows; choosing slices on some and confirming them on "
            f"others needs at least {2 * min_episodes} (min_episodes = {min_episodes} in each half)."
        )

    class _Owners:
        columns = ()
        lengths = np.ones(len(owners), dtype=np.int64)

    split = split_episodes(_Owners(), heldout=heldout, seed=seed)  # type: ignore[arg-type]
    held = np.isin(risks.episodes, owners[split.heldout])
    searched = ~held
    ratio = float(risks.error[searched].sum() / risks.frozen[searched].sum())
    excess = risks.error - ratio * risks.frozen
    single = [
        (c, condition, condition.holds(c.values))
        for c in risks.coordinates
        for condition in _conditions(c, searched, bins)
    ]
    candidates: list[tuple[tuple[Condition, ...], np.ndarray]] = [
        ((condition,), inside) for _, condition, inside in single
    ]
    if order >= 2:
        candidates += [
            ((a, b), in_a & in_b)
            for (ca, a, in_a), (cb, b, in_b) in itertools.combinations(single, 2)
            if ca is not cb
        ]
    scored: list[tuple[float, tuple[Condition, ...], np.ndarray]] = []
    for conditions, inside in candidates:
        here, outside = inside & searched, ~inside & searched
        if min(here.sum(), outside.sum()) < min_windows:
            continue
        if len(np.unique(risks.episodes[here])) < min_episodes:
            continue
        effect = _effect(excess[searched], inside[searched])
        if effect > 0:
            scored.append((effect, conditions, inside))
    scored.sort(key=lambda s: (-s[0], " ".join(map(str, s[1]))))
    measured = [
        _measure(risks, excess, held, effect, conditions, inside, min_episodes, seed)
        for effect, conditions, inside in scored[:keep]
    ]
    tested = [i for i, s in enumerate(measured) if not s.reason]
    if tested:
        adjusted = benjamini_hochberg([measured[i].p for i in tested])
        for i, value in zip(tested, adjusted.tolist(), strict=True):
            measured[i] = replace(measured[i], p_adjusted=value)
    measured.sort(key=lambda s: (bool(s.reason), not s.confirmed, -s.excess_effect))
    return SliceReport(
        slices=tuple(measured),
        num_considered=len(candidates),
        ratio=ratio,
        windows=(int(searched.sum()), int(held.sum())),
        episodes=(len(split.train), len(split.heldout)),
        interface=risks.interface,
        settings={
            "bins": bins,
            "order": order,
            "keep": keep,
            "min_windows": min_windows,
            "min_episodes": min_episodes,
            "heldout": heldout,
            "seed": seed,
            "horizon": risks.horizon,
        },
        skipped=risks.skipped,
    )


def _measure(
    risks: WindowRisks,
    excess: np.ndarray,
    held: np.ndarray,
    searched_excess: float,
    conditions: tuple[Condition, ...],
    inside: np.ndarray,
    min_episodes: int,
    seed: int,
) -> Slice:
    here = inside[held]
    owners = risks.episodes[held]
    num_inside = len(np.unique(owners[here])) if here.any() else 0
    nan = float("nan")
    enough = num_inside >= min_episodes and len(np.unique(owners[~here])) >= min_episodes
    values = excess[held]
    low = high = p = nan
    reason = ""
    if enough:
        name = " and ".join(map(str, conditions))
        effects = _bootstrap(values, here, owners, stream(seed, "bootstrap", name))
        units = min(num_inside, len(np.unique(owners)))
        low, high = percentile_bounds(effects, num_units=units)
        # The share of resamples without an effect, made worth a p-value for few units.
        tail = (1 + int((effects <= 0).sum())) / (1 + len(effects))
        p = contracted_tail(min(tail, 1 - 1e-9), units)
    else:
        reason = f"{num_inside} held-out episodes inside; {min_episodes} are needed on both sides"
    known = here.any() and not here.all()
    return Slice(
        conditions=conditions,
        searched_windows=int((inside & ~held).sum()),
        searched_excess=searched_excess,
        windows=int(here.sum()),
        episodes=num_inside,
        error=float(risks.error[held][here].mean()) if here.any() else nan,
        frozen=float(risks.frozen[held][here].mean()) if here.any() else nan,
        error_effect=_effect(risks.error[held], here) if known else nan,
        excess_effect=_effect(values, here) if known else nan,
        low=low,
        high=high,
        p=p,
        p_adjusted=nan,
        reason=reason,
    )


def discover_slices(
    model: WorldModel,
    episodes: Episodes,
    *,
    columns: Sequence[str] | None = None,
    horizon: int = 5,
    windows: int = 2000,
    bins: int = 4,
    order: int = 2,
    keep: int = 20,
    min_episodes: int = 8,
    seed: int = 0,
    tile: int = 64,
    progress: Progress | None = None,
) -> SliceReport:
    """``discover --data heldout.h5``: risks of recorded windows, then slices of them.

    Give episodes the model was not trained on; that is not checked here.
    """
    risks = window_risks(
        model,
        episodes,
        horizon=horizon,
        windows=windows,
        columns=columns,
        seed=seed,
        tile=tile,
        progress=progress,
    )
    return find_slices(
        risks, bins=bins, order=order, keep=keep, min_episodes=min_episodes, seed=seed
    )
