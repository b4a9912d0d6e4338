"""Attribution on a model whose only error is known: the part at fault is the part that is named."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from test_planning_protocol import walks
from toy_planning_model import SCALE, ToyModel, ToyReadout

from dreamcheck.errors import Abstention, UsageError
from dreamcheck.imagination.runner import Runner
from dreamcheck.models.readout import ColumnError, StateProbe
from dreamcheck.planning.atlas import build_atlas
from dreamcheck.planning.attribution import ALL_CELLS, cell_name, explain
from dreamcheck.planning.figures import explanation_figure
from dreamcheck.planning.protocol import protocol_from
from dreamcheck.planning.truth import true_cost
from dreamcheck.tasks.tworoom import TwoRoom

torch.set_num_threads(1)

PROTOCOL = {
    "name": "t",
    "offset": 50,
    "budget_steps": 75,
    "num_eval": 6,
    "solver": {"name": "cem", "num_samples": 40, "num_elites": 6, "iterations": 5},
    "start_rule": "frame0",
}


def data():
    """Same-room walks and, every other one, walks whose goal lies behind the wall."""
    return walks([60] * 6, start=40.0)


def made(model, *, cells=ALL_CELLS, **changes):
    return explain(
        model,
        TwoRoom(),
        protocol_from({**PROTOCOL, **changes}, where="t"),
        readout=ToyReadout(),
        data=data(),
        search_factor=3,
        cells=cells,
    )


@pytest.fixture(scope="module")
def backwards():
    """A model that believes actions move the agent the other way."""
    return made(ToyModel(speed=-5.0))


def test_wrong_dynamics_are_blamed_on_the_dynamics(backwards):
    assert backwards.waterfall[0].rate.value == 0.0
    swaps = {s.swap: s for s in backwards.swaps}
    assert swaps["dynamics"].won == 6 and swaps["dynamics"].lost == 0
    assert swaps["cost"].won == 0 and swaps["search"].won == 0
    assert set(backwards.labels.values()) == {"dynamics"} and len(backwards.labels) == 6
    assert "dynamics" in backwards.headline


def test_the_waterfall_ends_at_the_oracle_and_every_bar_states_its_flips(backwards):
    assert [b.name for b in backwards.waterfall] == [
        "protocol",
        "true cost",
        "+ simulator dynamics",
        "+ larger search",
        "oracle",
    ]
    assert backwards.waterfall[-1].rate.value == 1.0
    for before, bar in zip(backwards.waterfall[:-1], backwards.waterfall[1:], strict=True):
        moved = bar.rate.successes - before.rate.successes
        assert bar.flip.won - bar.flip.lost == moved
    # Intervals keep a width at 0/n.
    assert backwards.waterfall[0].low == 0.0 and backwards.waterfall[0].high > 0.2


def test_shares_over_the_orders_bracket_every_single_swap(backwards):
    for swap in backwards.swaps:
        low, high = backwards.shares[swap.swap]
        assert low - 1e-9 <= swap.gain <= high + 1e-9


def test_a_wrong_cost_is_blamed_on_the_cost():
    class Elsewhere:
        """Wants the place mirrored at y = 112."""

        name, unit, terminal = "mirrored goal", "latent units squared", True

        def __call__(self, latents, goal, actions):
            aim = goal.clone()
            aim[:, 1] = 224 / SCALE - aim[:, 1]
            return (latents[:, :, -1] - aim[:, None]).pow(2).sum(dim=2)

    found = explain(
        ToyModel(),
        TwoRoom(),
        protocol_from(PROTOCOL, where="t"),
        readout=ToyReadout(),
        data=data(),
        objective=lambda model: Elsewhere(),
        search_factor=2,
        cells=(
            (False, False, False),
            (True, False, False),
            (False, True, False),
            (False, False, True),
        ),
    )
    assert set(found.labels.values()) == {"cost"}


def test_a_goal_out_of_reach_is_unreachable_not_anyones_fault():
    found = made(ToyModel(), cells=((False, False, False), (True, False, False)), budget_steps=1)
    assert set(found.labels.values()) == {"unreachable"}


def test_a_single_state_probe_reads_the_state_as_a_readout_does():
    columns = ToyReadout.columns
    model = ToyModel(speed=2.5)
    probe = StateProbe(
        name="ridge", kind="ridge", columns=columns, model_identity=model.identity,
        fitted_on="", heldout_on="",
        errors=tuple(ColumnError(c.name, c.unit, 1.0, 0.1 + i, 0.2) for i, c in enumerate(columns)),
        tensors={
            "in_mean": torch.zeros(2), "in_std": torch.ones(2), "w0": torch.eye(2) * SCALE,
            "b0": torch.zeros(2), "out_mean": torch.zeros(2), "out_std": torch.ones(2),
        },
    )  # fmt: skip
    cells = [(False, False, False), (True, False, False)]
    found = [
        explain(
            model, TwoRoom(), protocol_from(PROTOCOL, where="t"), readout=r, data=data(),
            cells=cells,
        )
        for r in (probe, ToyReadout())
    ]  # fmt: skip
    assert found[0].readout == probe.identity and found[0].readout_mae == (0.1, 1.1)
    assert not found[0].missing
    name = cell_name((True, False, False))
    assert found[0].cells[name].success == found[1].cells[name].success


def test_a_model_without_a_readout_leaves_out_only_what_needs_one():
    found = explain(
        ToyModel(), TwoRoom(), protocol_from(PROTOCOL, where="t"), readout=None, data=data(),
        search_factor=2, cells=((False, False, False), (True, False, False), (True, True, False)),
    )  # fmt: skip
    assert list(found.missing) == [cell_name((True, False, False))]
    assert cell_name((True, True, False)) in found.cells
    assert [b.name for b in found.waterfall] == ["protocol", "+ simulator dynamics", "oracle"]


def test_the_record_is_plain_json(backwards):
    record = json.loads(json.dumps(backwards.to_dict()))
    assert record["label_counts"]["dynamics"] == 6
    assert record["label"] == "offset 50 / budget 75"


def test_the_figure_draws_bars_flips_and_the_film(backwards):
    assert backwards.film is not None and backwards.film.swap == "dynamics"
    svg = explanation_figure(backwards, task=TwoRoom())
    for text in (
        "Where did the success go?",
        "+6/−0",
        "oracle",
        "imagined",
        "random",
        "latent cost",
    ):
        assert text in svg
    assert svg == explanation_figure(backwards, task=TwoRoom())


def test_the_atlas_stands_for_the_encoder_within_its_stated_error():
    model = ToyModel()
    atlas = build_atlas(Runner(model), TwoRoom(), image_size=56, seed=0)
    assert atlas.error <= 0.1
    places = np.array([[60.3, 88.8], [150.0, 33.3]])
    assert np.allclose(atlas.latents(places).numpy() * SCALE, places, atol=1.0)
    assert np.allclose(atlas.nearest(torch.from_numpy(places / SCALE).float()), places, atol=4.0)


def test_an_encoder_too_rough_to_interpolate_is_an_abstention():
    class Rough(ToyModel):
        def encode(self, observation):
            z = super().encode(observation)
            return torch.sin(z * 400)

    with pytest.raises(Abstention, match="too rough"):
        build_atlas(Runner(Rough()), TwoRoom(), image_size=56, seed=0, spacing=7.0, finest=7.0)


def test_the_true_cost_goes_through_the_door_where_a_wall_is_between():
    state, goal = np.array([[100.0, 49.0]]), np.array([[124.0, 49.0]])
    assert true_cost(state, goal, kind="path")[0] == pytest.approx(24.0**2)
    assert true_cost(state, goal, kind="straight")[0] == pytest.approx(24.0**2)
    # From (100, 150) to (124, 150): along to the door at 56, 24 through, and back.
    far = true_cost(np.array([[100.0, 150.0]]), np.array([[124.0, 150.0]]), kind="path")[0]
    assert far == pytest.approx((94 + 24 + 94) ** 2)
    same = true_cost(np.array([[30.0, 40.0]]), np.array([[60.0, 80.0]]), kind="path")[0]
    assert same == pytest.approx(2500.0)
    mirrored = true_cost(np.array([[124.0, 150.0]]), np.array([[100.0, 150.0]]), kind="path")[0]
    assert mirrored == pytest.approx(far)


def test_explain_refuses_other_tasks_and_needs_the_protocols_own_cell():
    class Other:
        name = "pusht"

    with pytest.raises(Abstention, match="pusht"):
        explain(ToyModel(), Other(), protocol_from(PROTOCOL, where="t"), readout=None)
    with pytest.raises(UsageError, match="protocol's own"):
        made(ToyModel(), cells=((True, False, False),))


def test_where_nothing_flips_the_interval_is_not_a_point():
    from dreamcheck.planning.attribution import flip
    from dreamcheck.planning.results import Outcome, arm_result
    from dreamcheck.stats import wilson_interval

    outcomes = [
        Outcome(str(i), i, 0, 50, 0, i < 5, False, 10, 80.0, 10.0, 5.0, False, 1) for i in range(20)
    ]
    same = flip(arm_result("a", outcomes), arm_result("b", outcomes), "cost", identity="t")
    assert (same.won, same.lost, same.gain) == (0, 0, 0.0)
    assert same.high == -same.low == pytest.approx(wilson_interval(0, 20).high)
