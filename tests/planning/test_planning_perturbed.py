"""Planning with perturbed images: the same episodes and noise, only what is seen differs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_planning_evaluate import protocol
from toy_planning_model import ToyModel

from dreamcheck.digest import digest
from dreamcheck.errors import UsageError
from dreamcheck.imagination.perturbations import Perturbation
from dreamcheck.planning import compare, plan, plan_perturbed
from dreamcheck.tasks.tworoom import TwoRoom

torch.set_num_threads(1)


class Blindable(ToyModel):
    """Where the agent is hidden it believes it in the corner."""

    def encode(self, observation):
        return super().encode(observation).nan_to_num(0.0)


@pytest.fixture(scope="module")
def found():
    severities = [Perturbation("occlusion", s) for s in (0.0, 0.6)]
    return plan_perturbed(Blindable(), TwoRoom(), protocol(), severities)


def test_severity_zero_is_the_clean_evaluation(found):
    assert found[0].perturbed is found[0].clean and found[0].loss_points == 0
    identity = {"name": "occlusion", "severity": 0.0}
    again = plan(Blindable(), TwoRoom(), protocol(perturbation=identity), controls=(), log=False)
    one, two = again.trajectories["planner"], found[0].clean.trajectories["planner"]
    assert np.array_equal(one.states, two.states, equal_nan=True)


def test_a_model_that_no_longer_sees_its_agent_loses_success_on_the_same_cases(found):
    hidden = found[1]
    assert hidden.loss_points > 20
    assert [o.case for o in hidden.perturbed.planner.outcomes] == [
        o.case for o in hidden.clean.planner.outcomes
    ]
    low, high = hidden.to_dict()["loss_low"], hidden.to_dict()["loss_high"]
    assert low <= hidden.loss_points <= high
    assert "occlusion 0.6 on history" in hidden.perturbed.label
    # The toy takes bytes only, and the result says so.
    assert any("8 bits" in n for n in hidden.perturbed.realised.notes)


def test_the_goal_image_is_perturbed_for_a_camera_only():
    from dreamcheck.imagination.runner import Runner
    from dreamcheck.planning.admission import rule_of
    from dreamcheck.planning.control import Setup, _Context
    from dreamcheck.planning.evaluate import prepare
    from dreamcheck.planning.execution import Execution, Rows
    from dreamcheck.planning.space import PlannerSpace

    seen = {}
    for on in ("", "history", "camera"):
        p = protocol(perturbation={"name": "brightness", "severity": 0.4, "on": on} if on else None)
        task, criteria, held, _, selection = prepare(p, TwoRoom())
        model = ToyModel()
        rule, rows = rule_of(p, criteria), Rows.of(selection.cases, 1)
        space = PlannerSpace("dense_normalised", model.conventions, task.action_box)
        setup = Setup(task, p, rule, held.columns, rows, space, model, Runner(model), held)
        context = _Context(
            setup, Execution(task, rows, protocol=p, rule=rule, columns=held.columns)
        )
        seen[on] = (context.goals, context.latents, context.look(np.arange(len(rows))))
    assert torch.equal(seen[""][0], seen["history"][0])
    assert not torch.equal(seen[""][0], seen["camera"][0])
    for on in ("history", "camera"):
        assert not torch.equal(seen[""][1], seen[on][1])
        assert torch.equal(seen[""][2], seen[on][2])  # without a moment one sees what happened


def test_clean_and_perturbed_evaluations_are_not_one_protocol(found):
    clean, perturbed = found[1].clean, found[1].perturbed
    with pytest.raises(UsageError, match="perturbation"):
        compare(clean, perturbed)
    with pytest.raises(UsageError, match="already perturbs"):
        plan_perturbed(
            ToyModel(), TwoRoom(),
            protocol(perturbation={"name": "blur", "severity": 3}), [Perturbation("blur", 5)],
        )  # fmt: skip


def test_a_perturbation_enters_the_digest_and_its_absence_does_not():
    base = protocol()
    # Sealed registrations and kept episodes from before there were perturbations stay valid.
    assert base.digest == digest(base.model_dump(exclude={"note", "perturbation"}))
    noisy = base.replace(perturbation={"name": "gaussian", "severity": 0.05})
    assert noisy.digest != base.digest
    with pytest.raises(UsageError, match=r"outside \[0, 1\]"):
        base.replace(perturbation={"name": "gaussian", "severity": 7})
