"""The fast Gaussian process against scikit-learn's."""

import warnings

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from dreamcheck.discovery import Library, get_specification, specification_from
from dreamcheck.discovery.geometry import GridGeometry
from dreamcheck.discovery.gp import GaussianProcess, _ExactObjective, _Objective
from dreamcheck.discovery.lbfgsb import _direct, _public


@pytest.fixture(scope="module")
def geometry():
    return GridGeometry(Library.build(get_specification("pusht-3510")))


def landscape(geometry):
    x = geometry.library.psi
    return np.sin(3 * x[:, 0] + 2 * x[:, 2]) + x[:, 1] * x[:, 4] + 0.1 * np.cos(9 * x[:, 5])


def reference(x, y):
    kernel = ConstantKernel(1.0, "fixed") * RBF([0.25] * x.shape[1], (0.03, 3.0))
    kernel += WhiteKernel(1e-4, "fixed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return GaussianProcessRegressor(kernel, alpha=1e-6, normalize_y=True).fit(x, y)


@pytest.mark.parametrize("n", [3, 9, 16, 17, 40])
def test_length_scales_mean_and_std_equal_scikit_learns(geometry, n):
    indices = np.random.default_rng(n).choice(len(geometry.library), n, replace=False)
    y = landscape(geometry)[indices]
    x = geometry.library.psi
    theirs = reference(x[indices], y)
    ours = GaussianProcess(geometry, indices, y)
    assert np.allclose(theirs.kernel_.k1.k2.length_scale, ours.length_scales, rtol=1e-5)
    mean, std = theirs.predict(x, return_std=True)
    mine, mine_std = ours.predict(np.arange(len(x)))
    assert np.allclose(mean, mine, atol=1e-6) and np.allclose(std, mine_std, atol=1e-6)
    assert np.allclose(ours.mean(), mine, atol=1e-12)
    assert ours.log_marginal_likelihood == pytest.approx(theirs.log_marginal_likelihood_value_)


@pytest.mark.parametrize("n", [3, 7, 16])
def test_short_records_are_evaluated_in_scikit_learns_own_bits(geometry, n):
    rng = np.random.default_rng(n)
    indices = rng.choice(len(geometry.library), n, replace=False)
    x, y = geometry.library.psi[indices], rng.normal(size=n)
    theirs = reference(x, y)
    objective = _ExactObjective(x, (y - y.mean()) / y.std())
    for _ in range(5):
        theta = rng.uniform(np.log(0.03), np.log(3.0), 6)
        value, gradient = theirs.log_marginal_likelihood(theta, eval_gradient=True)
        assert objective(theta)[0] == -value and (objective(theta)[1] == -gradient).all()


def test_the_gradient_is_that_of_the_likelihood(geometry):
    rng = np.random.default_rng(0)
    indices = rng.choice(len(geometry.library), 30, replace=False)
    y = rng.normal(size=30)
    objective = _Objective(geometry.coordinate_distances(indices), y)
    theta = rng.uniform(-2, 0.5, 6)
    gradient = objective(theta)[1]
    for c in range(6):
        step = np.zeros(6)
        step[c] = 1e-5
        numeric = (objective(theta + step)[0] - objective(theta - step)[0]) / 2e-5
        assert gradient[c] == pytest.approx(numeric, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("count", [1, 16])
@pytest.mark.parametrize("n", [3, 20, 48])
def test_pruned_leaders_are_the_leaders_of_the_whole_library(geometry, n, count):
    rng = np.random.default_rng(n)
    indices = rng.choice(len(geometry.library), n, replace=False)
    surrogate = GaussianProcess(geometry, indices, landscape(geometry)[indices])
    unseen = np.ones(len(geometry.library), dtype=bool)
    unseen[indices] = False
    mean, std = surrogate.predict(np.arange(len(unseen)))
    values = np.where(unseen, (mean + 0.35 * std - 0.2) / 0.7, -np.inf)
    found, value = surrogate.leaders(
        beta=0.35, unseen=unseen, count=count, centre=0.2, spread=0.7, tolerance=1e-9
    )
    least = np.sort(values)[-count]
    assert found.tolist() == np.flatnonzero(values >= least - 1e-9).tolist()
    assert np.allclose(value, values[found], atol=1e-12)


def test_a_sparse_library_gives_the_same_posterior_as_its_rows():
    # 400 tuples of a grid of 160,000: too sparse for the factorised sums.
    specification = specification_from(
        {
            "name": "s",
            "task": "t",
            "title": "t",
            "source": "t",
            "coordinates": [
                {"name": f"c{i}", "kind": "grid", "values": list(range(20))} for i in range(4)
            ],
            "subsample": {"size": 400, "seed": 1},
        }
    )
    geometry = GridGeometry(Library.build(specification))
    assert not geometry.factorised
    indices = np.arange(0, 400, 25)
    y = np.sin(5 * geometry.library.psi.sum(axis=1))[indices]
    mean, std = reference(geometry.library.psi[indices], y).predict(
        geometry.library.psi, return_std=True
    )
    surrogate = GaussianProcess(geometry, indices, y)
    assert np.allclose(surrogate.mean(), mean, atol=1e-7)
    assert np.allclose(surrogate.std(np.arange(400)), std, atol=1e-7)
    nearest = ((geometry.library.psi[:, None] - geometry.library.psi[indices]) ** 2).sum(2).min(1)
    assert np.allclose(geometry.min_squared_distance(indices), nearest)


def test_the_factorised_nearest_distance_is_the_plain_one(geometry):
    centres = np.array([5, 900, 2000])
    x = geometry.library.psi
    nearest = ((x[:, None] - x[centres]) ** 2).sum(axis=2).min(axis=1)
    assert np.allclose(geometry.min_squared_distance(centres), nearest)


def test_the_short_loop_gives_the_bits_of_scipys_minimize(geometry):
    rng = np.random.default_rng(4)
    for n in (5, 12, 30):
        indices = rng.choice(len(geometry.library), n, replace=False)
        objective = _Objective(geometry.coordinate_distances(indices), rng.normal(size=n))
        start = np.full(6, np.log(0.25))
        x, value = _direct(objective, start, low=np.log(0.03), high=np.log(3.0))
        expected, least = _public(objective, start, low=np.log(0.03), high=np.log(3.0))
        assert (x == expected).all() and value == least


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e6])
def test_constant_targets_are_constant_and_not_rounding_noise(geometry, constant):
    surrogate = GaussianProcess(geometry, np.array([0, 5, 70]), np.full(3, constant))
    mean, std = surrogate.predict(np.array([0, 1, 2000]))
    assert np.allclose(mean, constant, rtol=1e-12) and np.isfinite(std).all()
    assert surrogate.target_std == 1.0
