from __future__ import annotations

import numpy as np
import pytest

from dreamcheck.stats import StatisticsInputError, against_siblings, sibling_z

SEEDS, REFERENCES = 16, 40


def family(bump_own=0.0, bump_siblings=0.0, *, siblings=3, relative=0.1):
    """One input x of a family whose losses are 1 ± 0.1 everywhere, bumped where told."""
    rng = np.random.default_rng(4)

    def noise(*shape):
        return 1 + 0.1 * rng.standard_normal(shape)

    return against_siblings(
        {"x": noise(SEEDS) + bump_own},
        {"x": noise(siblings, SEEDS) + bump_siblings},
        noise(REFERENCES, SEEDS),
        noise(siblings, REFERENCES, SEEDS),
        noise(SEEDS),
        noise(siblings, SEEDS),
        relative={"x": relative},
        usual_relative=0.5,
        root_seed=1,
    )[0]


def test_z_is_worked_by_hand():
    # Siblings 1, 2, 3: mean 2, standard deviation 1 (ddof 1); (5 - 2) / 1 = 3.
    assert sibling_z(5.0, [1.0, 2.0, 3.0]).value == pytest.approx(3.0)


def test_one_sibling_has_no_z_and_says_why():
    z = sibling_z(5.0, [1.0])
    assert not z.defined and "2 are needed" in z.reason
    assert "all equal" in sibling_z(5.0, [1.0, 1.0]).reason
    assert "no risk" in sibling_z(float("nan"), [1.0, 2.0]).reason


def test_a_failure_that_no_sibling_shares_is_this_checkpoints():
    found = family(bump_own=3.0)
    assert found.label == "this checkpoint" and found.fails_alike == 0
    assert found.z.value > 5 and found.excess.low > found.excess.threshold


def test_an_input_on_which_siblings_fail_alike_is_hard_for_everyone():
    found = family(bump_own=3.0, bump_siblings=3.0)
    assert found.label == "hard for everyone" and found.fails_alike == 3


def test_a_shared_failure_beyond_the_usual_relative_risk_is_not_called_hard():
    # Twice the frozen world's share that is usual: difficulty does not explain it.
    assert family(3.0, 3.0, relative=1.0).label == "shared with siblings"
    assert family(3.0, 3.0, relative=None).label == "shared with siblings"


def test_nothing_unusual_is_undecided():
    assert family().label == "undecided"


def test_a_checkpoint_that_is_worse_everywhere_owns_no_single_input():
    # Two units worse on every input, the references too: the input does not stand out.
    rng = np.random.default_rng(0)
    found = against_siblings(
        {"x": 3 + rng.normal(0, 0.1, SEEDS)},
        {"x": 1 + rng.normal(0, 0.1, (2, SEEDS))},
        3 + rng.normal(0, 0.1, (REFERENCES, SEEDS)),
        1 + rng.normal(0, 0.1, (2, REFERENCES, SEEDS)),
        3 + rng.normal(0, 0.1, SEEDS),
        1 + rng.normal(0, 0.1, (2, SEEDS)),
        relative={"x": 0.1},
        usual_relative=0.5,
        root_seed=1,
    )[0]
    assert found.label == "undecided"


def test_a_missing_sibling_loss_is_no_loss_of_zero():
    rng = np.random.default_rng(0)
    table = 1 + rng.normal(0, 0.1, (2, SEEDS))
    table[0, 3] = np.nan
    found = against_siblings(
        {"x": 4 + rng.normal(0, 0.1, SEEDS)},
        {"x": table},
        1 + rng.normal(0, 0.1, (REFERENCES, SEEDS)),
        1 + rng.normal(0, 0.1, (2, REFERENCES, SEEDS)),
        1 + rng.normal(0, 0.1, SEEDS),
        1 + rng.normal(0, 0.1, (2, SEEDS)),
        relative={"x": 0.1},
        usual_relative=0.5,
        root_seed=1,
    )[0]
    # 15 complete seeds are fewer than the 16 that a verdict needs.
    assert found.excess.verdict == "incomplete" and np.isnan(found.risks[0])
    assert found.label == "undecided"


def test_tables_that_do_not_fit_are_refused():
    with pytest.raises(StatisticsInputError, match="at least one sibling"):
        against_siblings(
            {}, {}, np.ones((3, 4)), np.ones((0, 3, 4)), [1] * 4, [],
            relative={}, usual_relative=None, root_seed=0,
        )  # fmt: skip
