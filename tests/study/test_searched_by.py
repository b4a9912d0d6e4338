"""A study whose searches come from a named search protocol."""

import pytest

import small_study
from dreamcheck.discovery.protocol import get_protocol, protocol_from
from dreamcheck.errors import UsageError
from dreamcheck.evidence import Store
from dreamcheck.study import Study, load_study
from dreamcheck.study.searched_by import searched_by
from dreamcheck.study.searching import run_searches


def toy(**changes):
    return protocol_from(
        {
            "name": "toy",
            "title": "t",
            "source": "ours",
            "methods": ["random", "beam"],
            "primary": "beam",
            "budgets": [3, 5],
            "parameters": {"scout": 2},
            "seeds": {"restart": "7-8"},
            **changes,
        }  # fmt: skip
    )


def test_split_b_replaces_every_seed_of_the_shipped_study():
    study = searched_by(load_study("pusht-3510"), get_protocol("pusht-3510-b"))
    (search,) = study.searches
    # spec/discovery.md section 6: split B.
    assert search.restart_seeds == tuple(range(256, 384)) and search.budget == 32
    assert study.seeds["search"] == tuple(range(16, 24))
    assert study.seeds["validation"] == tuple(range(80, 96))
    assert study.seeds["neighbourhood"] == tuple(range(96, 112))
    assert study.activity == "pusht"
    assert search.protocol == "pusht-3510-b" and study.checks == load_study("pusht-3510").checks
    assert load_study("pusht-3510").searches[0].protocol is None


def test_the_searches_run_as_the_protocol_says(tmp_path):
    config = searched_by(small_study.config(), toy())
    with Study.at(tmp_path / "s", config, small_study.bench()) as study:
        traces = run_searches(study)
    assert {(t.method, t.restart_seed, len(t.queries)) for t in traces} == {
        (m, r, 5) for m in ("random", "beam") for r in (7, 8)
    }
    assert all(len(t.scout) == 2 and t.params["scout"] == 2 for t in traces)
    with Store.read(tmp_path / "s") as store:
        assert store.protocol["searches"][0]["protocol"] == "toy"


def test_what_does_not_fit_a_study_is_refused():
    config = small_study.config()
    with pytest.raises(UsageError, match="for the library 'pusht-576'; the study searches start"):
        searched_by(config, get_protocol("pusht-576-search"))
    with pytest.raises(UsageError, match="restarts other parameters"):
        searched_by(load_study("pusht-576"), get_protocol("pusht-576-pooled"))
    meeting = toy(seeds={"restart": "7-8", "search": "14-17"})
    with pytest.raises(UsageError, match="'toy' meet the study's own: seed 16 is in partitions"):
        searched_by(config, meeting)
