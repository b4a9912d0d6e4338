"""The consequence on the real simulator: what differs is who ranks, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("stable_worldmodel.envs.pusht.env", reason="needs the [swm] extra")

from dreamcheck.imagination.runner import Runner
from dreamcheck.models.conventions import Conventions
from dreamcheck.models.lewm_model import LeWM
from dreamcheck.study.consequence import MPC, run_case
from dreamcheck.tasks.pusht import PushT, Weak, Zero
from dreamcheck.training.loop import new_network
from dreamcheck.training.recipe import load_recipe

pytestmark = pytest.mark.swm

INPUT = dict(agent_x=96, agent_y=256, block_x=256, block_y=256, goal_x=416, goal_y=256)
SMALL = MPC(prefix=15, control=20, replan=10, horizon=20, proposal_seeds=tuple(range(100, 106)))


class Reads:
    columns = PushT.columns

    def predict(self, latents):
        return np.tile(latents.numpy()[:, :1], (1, 6)) * 100.0


@pytest.fixture(scope="module")
def runner():
    recipe = load_recipe("pusht-small")
    conventions = Conventions(
        image_size=56, frameskip=5, action_dim=2, action_mean=(0.0, 0.0), action_std=(0.5, 0.5),
        history=3,
    )  # fmt: skip
    return Runner(LeWM(new_network(recipe).eval(), conventions), tile=32)


def case(policy, runner, **changes):
    return run_case(PushT(workers=0), policy, runner, Reads(), INPUT, 5, mpc=SMALL, **changes)


def test_without_a_choice_all_controllers_end_in_the_same_place(runner):
    found = case(Zero(), runner)
    assert found["model"] == found["oracle"] == found["random"]


def test_the_oracle_ranks_by_what_happens_and_the_result_is_repeatable(runner):
    first = case(Weak(), runner)
    assert first == case(Weak(), runner)
    assert first["oracle"] > first["model"]  # an untrained model's ranking, on this seed
