from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import small_study
from dreamcheck.errors import UsageError
from dreamcheck.evidence import Store
from dreamcheck.reports import verify_study, write_report
from dreamcheck.study import Study
from dreamcheck.study.carding import card
from dreamcheck.study.searching import run_searches
from dreamcheck.study.selecting import diverse_shortlist, shortlist
from dreamcheck.study.summary import worst
from dreamcheck.study.validating import validate
from toys import CentroidModel


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "s"
    small_study.run_at(path)
    return path


def records(path):
    """Every record but the numerics of where it ran: kind, key, digest, in order."""
    with Store.read(path) as store:
        return [(r.kind, r.key, r.digest) for r in store.records()]


def test_every_kind_of_record_is_kept(study):
    with Store.read(study) as store:
        kinds = store.kinds()
    assert kinds["trace"] == 4 and kinds["library"] == 1 and kinds["subject"] == 1
    assert kinds["validation"] == 1 + 20 + 3 + 3
    assert kinds["finding"] == 6 and kinds["persistence"] == 1
    assert kinds["strip"] == 3


def test_methods_share_the_scout_and_its_measurements(study):
    with Store.read(study) as store:
        traces = [r.payload for r in store.records("trace")]
        asked = {i for t in traces for i in t["queries"]}
        random = {r.payload["input"] for r in store.records("finding", group="random-shortlist")}
        searched = store.count("measurement", partition="search")
    for seed in (1, 2):
        scouts = {tuple(t["scout"]) for t in traces if t["restart_seed"] == seed}
        assert len(scouts) == 1
    # Nothing is measured twice: distinct inputs x 2 seeds. The random shortlist is measured on the
    # search seeds too, for the shrinkage of what nobody selected.
    assert searched == 2 * len(asked | random)
    assert 2 * len(asked) < 2 * sum(len(t["queries"]) for t in traces)


def test_running_a_finished_study_again_measures_nothing(study):
    before = records(study)
    small_study.run_at(study)
    assert records(study) == before


def test_search_never_sees_validation_seeds(study):
    with Store.read(study) as store:
        for m in store.records("measurement"):
            assert m.payload["seed"] in store.seeds[m.payload["partition"]]


def test_findings_carry_what_must_stand_beside_a_risk(study):
    with Store.read(study) as store:
        found = worst(store)
    assert len(found) == 3
    for f in found:
        assert f["stratum"] == "in" and f["frozen_risk"] > 0 and f["default_risk"] is not None
        assert f["relative_risk"] == pytest.approx(f["risk"] / f["frozen_risk"])
        assert f["floor_risk"] is not None and f["numbers"]["num_seeds"] == 16


def test_a_killed_study_resumes_to_the_same_records(study, tmp_path):
    rng = random.Random(5)
    path = tmp_path / "killed"
    script = Path(small_study.__file__)
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    for _ in range(3):
        child = subprocess.Popen(
            [sys.executable, str(script), str(path)], env=env, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 60
        while not (path / "evidence.sqlite").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(rng.uniform(0.2, 1.5))
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
        child.wait()
    subprocess.run([sys.executable, str(script), str(path)], env=env, check=True)
    assert sorted(records(path)) == sorted(records(study))


def test_nan_from_a_model_is_a_failure_and_not_a_risk(tmp_path):
    model = CentroidModel(nan_left_of=112.0)
    small_study.run_at(tmp_path / "s", model=model)
    with Store.read(tmp_path / "s") as store:
        failed = [r.payload for r in store.records("measurement") if r.payload["failure"]]
        traces = [r.payload for r in store.records("trace")]
    assert failed and all(m["loss"] is None and m["failure"]["kind"] == "nan" for m in failed)
    for t in traces:
        assert set(t["failures"]) == {
            i for i, o in zip(t["queries"], t["outcomes"], strict=True) if o is None
        }
        assert not set(t["failures"]) & set(t["top"])


def test_an_input_that_crashes_costs_itself_and_not_its_batch(tmp_path):
    class Fragile(CentroidModel):
        def encode(self, observation):
            z = super().encode(observation)
            if bool((z[:, 0] > 190).any()):
                raise RuntimeError("lens cap on")
            return z

    small_study.run_at(tmp_path / "s", model=Fragile())
    with Store.read(tmp_path / "s") as store:
        failed = [r.payload for r in store.records("measurement") if r.payload["failure"]]
        total = store.count("measurement")
    assert 0 < len(failed) < total / 2
    assert all("lens cap" in m["failure"]["reason"] for m in failed)


def test_another_protocol_in_the_same_folder_is_refused(study):
    with pytest.raises(UsageError, match="root_seed"):
        small_study.run_at(study, root_seed=4)


def test_overlapping_seed_partitions_are_refused(tmp_path):
    seeds = {"search": [0, 1, 16], "validation": list(range(16, 32)), "neighbourhood": [48]}
    with pytest.raises(UsageError, match="16"):
        small_study.run_at(tmp_path / "s", seeds=seeds)


def test_a_budget_larger_than_the_library_ends_with_the_library(tmp_path):
    # One start row of a tiny specification of our own.
    spec = tmp_path / "tiny.toml"
    spec.write_text(
        'name = "tiny"\ntask = "tworoom"\ntitle = "tiny"\nsource = "this test"\n'
        "[[coordinates]]\n"
        'name = "start_x"\nkind = "grid"\nvalues = [40, 60, 80]\nunit = "px"\n'
        "[[coordinates]]\n"
        'name = "start_y"\nkind = "grid"\nvalues = [60, 160]\nunit = "px"\n',
        encoding="utf-8",
    )
    search = {
        "specification": str(spec),
        "methods": ["basinlens"],
        "primary": "basinlens",
        "budget": 9,
        "restart_seeds": [1],
    }
    from dreamcheck.study import Study, run_searches

    with Study.at(
        tmp_path / "s", small_study.config(searches=[search]), small_study.bench()
    ) as study:
        (trace,) = run_searches(study)
    assert trace.exhausted and len(trace.queries) == 6 == len(set(trace.queries))


def test_the_shortlist_lists_a_basin_once(study):
    from dreamcheck.evidence import entry_of
    from dreamcheck.study import Study

    with Study.at(study, small_study.config(), small_study.bench()) as live:
        search = live.config.searches[0]
        graph, library = live.graph(search), live.library(search)
        traces = [entry_of(r) for r in live.store.records("trace")]
        plain = shortlist(traces, method="basinlens", size=100)
        diverse = diverse_shortlist(
            traces, method="basinlens", size=3, graph=graph, library=library
        )
    assert [s for _, s in plain] == sorted((s for _, s in plain), reverse=True)
    assert diverse[0] == plain[0]
    near = {library.id(int(j)) for j in graph.replacements(library.index(plain[0][0]))}
    separate = [i for i, _ in plain if i not in near]
    if len(separate) >= 3:
        assert not near & {i for i, _ in diverse}


def test_the_report_is_the_same_bytes_again_and_verifies(study):
    page = write_report(study)
    first = page.read_bytes()
    assert write_report(study).read_bytes() == first
    assert verify_study(study).ok


def test_every_confirmed_failure_gets_a_card_with_the_default_reset_beside_it(tmp_path):
    # Six queries of a toy confirm nothing; the card only asks what a finding says.
    with Study.at(tmp_path / "s", small_study.config(), small_study.bench()) as study:
        run_searches(study)
        (search,) = study.config.searches
        found = [f for f in validate(study, search) if f["group"] == "shortlist"]
        found[0]["verdict"] = "confirmed"
        card(study, search, found)
        confirmed = {found[0]["input"]}
        cards = {r.payload["input"]: r.payload for r in study.store.records("card")}
    assert set(cards) == confirmed | {"default-reset"}
    for kept in cards.values():
        shown = kept["shown"]
        assert shown["loss"]["mean"] == pytest.approx(np.mean(kept["columns"]["loss"]))
        assert shown["loss"]["low"] <= shown["loss"]["mean"] <= shown["loss"]["high"]
        shares = [r["share"] for r in shown["replaced"]]
        half = [k + 1 for k, s in enumerate(shares) if s >= 0.5]
        assert kept["half_step"] == (half[0] if half else None)
