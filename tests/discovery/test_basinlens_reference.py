"""BasinLens and GP-UCB against a plain implementation on scikit-learn's Gaussian process."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from dreamcheck.discovery import Library, Score, SearchParameters, get_specification, make_method

PATH = Path(__file__).parents[2] / "benchmarks" / "reference_search.py"
spec = importlib.util.spec_from_file_location("reference_search", PATH)
reference_search = importlib.util.module_from_spec(spec)
sys.modules["reference_search"] = reference_search
spec.loader.exec_module(reference_search)

BUDGET = 32
RESTARTS = 20


def stored_table(library):
    """A deterministic score table: two basins on the 576 grid, an interaction, and rough noise."""
    x = library.psi
    basin = np.exp(-((x - [0.0, 0.5, 1.0, 0.5, 0.0, 1.0]) ** 2).sum(axis=1) / 0.5)
    second = 0.8 * np.exp(-((x - [1.0, 1.0, 0.5, 0.0, 0.5, 0.0]) ** 2).sum(axis=1) / 0.3)
    rough = 0.05 * np.sin(37.0 * x @ np.array([1.0, 2.0, 3.0, 5.0, 7.0, 11.0]))
    return 1.0 + basin + second + 0.2 * x[:, 0] * x[:, 3] + rough


@pytest.fixture(scope="module")
def library():
    return Library.build(get_specification("pusht-576"))


def partings(library, *, method, restarts, budget, parameters):
    """Where each restart's sequence first leaves the reference's: the values of both inputs."""
    scores = stored_table(library)
    parted = []
    for seed in range(restarts):
        plain = reference_search.ReferenceSearch(
            library, seed=seed, method=method, parameters=parameters
        )
        search = make_method(method, library, seed=seed, budget=budget, parameters=parameters)
        asked = []
        for _ in range(budget):
            step = plain.next(asked, scores)
            (name,) = search.ask()
            index = library.index(name)
            search.tell([name], [Score(float(scores[index]))])
            if index != step.chosen:
                parted.append((step.values[index], step.values[step.chosen]))
                break
            asked.append(index)
    return parted


@pytest.mark.parametrize("method", ["basinlens", "gp-ucb"])
def test_twenty_restarts_ask_what_the_reference_asks(library, method):
    restarts = RESTARTS if method == "basinlens" else 6
    parted = partings(
        library, method=method, restarts=restarts, budget=BUDGET, parameters=SearchParameters()
    )
    assert len(parted) <= restarts // 10
    for ours, theirs in parted:
        assert abs(ours - theirs) <= 1e-6 * max(1.0, abs(theirs))


def test_the_comparison_notices_a_changed_weight(library):
    changed = SearchParameters(parent_weight=0.5)
    scores = stored_table(library)
    plain = reference_search.ReferenceSearch(
        library, seed=0, method="basinlens", parameters=SearchParameters()
    )
    search = make_method("basinlens", library, seed=0, budget=BUDGET, parameters=changed)
    asked, same = [], True
    while same and (ids := search.ask()):
        index = library.index(ids[0])
        same = index == plain.next(asked, scores).chosen
        search.tell(ids, [Score(float(scores[index]))])
        asked.append(index)
    assert not same
