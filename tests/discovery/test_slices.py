"""Slices of logs: a planted failure is found and confirmed, noise is not, difficulty is no failure."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.discovery.logged import Coordinate, WindowRisks, coordinates_of
from dreamcheck.discovery.slice_record import record_slices
from dreamcheck.discovery.slices import Condition, discover_slices, find_slices
from dreamcheck.errors import UsageError
from dreamcheck.models.conventions import Conventions
from dreamcheck.models.protocol import LatentSpec
from dreamcheck.reports import verify_study, write_report
from dreamcheck.tasks.protocol import Column


def risks(*, planted=0.0, harder=0.0, episode_effect=0.3, seed=0, episodes=60, per=20, extra=3):
    """Windows with a category "floor" per episode and positions x, y per window."""
    rng = np.random.default_rng(seed)
    n = episodes * per
    owner = np.repeat(np.arange(episodes), per)
    x = rng.uniform(0, 100, n)
    floor = rng.integers(0, 2, episodes)[owner]
    bad = (x >= 75) & (floor == 1)
    frozen = 2 + rng.random(n) + harder * bad
    noise = episode_effect * rng.normal(size=episodes)[owner] + 0.3 * rng.normal(size=n)
    error = 0.5 * frozen + noise + planted * bad + 3
    coordinates = [
        Coordinate("x", "binned", "px", x),
        Coordinate("floor", "categorical", "", np.where(floor == 1, "ice", "wood")),
    ]
    coordinates += [Coordinate(f"noise{i}", "binned", "", rng.normal(size=n)) for i in range(extra)]
    return WindowRisks(
        error=error, frozen=frozen, episodes=owner, frames=np.zeros(n, int),
        coordinates=tuple(coordinates), horizon=5, interface="latent test",
    )  # fmt: skip


def test_a_planted_failure_is_found_and_confirmed_on_unseen_episodes():
    report = find_slices(risks(planted=1.0))
    best = report.slices[0]
    assert {c.coordinate for c in best.conditions} == {"x", "floor"}
    assert any(c.category == "ice" for c in best.conditions)
    assert best.confirmed and best.low > 0 and best.low < best.excess_effect < best.high
    # Planted: 1 on every window inside; some of the windows outside share parts of it.
    assert best.excess_effect == pytest.approx(1.0, abs=0.2)
    assert best.windows >= 50 and best.episodes > 8
    assert report.episodes == (30, 30) and report.windows == (600, 600)
    json.dumps(report.to_dict(), allow_nan=False)
    assert "confirmed" in report.lines()[1]


def test_a_slice_that_is_only_hard_is_not_called_a_failure():
    # Twice the motion and twice the error: the error differs, its excess over motion does not.
    rng = np.random.default_rng(0)
    base = risks(harder=3.0)
    error = 0.5 * base.frozen + 0.05 * rng.normal(size=len(base.frozen))
    hard = WindowRisks(
        error=error, frozen=base.frozen, episodes=base.episodes, frames=base.frames,
        coordinates=base.coordinates, horizon=5, interface="latent test",
    )  # fmt: skip
    report = find_slices(hard)
    assert not any(s.confirmed for s in report.slices)
    inside = (base.coordinates[0].values >= 75) & (base.coordinates[1].values == "ice")
    assert error[inside].mean() > 2 * error[~inside].mean()
    # The same slices with the motion left out of account would be called failures.
    blind = WindowRisks(
        error=error, frozen=np.ones_like(error), episodes=base.episodes, frames=base.frames,
        coordinates=base.coordinates, horizon=5, interface="latent test",
    )  # fmt: skip
    assert any(s.confirmed for s in find_slices(blind).slices)


def test_without_a_failure_few_slices_are_confirmed():
    """30 studies of pure noise, each choosing the worst of about 60 slices."""
    wrong = sum(
        any(s.confirmed for s in find_slices(risks(seed=seed, per=8, extra=1), keep=5).slices)
        for seed in range(30)
    )
    # At a false-discovery rate of 5 % about 1.5 of 30 studies err; more than 6 has probability
    # under 0.5 %.
    assert wrong <= 6


def test_windows_of_one_episode_do_not_count_as_fresh():
    # Twenty copies of every window are no more evidence than one.
    once = risks(per=1, episodes=60, planted=0.6, extra=0)
    index = np.repeat(np.arange(60), 20)
    many = WindowRisks(
        error=once.error[index], frozen=once.frozen[index], episodes=once.episodes[index],
        frames=once.frames[index], horizon=5, interface="latent test",
        coordinates=tuple(
            Coordinate(c.name, c.kind, c.unit, c.values[index]) for c in once.coordinates
        ),
    )  # fmt: skip
    for s in find_slices(many, min_windows=1).slices:
        if s.reason:
            continue
        twin = next(
            (t for t in find_slices(once, min_windows=1).slices if t.conditions == s.conditions),
            None,
        )
        if twin is not None:
            assert s.p == pytest.approx(twin.p, rel=1e-9) and s.low == pytest.approx(twin.low)


def test_the_same_seed_gives_the_same_slices_and_searching_never_sees_the_rest():
    base = risks(planted=0.5)
    one, two = find_slices(base), find_slices(base)
    assert one.to_dict() == two.to_dict()
    # Changing held-out errors changes no choice: same slices, same searched numbers.
    from dreamcheck.data.episodes import split_episodes

    class Sixty:
        lengths = np.ones(60)

    held = np.isin(base.episodes, split_episodes(Sixty(), heldout=0.5, seed=0).heldout)
    changed = WindowRisks(
        error=np.where(held, base.error[::-1], base.error), frozen=base.frozen,
        episodes=base.episodes, frames=base.frames, coordinates=base.coordinates, horizon=5,
        interface="latent test",
    )  # fmt: skip
    other = find_slices(changed)
    assert {s.conditions: s.searched_excess for s in other.slices} == {
        s.conditions: s.searched_excess for s in one.slices
    }
    assert other.to_dict() != one.to_dict()


def test_too_few_episodes_are_refused_and_thin_slices_say_so():
    with pytest.raises(UsageError, match="10 episodes hold windows.*at least 16"):
        find_slices(risks(episodes=10))
    report = find_slices(risks(planted=2.0, episodes=24, per=20), min_episodes=8)
    for s in report.slices:
        assert (s.episodes >= 8) == (not s.reason)
        assert np.isnan(s.p_adjusted) == bool(s.reason)


class Walker:
    """Exact in one latent number, except on floor 2 where actions count half."""

    def __init__(self):
        self.conventions = Conventions(
            image_size=4, resize="none", frameskip=1, action_dim=1, action_mean=(0.0,),
            action_std=(1.0,), history=1,
        )  # fmt: skip
        self.latent = LatentSpec(shape=(2,))
        self.history_min = self.history_max = 1
        self.identity = "walker"
        self.device = torch.device("cpu")

    def encode(self, observation):
        return observation["pixels"][:, :2, 0, 0].float()

    def embed_actions(self, blocks):
        return blocks

    def predict(self, latents, actions, *, row_seeds=None):
        gain = torch.where(latents[:, -1, 1] == 2, 0.5, 1.0)
        move = torch.stack([gain * actions[:, -1, 0], torch.zeros(len(gain))], dim=1)
        return latents[:, -1] + move


def logs(episodes=48, length=10, more=None) -> ArrayEpisodes:
    rng = np.random.default_rng(0)
    actions, frames, states, floors = [], [], [], []
    for e in range(episodes):
        steps = rng.choice([-6, -4, 4, 6], size=length).astype(float)
        at = 100 + np.concatenate([[0], np.cumsum(steps[:-1])])
        picture = np.zeros((length, 3, 4, 4), np.uint8)
        picture[:, 0], picture[:, 1] = at[:, None, None], e % 4
        steps[-1] = np.nan
        actions.append(steps[:, None])
        frames.append(picture)
        states.append(at[:, None])
        floors.append(np.full(length, e % 4))
    return ArrayEpisodes(
        lengths=np.full(episodes, length),
        actions=np.concatenate(actions),
        pixels=np.concatenate(frames),
        state=np.concatenate(states),
        columns=(Column("x", "px"),),
        extra={
            "floor": np.concatenate(floors),
            "vector": np.zeros((episodes * length, 3)),
            **(more or {}),
        },
    )


def test_from_a_model_and_logs_to_the_floor_it_fails_on():
    report = discover_slices(Walker(), logs(), horizon=2, windows=400, order=1, min_episodes=4)
    best = report.slices[0]
    assert str(best.conditions[0]) == "floor = 2" and best.confirmed
    assert best.error > 1 and "walker" in report.interface


def test_coordinates_are_typed_and_named():
    data = logs(episodes=4)
    where, frames = np.array([0, 1, 3]), np.array([0, 2, 9])
    x, floor = coordinates_of(data, where, frames)
    assert (x.name, x.kind, x.unit) == ("x", "binned", "px")
    assert (floor.name, floor.kind) == ("floor", "categorical")
    assert floor.values.tolist() == ["0", "1", "3"]
    assert x.values.tolist() == [data.state(e)[t, 0] for e, t in zip(where, frames, strict=True)]
    assert [c.name for c in coordinates_of(data, where, frames, columns=["floor"])] == ["floor"]
    with pytest.raises(UsageError, match="no column 'mass'"):
        coordinates_of(data, where, frames, columns=["mass"])
    with pytest.raises(UsageError, match="several numbers per frame"):
        coordinates_of(data, where, frames, columns=["vector"])


def test_what_was_not_sliced_by_is_named():
    clock = np.arange(480, dtype=float)
    text = np.array([f"run {i % 40}" for i in range(480)])
    data = logs(more={"render_time": clock, "note": text})
    report = discover_slices(Walker(), data, horizon=2, windows=400, order=1, min_episodes=4)
    told = "\n".join(report.lines())
    assert "skipped: render_time: bookkeeping; --column render_time" in told
    assert "skipped: note: more than 12 different texts" in told
    assert "skipped: vector: not one number or text per frame" in told
    assert report.to_dict()["skipped"] == list(report.skipped)
    assert not any(c.coordinate == "render_time" for s in report.slices for c in s.conditions)
    asked = discover_slices(
        Walker(), data, horizon=2, windows=400, order=1, min_episodes=4, columns=["render_time"]
    )
    assert asked.slices and not any("bookkeeping" in s for s in asked.skipped)
    assert report.lines()[-1].startswith("verdict: ") and "confirmed" in report.lines()[-1]


def test_episodes_too_short_for_a_window_are_counted():
    long, short = logs(episodes=40), logs(episodes=3, length=2)
    both = ArrayEpisodes(
        lengths=np.concatenate([long.lengths, short.lengths]),
        actions=np.concatenate(
            [d.actions(e) for d in (long, short) for e in range(len(d.lengths))]
        ),
        pixels=np.concatenate(
            [d.frames(e, range(n)) for d in (long, short) for e, n in enumerate(d.lengths)]
        ),
        state=np.concatenate([d.state(e) for d in (long, short) for e in range(len(d.lengths))]),
        columns=(Column("x", "px"),),
    )
    report = discover_slices(Walker(), both, horizon=2, windows=300, order=1, min_episodes=4)
    assert "3 of 43 episodes: shorter than a window (3 frames: 1 observed and 2 forecast" in str(
        report.skipped
    )


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(-np.inf, 2.5, "x < 2.5 px"), (7.0, np.inf, "x >= 7 px"), (2.5, 7.0, "x in [2.5, 7) px")],
)
def test_a_bin_is_said_as_people_write_it_and_holds_what_it_says(low, high, said):
    condition = Condition("x", "px", low, high, last=bool(np.isinf(high) and high > 0))
    assert str(condition) == said
    # 1 lies in the first bin, 2.5 and 5 in the second, 7 and 9 in the last.
    holds = condition.holds(np.array([1.0, 2.5, 5.0, 7.0, 9.0])).tolist()
    assert holds == [low <= v < high for v in (1.0, 2.5, 5.0, 7.0, 9.0)]


def test_slices_are_a_record_and_a_section_whose_numbers_verify(tmp_path):
    data = logs(more={"note": np.array([f"run {i % 40}" for i in range(480)])})
    report = discover_slices(Walker(), data, horizon=2, windows=400, order=1, min_episodes=4)
    names = {"model_name": "walker", "data_name": "logs.h5"}
    kept = record_slices(tmp_path / "d", report, model=Walker(), episodes=data, **names)
    again = record_slices(tmp_path / "d", report, model=Walker(), episodes=data, **names)
    assert kept.key == again.key and kept.payload["subject"]["data_digest"] == data.digest
    page = write_report(tmp_path / "d").read_text(encoding="utf-8")
    assert "Where logged windows are imagined worst" in page and "floor = 2" in page
    assert "more than 12 different texts" in page and "logs.h5" in page
    assert verify_study(tmp_path / "d").ok
    confirmed = sum(s.confirmed for s in report.slices)
    assert kept.payload["result"]["confirmed"] == confirmed > 0


def test_no_confirmed_slice_is_said_not_to_prove_that_there_are_none(tmp_path):
    report = find_slices(risks(episodes=24, per=20), keep=4)
    assert not any(s.confirmed for s in report.slices)
    record_slices(
        tmp_path / "d", report, model=Walker(), model_name="w", episodes=logs(), data_name="l"
    )
    page = write_report(tmp_path / "d").read_text(encoding="utf-8")
    assert "no proof that there are none" in page
