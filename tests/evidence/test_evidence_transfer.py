import builtins

import pytest
from evidence_toys import (
    INTERFACE,
    PROFILE,
    PROTOCOL,
    SEEDS,
    content,
    edit,
    entries,
    measurement,
    run,
)

from dreamcheck.errors import EvidenceError, GuardRefused, UsageError
from dreamcheck.evidence import Record, Store, verify


def part(directory, chosen, **fields) -> None:
    """A study with some of the toy study's search measurements: one job of an array."""
    fields = {"profile": PROFILE, **fields}
    with Store.create(directory, protocol=PROTOCOL, seeds=SEEDS, **fields) as store:
        store.commit([INTERFACE])
        store.commit([measurement(name, 0, "search", **extra) for name, extra in chosen.items()])


def test_a_snapshot_taken_while_writing_is_a_complete_study(tmp_path):
    with Store.create(tmp_path / "s", protocol=PROTOCOL, seeds=SEEDS) as store:
        store.commit(list(entries(store)))
        copy = store.snapshot(tmp_path / "copy")
        store.commit([Record.make("note", "later", {})])
    assert verify(copy).ok
    assert verify(copy).checked["artifacts"] == 9
    original = content(tmp_path / "s")
    assert content(copy)["records"] == original["records"][:-1]
    assert content(copy)["files"] == original["files"]
    assert (copy / "evidence.sqlite").read_bytes()[18:20] == b"\x01\x01"
    with pytest.raises(UsageError, match="not empty"), Store.read(copy) as again:
        again.snapshot(tmp_path / "s")


def test_merging_unites_studies_of_one_protocol(tmp_path):
    part(tmp_path / "a", {"in-0": {}, "in-1": {}})
    part(tmp_path / "b", {"in-1": {}, "in-2": {}})
    with Store.open(tmp_path / "b") as store:
        ref = store.artifacts.put_bytes(b"frame", "bin")
        store.commit([Record.make("note", "n", {"artifacts": {"frame": ref}})])
    with Store.open(tmp_path / "a") as store:
        assert store.merge([tmp_path / "b"]) == 2  # in-2 and the note; in-1 and the interface known
        assert [r.at("input") for r in store.records("measurement")] == ["in-0", "in-1", "in-2"]
        assert store.artifacts.get(ref) == b"frame"
        assert store.merge([tmp_path / "b"]) == 0
    assert verify(tmp_path / "a").ok


def test_merging_refuses_one_key_with_two_contents_and_changes_nothing(tmp_path):
    part(tmp_path / "a", {"in-0": {}, "in-1": {}})
    part(tmp_path / "b", {"in-2": {}, "in-1": {"loss": 9.0}})
    part(tmp_path / "c", {"in-3": {}})
    before = content(tmp_path / "a")
    with (
        Store.open(tmp_path / "a") as store,
        pytest.raises(EvidenceError, match=r"already stored with other content \(loss: .*9\.0"),
    ):
        store.merge([tmp_path / "c", tmp_path / "b"])
    assert content(tmp_path / "a") == before
    # The conflict may also lie between two of the studies to be taken in.
    part(tmp_path / "d", {"in-3": {"floor": 7.0}})
    with Store.open(tmp_path / "a") as store, pytest.raises(EvidenceError, match="floor"):
        store.merge([tmp_path / "c", tmp_path / "d"])


def test_merging_refuses_another_protocol_or_numerics_profile(tmp_path):
    part(tmp_path / "a", {"in-0": {}})
    other = {**SEEDS, "search": range(5)}
    Store.create(tmp_path / "b", protocol=PROTOCOL, seeds=other).close()
    part(tmp_path / "c", {"in-1": {}}, profile={**PROFILE, "isa": "neon"})
    with Store.open(tmp_path / "a") as store:
        with pytest.raises(UsageError, match=r"another protocol .* seeds\.search differ"):
            store.merge([tmp_path / "b"])
        with pytest.raises(GuardRefused, match="isa differ"):
            store.merge([tmp_path / "c"])


def test_an_altered_study_is_not_merged(tmp_path):
    part(tmp_path / "a", {"in-0": {}})
    part(tmp_path / "b", {"in-1": {}})
    edit(tmp_path / "b", "UPDATE records SET payload = replace(payload, '4.0', '5.0')")
    with Store.open(tmp_path / "a") as store, pytest.raises(EvidenceError, match="was altered"):
        store.merge([tmp_path / "b"])


def test_export_writes_one_typed_parquet_file_per_kind(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow (the [export] extra) is absent")
    run(tmp_path / "s")
    with Store.read(tmp_path / "s") as store:
        written = store.export(tmp_path / "parquet")
        assert [p.stem for p in written] == sorted(store.kinds())
        table = pq.read_table(tmp_path / "parquet" / "measurement.parquet")
        expected = [r.at("loss") for r in store.records("measurement")]
    assert table["loss"].to_pylist() == expected
    assert str(table.schema.field("seed").type) == "int64"
    assert str(table.schema.field("values").type) == "string"
    losses = pq.read_table(tmp_path / "parquet" / "evaluation.parquet").schema.field("losses")
    assert str(losses.type).startswith("list<") and "double" in str(losses.type)


def test_export_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    run(tmp_path / "s", frames=False)
    real = builtins.__import__

    def absent(name, *args, **kwargs):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    told = r"pip install 'dreamcheck\[export\]'"
    with Store.read(tmp_path / "s") as store, pytest.raises(UsageError, match=told):
        store.export(tmp_path / "parquet")
