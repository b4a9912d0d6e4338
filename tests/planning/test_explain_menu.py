"""The fixed menu that replaces search on PushT: hand-made menus, and laws on the simulator."""

from __future__ import annotations

import numpy as np
import pytest

from dreamcheck.errors import Abstention, UsageError
from dreamcheck.planning import explain_menu, load_protocol
from dreamcheck.planning.attribution import cell_name
from dreamcheck.planning.cases import Case
from dreamcheck.planning.execution import Rows
from dreamcheck.planning.groups import Kept
from dreamcheck.planning.menu import Menu, _best, _read, _run, _write
from dreamcheck.tasks.criteria import SuccessRule
from dreamcheck.tasks.protocol import Column
from dreamcheck.tasks.tworoom import TwoRoom

COLUMNS = (Column("x", "px"), Column("y", "px"))
RULE = SuccessRule.model_validate(
    {"parts": [{"columns": ["x", "y"], "tolerance": 5.0, "unit": "px"}]}
)
GOAL = np.array([10.0, 0.0])


def menu_of(*paths, decoded=(0.0, 1.0, 2.0)):
    """Plans by the x of their states, y = 0; costs in the order of the factorial's cells."""
    states = np.array([[[x, 0.0] for x in path] for path in paths])
    return Menu(
        states=states,
        actions=np.zeros((len(paths), states.shape[1] - 1, 2)),
        model_cost=np.array([2.0, 1.0, 0.0]),
        decoded_cost=None if decoded is None else np.array(decoded),
        latent_cost=np.array([1.0, 0.0, 2.0]),
        state_cost=(states[:, -1, 0] - 10) ** 2,
    )


PATHS = ((0, 4, 30), (0, 9, 60), (0, 2, 20))


def test_each_cell_minimises_its_own_cost():
    menu = menu_of(*PATHS)
    chosen = {c: int(np.argmin(menu.cost((*c, False)))) for c in
              ((False, False), (True, False), (False, True), (True, True))}  # fmt: skip
    # Ends 30, 60 and 20 lie 20, 50 and 10 from the goal: the true cost takes the third.
    assert chosen == {(False, False): 2, (True, False): 0, (False, True): 1, (True, True): 2}


def test_without_a_readout_only_the_decoded_cost_is_missing():
    menu = menu_of(*PATHS, decoded=None)
    with pytest.raises(Abstention, match="no readout"):
        menu.cost((True, False, False))
    assert menu.cost((True, True, False)).argmin() == 2


def test_the_oracle_takes_the_plan_that_passes_the_goal_though_it_ends_farther():
    menu = menu_of(*PATHS)
    # The second plan is at 9, 1 px from the goal, after one step; it ends 50 px away.
    assert _best(menu, GOAL, RULE, COLUMNS) == 1
    # With no plan within 5 px of 100, the nearest end (60) counts.
    assert _best(menu, np.array([100.0, 0.0]), RULE, COLUMNS) == 1
    assert _best(menu, np.array([15.0, 0.0]), RULE, COLUMNS) == 2  # strictly below 5 px: none


def test_a_run_stops_where_the_rule_is_fulfilled():
    case = Case("0:0", 0, 0, 2, (0.0, 0.0), (10.0, 0.0))
    ran = _run([menu_of(*PATHS)], [1], Rows.of((case,), 1), RULE, COLUMNS)
    assert ran.first_success.tolist() == [1] and ran.steps.tolist() == [1]
    assert ran.satisfied.tolist() == [[True, False]]
    assert np.isnan(ran.states[0, 2]).all() and np.isnan(ran.actions[0, 1]).all()
    late = _run([menu_of(*PATHS)], [0], Rows.of((case,), 1), RULE, COLUMNS)
    assert late.first_success.tolist() == [-1] and late.steps.tolist() == [2]


def test_a_menu_survives_the_disk_and_a_damaged_one_is_made_again(tmp_path):
    kept = Kept.at(tmp_path, {"protocol": "p"})
    for name, menu in (("0:3", menu_of(*PATHS)), ("1:3", menu_of(*PATHS, decoded=None))):
        assert _read(kept, name) is None
        _write(kept, name, menu)
        again = _read(kept, name)
        assert (again.decoded_cost is None) == (menu.decoded_cost is None)
        for field in ("states", "actions", "model_cost", "latent_cost", "state_cost"):
            assert np.array_equal(getattr(again, field), getattr(menu, field))
    assert _read(Kept.at(tmp_path, {"protocol": "q"}), "0:3") is None
    for path in tmp_path.rglob("*.npz"):
        path.write_bytes(path.read_bytes()[:200])
    assert _read(kept, "0:3") is None


def test_what_a_menu_cannot_follow_is_named():
    protocol = load_protocol("pusht-menu")

    class Raw:
        name = "pusht"
        raw_columns = COLUMNS

    with pytest.raises(UsageError, match="never replanned"):
        explain_menu(None, Raw(), protocol.replace(budget_steps=50), readout=None)
    with pytest.raises(UsageError, match="context_init = 'grow'"):
        explain_menu(None, Raw(), protocol.replace(context_init="grow"), readout=None)
    with pytest.raises(Abstention, match="task tworoom has none"):
        explain_menu(None, TwoRoom(), protocol, readout=None)


@pytest.mark.swm
def test_on_pusht_the_laws_of_a_menu_hold(tmp_path, monkeypatch):
    pytest.importorskip("stable_worldmodel.envs.pusht.env", reason="needs the [swm] extra")
    from dreamcheck.models.conventions import Conventions
    from dreamcheck.models.lewm_model import LeWM
    from dreamcheck.planning import menu as menus
    from dreamcheck.planning.records import record_explanation
    from dreamcheck.reports import verify_study, write_report
    from dreamcheck.tasks.pusht import PushT
    from dreamcheck.training.loop import new_network
    from dreamcheck.training.recipe import load_recipe

    class Reads:
        columns, identity = PushT.columns, "reads"
        heldout_mae = np.ones(6)

        def predict(self, latents):
            return np.tile(latents.numpy()[:, :1], (1, 6)) * 100.0

    conventions = Conventions(
        image_size=56, frameskip=5, action_dim=2, action_mean=(0.0, 0.0), action_std=(0.5, 0.5),
        history=3,
    )  # fmt: skip
    model = LeWM(new_network(load_recipe("pusht-small")).eval(), conventions)
    small = load_protocol("pusht-menu").replace(
        num_eval=3, fresh={"policy": "weak", "num_episodes": 3, "length": 40},
        solver={"name": "predictive_sampling", "num_samples": 6},
    )  # fmt: skip
    task = PushT(workers=0)
    made = []

    def dying(*arguments):
        # The first run of the larger menu is killed in its third episode.
        made.append(arguments[3])
        if made == [0, 1, 2]:
            raise KeyboardInterrupt
        return once(*arguments)

    once = menus._menu
    two = explain_menu(model, task, small, readout=Reads(), search_factor=2)
    monkeypatch.setattr(menus, "_menu", dying)
    keep = tmp_path / "episodes"
    with pytest.raises(KeyboardInterrupt):
        explain_menu(model, task, small, readout=Reads(), search_factor=3, keep=keep)
    three = explain_menu(model, task, small, readout=Reads(), search_factor=3, keep=keep)
    assert made == [0, 1, 2, 2]  # what was simulated is not simulated again
    block = explain_menu(
        model, task, small.replace(success="block_only"), readout=Reads(), search_factor=3,
        keep=keep,
    )  # fmt: skip
    assert made == [0, 1, 2, 2] and block.protocol["success"] == "block_only"
    straight = explain_menu(model, task, small, readout=Reads(), search_factor=3)
    assert straight.to_dict() == three.to_dict()
    for name, ran in straight.trajectories.items():
        assert np.array_equal(ran.states, three.trajectories[name].states, equal_nan=True)
    for cell in ((False, False, False), (False, True, False), (True, True, False)):
        # The menu's own plans do not depend on how many the larger search has.
        name = cell_name(cell)
        assert np.array_equal(
            two.trajectories[name].states, three.trajectories[name].states, equal_nan=True
        )
    reached = {n: [o.success for o in a.outcomes] for n, a in three.cells.items()}
    best = [o.success for o in three.controls["oracle"].outcomes]
    assert all(b >= s for arm in reached.values() for b, s in zip(best, arm, strict=True))
    assert three.menu == 6 and three.realised.solver == "menu"
    record_explanation(tmp_path, three, model="untrained", task=task)
    assert "fixed menu" in write_report(tmp_path).read_text()
    assert verify_study(tmp_path).ok
