"""Acquisitions against formulas written out on small libraries."""

import math

import numpy as np
import pytest

from dreamcheck.discovery import (
    PARAMETERS,
    Library,
    Score,
    SearchParameters,
    get_specification,
    make_method,
    ridge,
    specification_from,
)
from dreamcheck.discovery.methods.portfolio import stands_out
from dreamcheck.discovery.representation import action_features, action_sequence
from dreamcheck.discovery.search import Observed


@pytest.fixture(scope="module")
def square():
    return Library.build(
        specification_from(
            {
                "name": "square",
                "task": "t",
                "title": "t",
                "source": "t",
                "coordinates": [
                    {"name": "x", "kind": "grid", "values": [0, 1, 2, 3, 4]},
                    {"name": "y", "kind": "grid", "values": [0, 1, 2, 3, 4]},
                ],
            }
        )
    )


def observed_of(library, indices, scores):
    scores = np.array(scores, dtype=float)
    unseen = np.ones(len(library), dtype=bool)
    unseen[indices] = False
    return Observed(
        indices=np.array(indices),
        scores=scores,
        mean=float(scores.mean()),
        spread=max(float(scores.std()), 1e-6),
        unseen=unseen,
        step=len(indices),
    )


INDICES = [0, 7, 12, 18, 24, 3, 10, 21, 14]
SCORES = [0.1, 0.9, 1.4, 0.2, 0.5, -0.3, 0.7, 0.6, 1.1]


def test_the_published_parameters_are_those_of_the_table():
    lewm, dino = PARAMETERS["lewm-pusht"], PARAMETERS["dino-pusht"]
    fields = ("scout", "beta", "anchors", "global_pool", "parent_weight")
    fields += ("proximity_weight", "novelty_weight", "proximity_scale")
    table = [tuple(getattr(p, f) for f in fields) for p in (lewm, dino)]
    assert table[0] == (3, 0.35, 4, 16, 0.10, 0.08, 0.05, 0.50)
    assert table[1] == (8, 0.45, 4, 24, 0.10, 0.12, 0.05, 0.45)
    lengths = {n: PARAMETERS[n].kernel_length for n in ("pointmaze", "diamond", "iris")}
    assert lengths == {"pointmaze": 0.55, "diamond": 0.75, "iris": 0.60}


def test_a_ridge_equals_the_normal_equations_with_a_free_intercept():
    rng = np.random.default_rng(0)
    for n in (4, 40):  # the dual and the primal form
        x, y = rng.random((n, 3)), rng.normal(size=n)
        design = np.column_stack([np.ones(n), ridge.features(x)])
        penalty = 2.0 * np.eye(design.shape[1])
        penalty[0, 0] = 0.0
        weights = np.linalg.solve(design.T @ design + penalty, design.T @ y)
        new = rng.random((6, 3))
        expected = np.column_stack([np.ones(6), ridge.features(new)]) @ weights
        assert np.allclose(ridge.fit(x, y, penalty=2.0).predict(new), expected)


def test_ridge_features_are_linear_squared_and_pairwise():
    assert ridge.features(np.array([[2.0, 3.0, 5.0]])).tolist() == [[2, 3, 5, 4, 9, 25, 6, 10, 15]]


def test_interaction_maximises_its_formula(square):
    method = make_method("interaction", square, seed=0, budget=20)
    found = method._next(observed_of(square, INDICES, SCORES))
    x, y = square.psi, np.array(SCORES)
    prediction = ridge.fit(x[INDICES], y, penalty=1.0).predict(x)
    distance = np.linalg.norm(x[:, None] - x[None, INDICES], axis=2)
    spread = 1.4826 * np.median(np.abs(y - np.median(y)))
    anchors = y >= np.quantile(y, 0.75)
    near = np.exp(-(distance[:, anchors].min(axis=1) ** 2) / (2 * 0.18**2))
    values = prediction + 0.30 * spread * distance.min(axis=1) + 0.25 * spread * near
    values[INDICES] = -np.inf
    assert found.index == values.argmax()
    assert found.acquisition == pytest.approx(values.max())


def test_beam_maximises_its_formula_on_the_frontier(square):
    method = make_method("beam", square, seed=0, budget=20)
    found = method._next(observed_of(square, INDICES, SCORES))
    x, y = square.psi, np.array(SCORES)
    best = np.argsort(-y)[:4]
    digits = square.digits.astype(int)
    prediction = ridge.fit(x[INDICES], y, penalty=2.0).predict(x)
    values = {}
    for i in range(25):
        parents = [y[b] for b in best if (digits[i] != digits[INDICES[b]]).sum() == 1]
        if i in INDICES or not parents:
            continue
        distance = np.linalg.norm(x[i] - x[INDICES], axis=1)
        values[i] = (
            0.55 * (max(parents) - y.mean()) / y.std()
            + 0.30 * (prediction[i] - y.mean()) / y.std()
            + 0.30 * distance.min()
            + 0.25 * np.exp(-(distance[best].min() ** 2) / (2 * 0.5**2))
        )
    assert found.acquisition == pytest.approx(max(values.values()))
    assert values[found.index] == pytest.approx(found.acquisition)


def test_beam_predicts_nothing_before_eight_observations(square):
    method = make_method("beam", square, seed=0, budget=20)
    observed = observed_of(square, [12], [2.0])
    found = method._next(observed)
    # One observation: parent and prediction are 0. Distance d gives 0.3 d + 0.25 exp(-2 d^2);
    # row and column neighbours lie at 0.25 or 0.5: 0.2956 and 0.3016.
    assert found.acquisition == pytest.approx(0.15 + 0.25 * math.exp(-0.5))
    assert found.tied == 4


def test_kernel_ucb_maximises_mean_plus_the_root_of_the_sum(square):
    p = SearchParameters(kernel_length=0.6)
    method = make_method("kernel-ucb", square, seed=0, budget=20, parameters=p)
    bound = method._bound(observed_of(square, INDICES, SCORES))
    x, r = square.psi, np.array(SCORES)
    eta = max(r.std(), 0.25 * np.abs(r).max(), 1e-8)
    for i in range(25):
        w = np.exp(-((x[i] - x[INDICES]) ** 2).sum(axis=1) / (2 * 0.6**2))
        mu = (w * r).sum() / w.sum()
        v = (w * (r - mu) ** 2).sum() / w.sum()
        assert bound[i] == pytest.approx(mu + math.sqrt(v + eta**2 / (w.sum() + 1e-6)))


def test_kernel_ucb_stays_finite_where_every_weight_underflows(square):
    p = SearchParameters(kernel_length=0.005)
    method = make_method("kernel-ucb", square, seed=0, budget=20, parameters=p)
    assert np.isfinite(method._bound(observed_of(square, [0, 1], [0.5, 1.0]))).all()


def test_cem_draws_with_the_weights_of_its_formula(square):
    observed = observed_of(square, INDICES, SCORES)
    x, y = square.psi, np.array(SCORES)
    # ceil(0.35 * 9) = ceil(3.15) = 4 elites.
    elites = np.array(INDICES)[np.argsort(-y)[:4]]
    distance = np.linalg.norm(x[:, None] - x[None, elites], axis=2).min(axis=1)
    weight = 0.85 * np.exp(-(distance**2) / (2 * 0.22**2)) + 0.15
    weight[INDICES] = 0.0
    weight /= weight.sum()
    counts = np.zeros(25)
    for seed in range(1500):
        found = make_method("cem", square, seed=seed, budget=20)._next(observed)
        assert found.acquisition == pytest.approx(weight[found.index])
        counts[found.index] += 1
    expected = 1500 * weight
    inside = expected > 0
    chi = ((counts - expected)[inside] ** 2 / expected[inside]).sum()
    # 16 unseen inputs, 15 degrees of freedom: P(chi^2 > 44.3) = 1e-4.
    assert chi < 44.3 and counts[~inside].sum() == 0


def test_cem_counts_its_elites_in_exact_decimals(square):
    # 0.35 * 20 is 7; floating point says 7.000000000000001 for 0.07 * 100, and ceil then 8.
    for t, elites in ((1, 1), (3, 2), (20, 7), (40, 14), (100, 35)):
        assert -(-35 * t // 100) == elites


def test_frontier_and_beam_take_all_unseen_inputs_when_nothing_is_around():
    # x and y are tied to each other, so no single edit is valid: every R(x) is empty.
    diagonal = Library.build(
        specification_from(
            {
                "name": "diagonal",
                "task": "t",
                "title": "t",
                "source": "t",
                "coordinates": [
                    {"name": "x", "kind": "grid", "values": list(range(9))},
                    {"name": "y", "kind": "grid", "values": list(range(9))},
                ],
                "rules": [{"rule": "same"}],
            }
        ),
        task_rules={"same": lambda c: c["x"] == c["y"]},
    )
    for name in ("frontier", "beam", "typed-neighbourhood"):
        method = make_method(name, diagonal, seed=0, budget=9)
        while ids := method.ask():
            method.tell(ids, [Score(float(len(method.queries)))])
        assert len(method.queries) == 9
        assert {e.pool for e in method.trace if not e.scout} == {"all"}


def test_basinlens_marks_global_candidates_without_a_parent(square):
    method = make_method("basinlens", square, seed=0, budget=25)
    while ids := method.ask():
        values = square.values(square.index(ids[0]))
        method.tell(ids, [Score(math.sin(values["x"]) + 0.1 * values["y"])])
    for entry in method.trace:
        assert (entry.parent is not None) == (entry.pool in ("local", "both"))


def test_a_tail_stands_out_above_six_mads_and_half_the_median():
    # median 1, MAD 0.125: the bar is 1 + max(0.75, 0.5) = 1.75, which is not above itself.
    assert stands_out([0.875, 0.875, 1.0, 1.125, 1.7501])
    assert not stands_out([0.875, 0.875, 1.0, 1.125, 1.75])
    # median 4, MAD 0.25: half the median is more than six MADs, so the bar is 6.
    assert stands_out([3.75, 3.75, 4.0, 4.25, 6.01])
    assert not stands_out([3.75, 3.75, 4.0, 4.25, 6.0])
    assert not stands_out([0.0, 99.0])


def test_the_portfolio_alternates_only_while_a_risk_stands_out(square):
    method = make_method("portfolio", square, seed=1, budget=12)
    step = 0
    while ids := method.ask():
        # A spike among the first three and equal scores elsewhere keep the condition true.
        method.tell(ids, [Score(10.0 if step == 1 else 1.0)])
        step += 1
    turns = [e.pool == "structured" for e in method.trace[3:]]
    assert turns == [i % 2 == 0 for i in range(9)]
    flat = make_method("portfolio", square, seed=1, budget=12)
    while ids := flat.ask():
        flat.tell(ids, [Score(1.0)])
    assert not any(e.pool == "structured" for e in flat.trace)
    assert list(flat.queries) == square.scout(1, 12)


@pytest.fixture(scope="module")
def maze():
    return Library.build(get_specification("pointmaze-480"))


def test_the_pointmaze_representation_is_the_seven_numbers_of_the_paper(maze):
    features = action_features(maze)
    i = maze.find({"reset_seed": 8, "template": "right-up", "scale": 0.5})
    # [R, U] cycled to R, U, R and halved: mean (1/3, 1/6), stds sqrt(2)/6 each, every change
    # is half of sqrt(2).
    assert features.phi[i] == pytest.approx(
        [8 / 64, 1 / 3, 1 / 6, math.hypot(1 / 3, 1 / 6), math.sqrt(2) / 3, math.sqrt(0.5), 0.5]
    )
    assert (
        action_sequence(maze, i).tolist() == [[0.5, 0.0]] * 5 + [[0.0, 0.5]] * 5 + [[0.5, 0.0]] * 5
    )


def test_typed_neighbours_share_the_seed_and_meet_one_of_three_conditions(maze):
    method = make_method("typed-neighbourhood", maze, seed=0, budget=9)
    here = maze.find({"reset_seed": 3, "template": "right", "scale": 1.0})
    around = {tuple(maze.values(i).values()) for i in method._neighbours(here).tolist()}
    assert {v[0] for v in around} == {3} and len(around) < 39
    assert (3, "left", 0.75) in around  # |0.75 - 1.0| <= 0.26
    assert (3, "right", 0.25) in around  # abar . abar' > 0
    # left at 0.5: scale differs by 0.5, abar by 1.5, and the directions are opposite.
    assert (3, "left", 0.5) not in around
