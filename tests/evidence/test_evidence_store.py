import errno
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from evidence_toys import (
    INTERFACE,
    PROFILE,
    PROTOCOL,
    SEEDS,
    content,
    edit,
    entries,
    evaluation,
    measurement,
    run,
)

from dreamcheck.errors import (
    EvidenceError,
    ExitCode,
    GuardRefused,
    IncompleteError,
    UsageError,
)
from dreamcheck.evidence import Record, Store, schema, verify
from dreamcheck.evidence import disk as disk_module
from dreamcheck.evidence import store as store_module


def make(directory: Path, **fields) -> Store:
    return Store.create(directory, protocol=PROTOCOL, seeds=SEEDS, **fields)


def note(i: int, **payload) -> Record:
    return Record.make("note", f"n-{i}", {"i": i, **payload})


# -- what goes in comes out -------------------------------------------------------------------


def test_what_is_committed_is_read_back_in_order(tmp_path):
    with make(tmp_path / "s") as store:
        assert store.commit([note(2), note(1)]) == 2
        assert store.commit([note(3)]) == 1
        assert [r.key for r in store.records("note")] == ["n-2", "n-1", "n-3"]
        assert [r.seq for r in store.records()] == [1, 2, 3]
        assert store.get("note", "n-1").payload == {"i": 1}
        assert store.get("note", "n-9") is None
        assert store.missing("note", ["n-9", "n-1", "n-8"]) == ["n-9", "n-8"]
    with Store.read(tmp_path / "s") as store:
        assert store.count() == store.count("note") == 3
        assert store.get("note", "n-3").meta["pid"] == os.getpid()
        with pytest.raises(UsageError, match="open for reading"):
            store.commit([note(4)])


def test_filters_descend_into_the_payload(tmp_path):
    with make(tmp_path / "s") as store:
        store.commit(
            [note(i, deep={"x": i % 3, "odd key": i}, tag=None if i else "t") for i in range(6)]
        )
        assert [r.at("i") for r in store.records("note", deep__x=1)] == [1, 4]
        assert [r.at("i") for r in store.records("note", **{"deep.odd key": 5})] == [5]
        assert [r.at("i") for r in store.records("note", i=(1, 2, 9))] == [1, 2]
        assert store.count("note", tag=None) == 5
        assert store.count("note", tag="t", i=0) == 1
        with pytest.raises(UsageError, match="payload path"):
            store.count("note", **{"i') OR 1 --": 0})


def test_iteration_crosses_pages(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "_PAGE", 7)
    with make(tmp_path / "s") as store:
        store.commit([note(i) for i in range(30)])
        assert [r.at("i") for r in store.records("note")] == list(range(30))
        assert [r.at("i") for r in store.records("note", i=range(3, 25))] == list(range(3, 25))


def test_the_same_record_again_is_no_news(tmp_path):
    with make(tmp_path / "s") as store:
        store.commit([note(1)])
        before = store.head
        assert store.commit([note(1), note(1)]) == 0
        assert store.head == before
        assert store.commit([note(2), note(2)]) == 1


def test_another_content_under_a_known_key_is_refused_and_named(tmp_path):
    with make(tmp_path / "s") as store:
        store.commit([INTERFACE, measurement("in-1", 0, "search")])
        with pytest.raises(EvidenceError, match=r"loss: .* stored, 9\.5 now") as e:
            store.commit([note(1), measurement("in-1", 0, "search", loss=9.5)])
        assert e.value.exit_code == ExitCode.INTEGRITY
        # The batch is whole or not at all.
        assert store.count("note") == 0 and store.count() == 2


def test_records_rest_on_records_that_are_there(tmp_path):
    m = measurement("in-1", 0, "search")
    with make(tmp_path / "s") as store:
        with pytest.raises(UsageError, match="Commit the Interface first"):
            store.commit([m])
        with pytest.raises(UsageError, match="rests on measurement"):
            store.commit([INTERFACE, evaluation("in-1", [m])])
        assert store.count() == 0
        assert store.commit([INTERFACE, m, evaluation("in-1", [m])]) == 3


def test_a_measurement_under_a_key_that_is_not_its_own_is_refused(tmp_path):
    payload = measurement("in-1", 0, "search").payload
    with make(tmp_path / "s") as store:
        store.commit([INTERFACE])
        with pytest.raises(EvidenceError, match="should have key"):
            store.commit([Record.make("measurement", "0" * 64, payload)])


def test_a_typed_record_under_a_key_that_is_not_its_own_is_refused(tmp_path):
    m = measurement("in-1", 0, "search")
    made = evaluation("in-1", [m])
    with make(tmp_path / "s") as store:
        with pytest.raises(EvidenceError, match="the key does not follow"):
            store.commit([INTERFACE, m, Record.make("evaluation", "mine", made.payload)])
        assert store.commit([INTERFACE, m, made.record()]) == 3


def test_foreign_keys_are_enforced(tmp_path):
    with make(tmp_path / "s") as store:
        store.commit([note(1)])
        with pytest.raises(sqlite3.IntegrityError):
            store._db.execute("INSERT INTO holds VALUES (1, 'frames', 'nowhere.npz')")
        with pytest.raises(sqlite3.IntegrityError):
            store._db.execute("INSERT INTO cites VALUES (1, 99)")


def test_typed_views_show_the_known_kinds(tmp_path):
    run(tmp_path / "s")
    db = sqlite3.connect(tmp_path / "s" / "evidence.sqlite")
    row = db.execute(
        "SELECT input, seed, partition, loss, frozen_loss FROM measurements ORDER BY seq LIMIT 1"
    ).fetchone()
    assert row == ("in-0", 0, "search", 0.0, 4.0)
    counts = {
        view: db.execute(f"SELECT count(*) FROM {view}").fetchone()[0]
        for view in (
            "interfaces", "libraries", "measurements", "evaluations", "traces", "validations",
            "neighbourhoods",
        )
    }  # fmt: skip
    assert counts == {
        "interfaces": 1, "libraries": 1, "measurements": 8 * 4 + 3 * 4 + 2 * 6, "evaluations": 8,
        "traces": 2, "validations": 3, "neighbourhoods": 2,
    }  # fmt: skip
    db.close()


# -- law 3 -----------------------------------------------------------------------------------


def test_overlapping_partitions_are_refused_by_seed_and_name(tmp_path):
    with pytest.raises(UsageError, match="seed 5 is in partitions 'search' and 'validation'"):
        Store.create(
            tmp_path / "s", protocol={}, seeds={"search": range(6), "validation": range(5, 9)}
        )
    assert not (tmp_path / "s").exists()
    with pytest.raises(UsageError, match="seed 1 is listed twice in partition 'search'"):
        Store.create(tmp_path / "s", protocol={}, seeds={"search": [1, 1]})


@pytest.mark.parametrize(
    ("seed", "partition", "told"),
    [
        (16, "search", "seed 16 is not in partition 'search'; it belongs to 'validation'"),
        (99, "search", "seed 99 is not in partition 'search'; it is in no partition"),
        (0, "practice", "partition 'practice'; the study declares confirmation, "),
    ],
)
def test_a_seed_outside_its_partition_is_refused_at_commit(tmp_path, seed, partition, told):
    with make(tmp_path / "s") as store:
        store.commit([INTERFACE])
        with pytest.raises(UsageError, match=told):
            store.commit([measurement("in-1", seed, partition)])
        assert store.count("measurement") == 0


def test_a_validation_may_not_reuse_measurements_of_search_seeds(tmp_path):
    with make(tmp_path / "s") as store:
        payload = {"partition": "validation", "seeds": [16, 0]}
        with pytest.raises(UsageError, match="seed 0 .* belongs to 'search'"):
            store.commit([Record.make("later-kind", "k", payload)])


# -- the protocol ----------------------------------------------------------------------------


def test_the_protocol_is_readable_toml_that_reads_back(tmp_path):
    protocol = {
        "name": 'say "hi"\n\x7f é',
        "rate": 1e-05,
        "on": True,
        "sizes": (1, 2.5),
        "none": None,
        "rules": [{"name": "a", "limit": 3}],
        "search": {"methods": ["random"], "deep": {"odd key": -1}},
    }
    with Store.create(tmp_path / "s", protocol=protocol, seeds=SEEDS) as store:
        assert store.protocol == {
            "name": 'say "hi"\n\x7f é',
            "rate": 1e-05,
            "on": True,
            "sizes": [1, 2.5],
            "rules": [{"name": "a", "limit": 3}],
            "search": {"methods": ["random"], "deep": {"odd key": -1}},
        }
        assert store.seeds == {name: tuple(seeds) for name, seeds in SEEDS.items()}
    with pytest.raises(UsageError, match="TOML cannot"):
        Store.create(tmp_path / "t", protocol={"x": [None]}, seeds={})


def test_a_human_written_protocol_is_taken_as_it_is(tmp_path):
    text = "# mine\nname = 'hand'\n[seeds]\nsearch = [1, 2]\n"
    (tmp_path / "mine.toml").write_text(text)
    with Store.create(tmp_path / "s", protocol=tmp_path / "mine.toml") as store:
        assert store.protocol == {"name": "hand"} and store.seeds == {"search": (1, 2)}
    assert (tmp_path / "s" / "study.toml").read_text() == text
    (tmp_path / "bad.toml").write_text("[seeds]\nsearch = [1.5]\n")
    with pytest.raises(UsageError, match="list of integers"):
        Store.create(tmp_path / "t", protocol=tmp_path / "bad.toml")


@pytest.mark.parametrize("open_it", [Store.open, Store.read])
def test_an_edited_protocol_is_refused_and_the_entry_named(tmp_path, open_it):
    make(tmp_path / "s").close()
    path = tmp_path / "s" / "study.toml"
    path.write_text(path.read_text().replace("budget = 4", "budget = 400"))
    with pytest.raises(EvidenceError, match=r"study\.toml was changed .*search\.budget differ"):
        open_it(tmp_path / "s")
    path.unlink()
    with pytest.raises(EvidenceError, match="missing"):
        open_it(tmp_path / "s")


def test_ensure_resumes_the_same_protocol_and_refuses_another(tmp_path):
    with Store.ensure(tmp_path / "s", protocol=PROTOCOL, seeds=SEEDS) as store:
        store.commit([note(1)])
    with Store.ensure(tmp_path / "s", protocol=PROTOCOL, seeds=SEEDS) as store:
        assert store.count() == 1
    other = {**PROTOCOL, "search": {"budget": 5, "scout": 2}}
    with pytest.raises(UsageError, match=r"another protocol; search\.budget differ"):
        Store.ensure(tmp_path / "s", protocol=other, seeds=SEEDS)
    with pytest.raises(UsageError, match=r"another protocol; seeds\.search differ"):
        Store.ensure(tmp_path / "s", protocol=PROTOCOL, seeds={**SEEDS, "search": range(3)})
    # The refusal gave the lock back.
    Store.open(tmp_path / "s").close()


def test_a_study_is_not_made_twice(tmp_path):
    make(tmp_path / "s").close()
    with pytest.raises(UsageError, match="already holds a study"):
        make(tmp_path / "s")
    with pytest.raises(UsageError, match="holds no study"):
        Store.open(tmp_path / "elsewhere")


# -- one writer, many readers -------------------------------------------------------------------

_HOLD = """
import sys, time
from pathlib import Path
from dreamcheck.evidence import Store, Record
store = Store.open(Path(sys.argv[1]))
store.commit([Record.make("note", "from-the-other", {"i": 0})])
print("open", flush=True)
time.sleep(60)
"""


def test_a_second_writer_is_refused_until_the_first_is_killed(tmp_path):
    make(tmp_path / "s").close()
    other = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path / "s")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout.readline() == "open\n"
        with pytest.raises(UsageError, match=f"written by another process .pid {other.pid}"):
            Store.open(tmp_path / "s")
        # Readers work beside the writer and see what it committed.
        with Store.read(tmp_path / "s") as store:
            assert store.count("note") == 1
    finally:
        os.kill(other.pid, signal.SIGKILL)
        other.wait()
    with Store.read(tmp_path / "s") as store:
        assert store.count("note") == 1
    with Store.open(tmp_path / "s") as store:
        assert store.count("note") == 1
        assert any("-wal was left by a run that was killed" in n for n in store.notices)
        assert store.commit([note(1)]) == 1


def test_one_process_cannot_open_a_study_twice(tmp_path):
    told = "already open for writing in this process"
    with make(tmp_path / "s"), pytest.raises(UsageError, match=told):
        Store.open(tmp_path / "s")
    Store.open(tmp_path / "s").close()


def test_a_forked_worker_can_neither_write_nor_prolong_the_lock(tmp_path):
    store = make(tmp_path / "s")
    child = os.fork()
    if child == 0:
        try:
            store.commit([note(1)])
        except UsageError as e:
            store.close()  # must not fold the parent's log or drop its lock
            if "one writer" in str(e):
                time.sleep(60)
        os._exit(1)
    try:
        store.commit([note(2)])
        store.close()
        # The fork is alive, holds copies of every descriptor, and yet the lock is free.
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
        probe = "from dreamcheck.evidence import Store; import sys; Store.open(sys.argv[1]).close()"
        subprocess.run([sys.executable, "-c", probe, str(tmp_path / "s")], check=True)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert [r.key for r in Store.read(tmp_path / "s").records()] == ["n-2"]


def test_a_reader_sees_commits_made_after_it_opened(tmp_path):
    with make(tmp_path / "s") as store, Store.read(tmp_path / "s") as reader:
        assert reader.count() == 0
        store.commit([note(1)])
        assert reader.count() == 1 and reader.head == store.head


def test_writing_uses_a_log_and_closing_leaves_one_file(tmp_path):
    store = make(tmp_path / "s")
    store.commit([note(1)])
    assert store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",), store.notices
    assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    assert (tmp_path / "s" / "evidence.sqlite-wal").exists()
    store.close()
    names = {p.name for p in (tmp_path / "s").iterdir()}
    assert names == {"evidence.sqlite", "study.toml", "study.lock"}
    # Copying the file copies the study: its header is back to the rollback journal.
    assert (tmp_path / "s" / "evidence.sqlite").read_bytes()[18:20] == b"\x01\x01"
    shutil.copytree(tmp_path / "s", tmp_path / "copy")
    assert Store.read(tmp_path / "copy").count() == 1


def test_a_disk_that_is_not_local_keeps_the_rollback_journal(tmp_path, monkeypatch):
    monkeypatch.setattr(disk_module, "file_system", lambda directory: "nfs4")
    with make(tmp_path / "s") as store:
        assert store._db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert any("nfs4" in n for n in store.notices)
        store.commit([note(1)])
    assert Store.read(tmp_path / "s").count() == 1


def test_the_file_system_of_proc_is_not_taken_for_a_disk():
    if not Path("/proc/self/mountinfo").exists():
        pytest.skip("no /proc/self/mountinfo on this platform")
    assert disk_module.file_system(Path("/proc")) == "proc"
    assert "not known to be local" in disk_module.fit_for_wal(Path("/proc"))


# -- versions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("open_it", [Store.open, Store.read])
def test_a_newer_schema_is_refused_and_left_alone(tmp_path, open_it):
    make(tmp_path / "s").close()
    edit(tmp_path / "s", "PRAGMA user_version = 99")
    before = (tmp_path / "s" / "evidence.sqlite").read_bytes()
    with pytest.raises(UsageError, match="schema version 99; this Dreamcheck knows .* 1") as e:
        open_it(tmp_path / "s")
    assert e.value.exit_code == ExitCode.USAGE
    assert (tmp_path / "s" / "evidence.sqlite").read_bytes() == before


def test_migrations_run_in_order_and_keep_the_records(tmp_path, monkeypatch):
    with make(tmp_path / "s") as store:
        store.commit([note(1)])
    later = schema.schema_text() + "\n-- @version 2\nCREATE TABLE more (x INTEGER);\n"
    monkeypatch.setattr(schema, "schema_text", lambda: later)
    with pytest.raises(UsageError, match="older schema version 1"):
        Store.read(tmp_path / "s")
    with Store.open(tmp_path / "s") as store:
        assert schema.version_of(store._db) == 2
        assert store._db.execute("SELECT count(*) FROM more").fetchone() == (0,)
        assert store.count() == 1


def test_a_file_that_is_no_database_is_named(tmp_path):
    make(tmp_path / "s").close()
    (tmp_path / "s" / "evidence.sqlite").write_bytes(b"not a database at all" * 100)
    with pytest.raises(EvidenceError, match=r"evidence\.sqlite cannot be read"):
        Store.open(tmp_path / "s")


# -- numerics ------------------------------------------------------------------------------------


def test_another_numerics_profile_is_refused_unless_mixed_which_stamps(tmp_path):
    with make(tmp_path / "s", profile=PROFILE) as store:
        store.commit([INTERFACE, measurement("in-1", 0, "search")])
    Store.open(tmp_path / "s", profile=dict(PROFILE)).close()
    other = {**PROFILE, "threads": 8}
    with pytest.raises(GuardRefused, match="threads: 1 then, 8 now"):
        Store.open(tmp_path / "s", profile=other)
    with Store.open(tmp_path / "s", profile=other, mixed_numerics=True) as store:
        assert store.profiles == [PROFILE, other]
        # What is stored already is no news, stamp or not.
        assert store.commit([INTERFACE, measurement("in-1", 0, "search")]) == 0
        store.commit([measurement("in-1", 1, "search"), note(1)])
        for record in store.records("measurement", seed=1):
            assert record.payload["stamps"][0].startswith("mixed-numerics:")
        assert store.get("note", "n-1").payload["stamps"]
        assert store.get("interface", INTERFACE.digest).payload.get("stamps") is None
    assert verify(tmp_path / "s").ok


def test_failed_guards_stamp_every_record(tmp_path):
    make(tmp_path / "s").close()
    with Store.open(tmp_path / "s", stamps=["domain-gap"]) as store:
        store.commit([INTERFACE, measurement("in-1", 0, "search")])
        assert all(r.payload["stamps"] == ["domain-gap"] for r in store.records())


# -- artifacts -----------------------------------------------------------------------------------


def test_artifacts_are_named_by_content_and_checked_when_read(tmp_path):
    with make(tmp_path / "s") as store:
        arrays = {"b": np.arange(6).reshape(2, 3), "a": np.array([True, False])}
        ref = store.artifacts.put_arrays(arrays)
        assert ref == store.artifacts.put_arrays(dict(reversed(arrays.items())))
        swapped = {"a": arrays["a"], "b": np.asfortranarray(arrays["b"]).astype(">i8")}
        assert ref == store.artifacts.put_arrays(swapped)
        assert store.artifacts.path(ref) == tmp_path / "s" / "artifacts" / ref[:2] / ref
        back = store.artifacts.get_arrays(ref)
        assert np.array_equal(back["b"], arrays["b"]) and back["a"].dtype == bool
        # No wall time in the file: made tomorrow, it must have the same name.
        with zipfile.ZipFile(store.artifacts.path(ref)) as archive:
            assert {e.date_time for e in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        small = store.artifacts.put_bytes(b"abc", "txt")
        # SHA-256 of "abc": FIPS 180-2, appendix B.1.
        assert small.startswith("ba7816bf8f01cfea414140de5dae2223")
        store.artifacts.path(small).write_bytes(b"abd")
        with pytest.raises(EvidenceError, match="is altered"):
            store.artifacts.get(small)
        with pytest.raises(EvidenceError, match="is altered"):
            store.artifacts.put_bytes(b"abc", "txt")
        store.artifacts.path(small).unlink()
        with pytest.raises(EvidenceError, match="is missing"):
            store.artifacts.get(small)
        for bad in ("../../etc/passwd", "abc.txt"):
            with pytest.raises(UsageError, match="not '<sha256>"):
                store.artifacts.path(bad)
        with pytest.raises(UsageError, match="Python objects"):
            store.artifacts.put_arrays({"x": np.array([object()])})


def test_a_record_cannot_hold_an_artifact_that_is_not_there(tmp_path):
    with make(tmp_path / "s") as store:
        with pytest.raises(UsageError, match="which is not there"):
            store.commit([note(1, artifacts={"frames": "0" * 64 + ".npz"})])
        ref = store.artifacts.put_bytes(b"x", "bin")
        store.commit([note(1, artifacts={"frames": ref})])
        assert store.artifact_refs() == {ref: 1}


# -- leftovers -----------------------------------------------------------------------------------


def test_leftovers_of_a_killed_run_are_set_aside_with_a_notice(tmp_path, caplog):
    with make(tmp_path / "s") as store:
        store.commit([note(1)])
    half = tmp_path / "s" / "artifacts" / ".tmp" / "half.npz.123"
    half.parent.mkdir(parents=True)
    half.write_bytes(b"half")
    # A log of another database beside a closed one: SQLite would replay it.
    with make(tmp_path / "other") as other:
        other.commit([note(7)])
        stray = (tmp_path / "other" / "evidence.sqlite-wal").read_bytes()
    (tmp_path / "s" / "evidence.sqlite-wal").write_bytes(stray)
    with Store.open(tmp_path / "s") as store:
        assert [r.key for r in store.records()] == ["n-1"]
        assert len(store.notices) == 2 and "half.npz.123" in store.notices[0]
    assert "half.npz.123" in caplog.text
    shelf = tmp_path / "s" / "leftovers" / "1"
    assert (shelf / "half.npz.123").read_bytes() == b"half"
    assert (shelf / "evidence.sqlite-wal").read_bytes() == stray
    assert verify(tmp_path / "s").ok


# -- a disk that fills -----------------------------------------------------------------------------


def test_a_full_database_ends_in_one_message_and_loses_nothing_committed(tmp_path):
    store = make(tmp_path / "s")
    store.commit([note(i) for i in range(10)])
    before = content(tmp_path / "s")
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(
        IncompleteError, match="All 10 committed records are kept; the last batch of 500"
    ) as e:
        store.commit([note(i, filler="x" * 500) for i in range(10, 510)])
    assert e.value.exit_code == ExitCode.INCOMPLETE and "resume" in str(e.value)
    assert store.head[0] == 10
    store.close()
    assert content(tmp_path / "s") == before
    with Store.open(tmp_path / "s") as store:
        assert store.commit([note(i, filler="x" * 500) for i in range(10, 510)]) == 500
    assert verify(tmp_path / "s").ok


def test_a_full_disk_under_an_artifact_leaves_no_half_file(tmp_path, monkeypatch):
    with make(tmp_path / "s") as store:

        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(IncompleteError, match="is full"):
            store.artifacts.put_bytes(b"frames", "bin")
        monkeypatch.undo()
        assert [p for p in (tmp_path / "s" / "artifacts").rglob("*") if p.is_file()] == []
        assert store.artifacts.put_bytes(b"frames", "bin") in store.artifacts


def test_a_really_full_disk_keeps_what_was_committed(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    try:
        mounted = os.name == "posix" and subprocess.run(mount, capture_output=True).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("a tmpfs cannot be mounted here (needs root)")
    try:
        store = make(disk / "s")
        done = 0
        with pytest.raises(IncompleteError, match="is full"):
            while done < 100_000:
                store.commit([note(i, filler="x" * 300) for i in range(done, done + 50)])
                done += 50
        assert done > 50
        store.close()
        with Store.read(disk / "s") as reader:
            assert reader.count() == done
        shutil.copytree(disk / "s", tmp_path / "moved")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    with Store.open(tmp_path / "moved") as store:
        assert store.count() == done
        assert store.commit([note(done)]) == 1
    assert verify(tmp_path / "moved").ok


def test_resuming_commits_only_what_is_missing(tmp_path):
    with make(tmp_path / "s", profile=PROFILE) as store:
        everything = list(entries(store))
        store.commit(everything[:20])
    with Store.open(tmp_path / "s", profile=PROFILE) as store:
        wanted = [m.key for m in everything if getattr(m, "kind", "") == "measurement"]
        assert store.missing("measurement", wanted) == wanted[store.count("measurement") :]
        assert store.commit(everything) == len(everything) - 20
    run(tmp_path / "whole")
    assert content(tmp_path / "s") == content(tmp_path / "whole")
