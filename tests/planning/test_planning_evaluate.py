"""Evaluation: controls, contexts, outcomes and optimism on a model whose errors are known."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_planning_protocol import walks
from toy_planning_model import SCALE, ToyModel, ToyReadout

from dreamcheck.errors import Abstention, UsageError
from dreamcheck.imagination.runner import Runner
from dreamcheck.planning.admission import rule_of
from dreamcheck.planning.control import Setup, _Context
from dreamcheck.planning.evaluate import plan
from dreamcheck.planning.execution import Execution, Rows
from dreamcheck.planning.protocol import protocol_from
from dreamcheck.planning.recorded import recorded
from dreamcheck.planning.results import deviations, rate, same_cases
from dreamcheck.planning.space import PlannerSpace
from dreamcheck.stats import wilson_interval
from dreamcheck.tasks.criteria import load_criteria
from dreamcheck.tasks.tworoom import TwoRoom

torch.set_num_threads(1)

CEM = {"name": "cem", "num_samples": 64, "num_elites": 8, "iterations": 5}
BASE = {
    "name": "t",
    "offset": 25,
    "budget_steps": 50,
    "num_eval": 6,
    "streams": 2,
    "solver": CEM,
    "start_rule": "fresh_policy",
    "fresh": {"num_episodes": 30, "length": 60},
}


def protocol(**changes):
    return protocol_from({**BASE, **changes}, where="t")


@pytest.fixture(scope="module")
def evaluation():
    return plan(ToyModel(), TwoRoom(), protocol(), readout=ToyReadout())


def test_a_perfect_model_reaches_near_goals_and_the_controls_stand_beside_it(evaluation):
    assert evaluation.planner.success.value > 0.6
    assert set(evaluation.controls) == {"random", "zero", "oracle"}
    assert evaluation.controls["oracle"].success.value == 1.0
    assert evaluation.controls["zero"].success.value == 0.0
    assert evaluation.planner.success.value > evaluation.controls["random"].success.value


def test_outcomes_hold_what_the_simulator_says(evaluation):
    t = evaluation.trajectories["planner"]
    for r, o in enumerate(evaluation.planner.outcomes):
        case = next(c for c in evaluation.selection.cases if c.id == o.case)
        path = t.states[r, : int(t.steps[r]) + 1]
        apart = np.hypot(*(path - np.array(case.goal_state)).T)
        assert o.final_distance == pytest.approx(apart[-1]) and o.min_distance == pytest.approx(
            apart.min()
        )
        assert o.success == bool((apart[1:] < 16).any())
        assert o.steps == (int(np.argmax(apart[1:] < 16)) + 1 if o.success else 50)
        assert np.isnan(t.states[r, int(t.steps[r]) + 1 :]).all()


def test_already_solved_starts_are_counted_and_leave_the_headline(evaluation):
    trivial = [o for o in evaluation.planner.outcomes if o.start_distance < 16]
    assert evaluation.planner.num_trivial == len(trivial) // 2
    assert evaluation.planner.success.num_cases == 6 - evaluation.planner.num_trivial
    assert evaluation.planner.success_all.num_cases == 6


def test_an_episode_evaluated_alone_equals_itself_among_others(evaluation, tmp_path):
    data = recorded_of(evaluation)
    listed = tmp_path / "one.json"
    case = evaluation.selection.cases[3]
    base = protocol(start_rule="frame0", fresh=BASE["fresh"], num_eval=4)
    together = plan(ToyModel(), TwoRoom(), base, data=data, controls=(), log=False)
    picked = together.selection.cases[2]
    listed.write_text(json.dumps({"goal_offset": 25, "episodes": [{"episode": picked.episode}]}))
    alone = plan(
        ToyModel(),
        TwoRoom(),
        base.replace(episode_list=str(listed)),
        data=data,
        controls=(),
        log=False,
    )
    rows = [r for r, o in enumerate(together.planner.outcomes) if o.case == picked.id]
    a, b = alone.trajectories["planner"], together.trajectories["planner"]
    assert np.array_equal(a.actions, b.actions[rows], equal_nan=True)
    assert alone.planner.outcomes == tuple(together.planner.outcomes[r] for r in rows)
    assert case is not None


def recorded_of(evaluation):
    from dreamcheck.planning.recorded import fresh_episodes

    p = protocol()
    return fresh_episodes(TwoRoom(), p.fresh, seed=p.seed).episodes


def test_running_twice_gives_the_same_record_and_another_seed_does_not(evaluation):
    again = plan(ToyModel(), TwoRoom(), protocol(), readout=ToyReadout())
    assert json.dumps(again.to_dict()) == json.dumps(evaluation.to_dict())
    other = plan(ToyModel(), TwoRoom(), protocol(seed=7), controls=(), log=False)
    assert other.realised.list_digest != evaluation.realised.list_digest


def test_the_random_control_does_not_depend_on_the_checkpoint(evaluation):
    other = plan(ToyModel(speed=-5.0), TwoRoom(), protocol(), log=False)
    assert other.controls["random"].outcomes == evaluation.controls["random"].outcomes
    # A model that believes in backwards motion runs away from near goals.
    assert other.planner.success.value < evaluation.planner.success.value
    assert other.planner.overshoot and not evaluation.planner.overshoot


def test_optimism_is_zero_for_a_true_model_and_positive_for_one_that_flatters_its_plans():
    # In one room, no wall: starts near (60, 60) heading right for 25 steps at 1 px.
    data = walks([60] * 6, start=50.0)
    base = protocol(start_rule="sampled", solver={**CEM, "iterations": 8})
    true = plan(ToyModel(std=0.3), TwoRoom(), base, data=data, readout=ToyReadout(), controls=())
    flattering = plan(
        ToyModel(speed=15.0, std=0.3), TwoRoom(), base, data=data, readout=ToyReadout(), controls=()
    )
    assert abs(true.optimism.distance) < 3.0
    assert flattering.optimism.distance is not None
    assert flattering.optimism.cost > 10 * abs(true.optimism.cost)


def test_success_rate_intervals_are_wilsons_and_streams_are_averaged_inside_a_case():
    single = rate(np.array([1, 1, 0, 1.0]), streams=1)
    low, high = wilson_interval(3, 4)
    assert (single.low, single.high) == (pytest.approx(low), pytest.approx(high))
    assert rate(np.zeros(5), streams=3).high > 0.3
    assert rate(np.array([]), streams=1) is None


def test_holding_the_goal_is_harder_than_touching_it():
    data = walks([60] * 6, start=50.0)
    touched = plan(ToyModel(), TwoRoom(), protocol(start_rule="frame0"), data=data, log=False)
    held = plan(
        ToyModel(), TwoRoom(), protocol(start_rule="frame0", success="held"), data=data, log=False
    )
    end = plan(
        ToyModel(), TwoRoom(), protocol(start_rule="frame0", success="at_end"), data=data, log=False
    )
    assert all(
        h.steps >= t.steps + 4
        for h, t in zip(held.planner.outcomes, touched.planner.outcomes, strict=True)
        if h.success and t.success
    )
    assert {o.steps for o in end.planner.outcomes} == {50}
    assert all(o.success == o.at_end for o in end.planner.outcomes)


def setup_for(model, base, data, rows=None):
    task, criteria = TwoRoom(), load_criteria("tworoom")
    held = recorded(data)
    from dreamcheck.planning.cases import select

    cases = select(base, held, history=model.history_max).cases
    rows = Rows.of(cases, 1)
    setup = Setup(
        task=task,
        protocol=base,
        rule=rule_of(base, criteria),
        columns=held.columns,
        rows=rows,
        space=PlannerSpace("dense_normalised", model.conventions, task.action_box),
        model=model,
        runner=Runner(model),
        recorded=held,
    )
    run = Execution(task, rows, protocol=base, rule=setup.rule, columns=held.columns)
    return setup, run


def test_contexts_pair_each_latent_with_the_block_that_leaves_it():
    model = ToyModel(history=3)
    data = walks([60] * 2, start=50.0)
    base = protocol(start_rule="frame0", num_eval=2, context_init="grow", stop="budget")
    setup, run = setup_for(model, base, data)
    context = _Context(setup, run)
    assert context.latents.shape[1] == 1 and context.past.shape[1] == 0
    for move in (0.5, -0.25, 1.0):
        block = np.full((2, 5, 2), [move, 0.0])
        for t in range(5):
            run.step(block[:, t])
        context.append(np.arange(2), block)
    latents, past = context.latents, context.past
    assert latents.shape[1] == 3 and past.shape[1] == 2
    # The block leaving latent i explains the way to latent i + 1: 5 steps of 5 px x action.
    for i in range(2):
        moved = (latents[:, i + 1] - latents[:, i])[:, 0] * SCALE
        assert np.allclose(moved, past[:, i, 0] * 0.5 * 25, atol=1.0)
    assert np.allclose(past[:, 0, 0] * 0.5, -0.25) and np.allclose(past[:, 1, 0] * 0.5, 1.0)


def test_repeat_fills_the_history_with_the_start_and_resting_actions():
    model = ToyModel(history=3)
    model.conventions = model.conventions.model_copy(update={"action_mean": (0.1, 0.0)})
    base = protocol(start_rule="frame0", num_eval=2, context_init="repeat")
    setup, run = setup_for(model, base, walks([60] * 2))
    context = _Context(setup, run)
    assert (context.latents == context.latents[:, :1]).all() and context.latents.shape[1] == 3
    # A resting action is not zero after standardising: (0 - 0.1) / 0.5.
    assert np.allclose(context.past[:, :, 0], -0.2) and context.past.shape[1] == 2


def test_history_takes_the_recorded_frames_before_the_start():
    model = ToyModel(history=3)
    base = protocol(start_rule="frame0", num_eval=2, context_init="history")
    setup, run = setup_for(model, base, walks([60] * 2, start=50.0))
    context = _Context(setup, run)
    # Two blocks of five frames at 1 px a frame before the first legal start (frame 10).
    x = context.latents[:, :, 0] * SCALE
    assert np.allclose(np.diff(x, axis=1), 5.0, atol=0.6)
    assert np.allclose(context.past[:, :, 0] * 0.5, 0.2)
    assert {c.start for c in setup.rows.cases} == {10}


def test_single_shows_the_model_one_frame_at_every_replan():
    model = ToyModel(history=3)
    plan(model, TwoRoom(), protocol(context_init="single", num_eval=2), controls=(), log=False)
    assert all(shape[1] <= 3 for shape in model.calls)
    assert {shape[1] for shape in model.calls[::5]} == {1}


def test_receding_by_one_block_replans_after_every_block():
    made = plan(
        ToyModel(), TwoRoom(), protocol(receding=1, num_eval=2, streams=1), controls=(), log=False
    )
    for o in made.planner.outcomes:
        assert o.replans == -(-o.steps // 5)


def test_the_shared_generator_is_kept_for_replication_and_says_so():
    made = plan(
        ToyModel(),
        TwoRoom(),
        protocol(rng_mode="shared", streams=1, num_eval=2),
        controls=(),
        log=False,
    )
    assert any("shared" in note for note in made.realised.notes)
    again = plan(
        ToyModel(),
        TwoRoom(),
        protocol(rng_mode="shared", streams=1, num_eval=2),
        controls=(),
        log=False,
    )
    assert made.planner.outcomes == again.planner.outcomes


def test_the_audit_runs_before_the_model_is_loaded():
    loaded = []

    def load():
        loaded.append(1)
        return ToyModel()

    with pytest.raises(UsageError, match="no episode is eligible"):
        plan(load, TwoRoom(), protocol(offset=90), controls=())
    assert loaded == []
    plan(load, TwoRoom(), protocol(num_eval=1, streams=1), controls=(), log=False)
    assert loaded == [1]


def test_deviations_come_from_the_realised_protocol(evaluation):
    reference = protocol(budget_steps=150, num_eval=50).model_dump()
    lines = deviations(evaluation.realised, reference)
    assert "budget_steps: 50, reference 150" in lines
    assert "episodes evaluated: 6, reference 50" in lines
    assert not any(line.startswith("offset") for line in lines)


def test_what_cannot_be_used_is_refused_by_name():
    with pytest.raises(UsageError, match="block = 4"):
        plan(ToyModel(), TwoRoom(), protocol(block=4), controls=())
    with pytest.raises(UsageError, match="action_box"):
        plan(ToyModel(std=3.0), TwoRoom(), protocol(), controls=())
    with pytest.raises(UsageError, match="speed"):
        plan(ToyModel(), TwoRoom(), protocol(), speed="warp")
    with pytest.raises(UsageError, match="success = 'nearest'"):
        plan(ToyModel(), TwoRoom(), protocol(success="nearest"), controls=())

    class Unplaceable:
        name = "tworoom"
        action_box = TwoRoom.action_box

        def __getattr__(self, name):
            if name.startswith("with_"):
                raise AttributeError(name)
            return getattr(TwoRoom(), name)

    with pytest.raises(Abstention, match="with_state"):
        plan(ToyModel(), Unplaceable(), protocol(), controls=())


def test_arms_on_other_cases_are_not_paired(evaluation):
    other = plan(ToyModel(), TwoRoom(), protocol(seed=9), controls=(), log=False)
    with pytest.raises(UsageError, match="not run on the same episodes"):
        same_cases(evaluation.planner, other.planner)


def test_the_lines_state_goal_rule_and_budget_first(evaluation):
    assert evaluation.lines()[0].startswith("offset 25 / budget 50")


def test_an_evaluation_comes_back_from_its_json(evaluation, tmp_path):
    from dreamcheck.planning.reading import evaluation_from, read_evaluation

    path = tmp_path / "e.json"
    path.write_text(json.dumps(evaluation.to_dict()))
    found = read_evaluation(path)
    assert json.dumps(found.to_dict()) == path.read_text()
    assert found.planner.outcomes == evaluation.planner.outcomes
    with pytest.raises(UsageError, match="'planner'"):
        evaluation_from({k: v for k, v in evaluation.to_dict().items() if k != "planner"})
    wrong = {**evaluation.to_dict(), "optimism": {"hope": 1}}
    with pytest.raises(UsageError, match="'hope'"):
        evaluation_from(wrong)


def test_the_record_counts_what_the_solver_was_asked_not_what_its_settings_say(evaluation):
    # 64 candidates in each of 5 iterations, counted at the cost.
    assert evaluation.realised.iterations == (5, 5)
    assert evaluation.realised.candidates == (320, 320)
    lying = replace(evaluation.realised, solver_settings={"iterations": 30})
    assert "solver iterations: 5 counted per replan, 30 asked for" in deviations(
        lying, protocol().model_dump()
    )
    assert not any("counted" in d for d in deviations(evaluation.realised, {}))


def test_a_gradient_solver_is_counted_by_its_steps():
    p = protocol(
        num_eval=1,
        streams=1,
        budget_steps=25,
        solver={"name": "gradient", "steps": 3, "num_starts": 2},
    )
    made = plan(ToyModel(), TwoRoom(), p, controls=("random",), log=False)
    assert made.realised.iterations == (3, 3) and made.realised.candidates == (6, 6)


def test_without_the_random_control_the_result_says_that_it_has_no_floor():
    p = protocol(num_eval=1, streams=1, budget_steps=25)
    made = plan(ToyModel(), TwoRoom(), p, controls=("zero",), log=False)
    assert "without its floor" in made.controls_missing["random"]
    assert any("random: left out" in line for line in made.lines())


def test_what_cannot_be_evaluated_loads_no_model_with_history_either():
    def never():
        raise AssertionError("the model was loaded before the audit")

    p = protocol(start_rule="frame0", context_init="history", offset=100)
    with pytest.raises(UsageError, match="no episode is eligible"):
        plan(never, TwoRoom(), p, data=walks([30] * 3))
    # Enough for a model of one frame, too little for three: found out once it is loaded.
    with pytest.raises(UsageError, match="no episode is eligible"):
        plan(
            lambda: ToyModel(history=3), TwoRoom(), p.replace(offset=25), data=walks([30] * 3)
        )  # fmt: skip


def test_fresh_episodes_are_made_once_and_the_guard_sees_them(monkeypatch):
    from dreamcheck.planning import evaluate
    from dreamcheck.planning.guarding import Guarded

    made, seen = [], []
    real = evaluate.fresh_episodes

    def counted(*args, **kwargs):
        made.append(real(*args, **kwargs))
        return made[-1]

    def guard(model, task, held):
        seen.append(held)
        return Guarded(("a stamp",), {"verdict": "fine", "measured": {}}, None)

    monkeypatch.setattr(evaluate, "fresh_episodes", counted)
    p = protocol(num_eval=1, streams=1, budget_steps=25)
    ready = evaluate.prepare(p, TwoRoom())
    done = plan(
        ToyModel, TwoRoom(), p, controls=("random",), log=False, guard=guard, prepared=ready
    )
    assert len(made) == 1 and seen[0] is made[0]
    assert done.stamps == ("a stamp",) and done.realised.domain_guard["verdict"] == "fine"
    assert "normalisation audit: not asked" in done.lines()[-1]
