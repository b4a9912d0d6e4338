"""The example of docs/discovery.md: its method keeps the contract, its tables are read."""

import sys
from pathlib import Path

import pytest

from dreamcheck.discovery.tables import read_table
from dreamcheck.testing import METHOD_CHECKS

sys.path.insert(0, str(Path(__file__).parents[2]))
example = pytest.importorskip("examples.search_tables")


@pytest.mark.parametrize("check", METHOD_CHECKS, ids=lambda c: c.__name__)
def test_the_examples_method_keeps_the_contract(check):
    check(lambda library, *, seed, budget: example.Farthest(library, seed=seed, budget=budget))


def test_the_examples_tables_differ_and_say_what_failed(tmp_path):
    example.main(tmp_path, tables=2)
    read = [
        read_table(tmp_path / f"landscape-{n}.npz", specification=example.LIBRARY).table
        for n in range(2)
    ]
    assert [int(t.failed.sum()) for t in read] == [3, 3]
    assert read[0].digest != read[1].digest
