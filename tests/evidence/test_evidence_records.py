import hashlib
import json
import math

import numpy as np
import pytest
from evidence_toys import IDS, INTERFACE, SPEC, entries, measurement, trace
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamcheck.digest import canonical_json
from dreamcheck.errors import EvidenceError, UsageError
from dreamcheck.evidence import (
    Failure,
    Interface,
    Measurement,
    Record,
    Store,
    Validation,
    entry_of,
    library_entry,
    library_table,
    measurement_key,
    risk_of,
    tail_mean,
)
from dreamcheck.evidence.record import altered_fields, at_path


def sha(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_measurement_key_is_the_digest_of_everything_law_4_names():
    expected = sha(
        {
            "interface": {
                "model": "a" * 64, "task": "toy", "task_version": "1",
                "package_version": "dreamcheck 0.1.0", "policy": "b" * 64,
                "rollout_steps": 40, "history": 3, "horizon": 3, "target": "position-probe",
                "probe": "c" * 64, "discrepancy": "mae-px", "model_samples": 1,
                "dtype": "float32", "algorithm_version": "1",
            },
            "values": {"x": 1, "y": 2.5, "door": "left"},
            "seed": 3,
        }
    )  # fmt: skip
    assert measurement_key(INTERFACE, {"door": "left", "x": 1, "y": 2.5}, 3) == expected


@pytest.mark.parametrize("name", Interface.__dataclass_fields__)
def test_every_field_of_the_interface_changes_the_key(name):
    fields = dict(INTERFACE.payload)
    fields[name] = fields[name] + 1 if isinstance(fields[name], int) else fields[name] + "!"
    other = Interface(**fields)
    assert measurement_key(other, {"x": 1}, 0) != measurement_key(INTERFACE, {"x": 1}, 0)
    assert other.digest != INTERFACE.digest


def test_values_keep_their_types_in_the_key():
    keys = {measurement_key(INTERFACE, {"x": v}, 0) for v in (1, 1.0, "1")}
    assert len(keys) == 3
    assert measurement_key(INTERFACE, {"x": np.int64(1)}, 0) in keys
    assert measurement_key(INTERFACE, None, 0) != measurement_key(INTERFACE, {}, 0)
    assert measurement_key(INTERFACE, None, 0) != measurement_key(INTERFACE, None, 1)


def test_a_records_digest_covers_kind_key_and_payload():
    record = Record.make("note", "n", {"b": [1, 2.5, None], "a": "é", "c": True})
    payload = {"a": "é", "b": [1, 2.5, None], "c": True}
    assert record.digest == sha({"kind": "note", "key": "n", "payload": payload})
    assert record.text == json.dumps(payload, sort_keys=True, separators=(",", ":"))
    assert record.fields == "".join(sha(payload[name])[:8] for name in "abc")


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=6),
        st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.floats()
        | st.lists(st.floats() | st.integers(), max_size=3),
        max_size=5,
    )
)  # fmt: skip
def test_a_sealed_payload_is_its_canonical_json(payload):
    record = Record.make("note", "n", payload)
    assert record.text == canonical_json(payload)
    assert record.payload == json.loads(record.text)
    plain = json.loads(record.text)
    assert Record.of_builtins("note", "n", plain, None).digest == record.digest


def test_an_altered_field_is_named_by_its_own_digest():
    record = Record.make("note", "n", {"loss": 1.0, "seed": 3, "x": "y"})
    assert altered_fields({"loss": 1.0, "seed": 4, "x": "y"}, record.fields) == ["seed"]
    assert altered_fields(record.payload, record.fields) == []


def test_a_path_descends_into_mappings_and_lists():
    payload = {"a": {"b": [10, {"c": 3}]}}
    assert at_path(payload, "a.b.0") == 10
    assert at_path(payload, "a.b.1.c") == 3
    assert at_path(payload, "a.b.-1.c") == 3
    assert at_path(payload, "a.b.7") is None
    assert at_path(payload, "a.x.c") is None


def test_a_measurement_is_a_loss_or_a_named_failure_never_both_or_neither():
    with pytest.raises(UsageError, match="exactly one of loss and failure"):
        measurement("in-1", 0, "search", loss=None)
    with pytest.raises(UsageError, match="exactly one of loss and failure"):
        measurement("in-1", 0, "search", failure={"kind": "crash", "reason": "gone"})
    failed = measurement(
        "in-1", 0, "search", loss=None, failure=Failure(kind="nan", reason="step 3")
    )
    assert failed.payload["failure"] == {"kind": "nan", "reason": "step 3"}
    with pytest.raises(UsageError, match="failure.kind"):
        measurement("in-1", 0, "search", loss=None, failure={"kind": "bored", "reason": "?"})


@pytest.mark.parametrize("loss", [math.nan, math.inf, -0.5])
def test_a_loss_that_is_not_a_number_from_zero_up_is_refused_with_the_way_out(loss):
    with pytest.raises(UsageError, match="record a NaN as failure"):
        measurement("in-1", 0, "search", loss=loss)


def test_an_unknown_field_is_named():
    with pytest.raises(UsageError, match="risk_px"):
        measurement("in-1", 0, "search", risk_px=3.0)


def test_numpy_numbers_become_builtins_and_records_compare_equal():
    a = measurement("in-1", 0, "search", loss=np.float64(0.5), step_losses=np.array([0.25, 0.75]))
    b = measurement("in-1", 0, "search", loss=0.5, step_losses=(0.25, 0.75))
    assert a == b and a.digest == b.digest and a.record() == b.record()


def test_non_finite_side_values_survive_the_round_trip():
    m = measurement("in-1", 0, "search", readout_error=math.inf)
    assert m.payload["readout_error"] == "inf"
    assert entry_of(m.record()).readout_error == math.inf


def test_every_type_reads_back_equal_to_what_was_sealed(tmp_path):
    with Store.create(tmp_path, protocol={}, seeds={"search": [0]}) as store:
        seen = set()
        for entry in entries(store):
            if isinstance(entry, Record):
                continue
            record = entry.record()
            assert entry_of(record) == entry
            seen.add(record.kind)
    assert seen == {
        "interface", "library", "measurement", "evaluation", "trace", "validation",
        "neighbourhood",
    }  # fmt: skip


def test_a_stored_payload_that_does_not_fit_its_type_names_the_field():
    payload = {**measurement("in-1", 0, "search").payload, "seed": "three"}
    with pytest.raises(EvidenceError, match="seed"):
        entry_of(Record.make("measurement", "k", payload))


def test_search_seeds_cannot_validate():
    with pytest.raises(UsageError, match="law 3"):
        Validation.of(
            input="in-1", spec=SPEC, interface="i", group="shortlist", partition="search",
            seeds=[0], losses=[1.0], measurements=["k"], risk=1.0,
        )  # fmt: skip


def test_rows_of_a_trace_must_line_up():
    with pytest.raises(UsageError, match="outcomes has 1 entries for 4 rows"):
        trace("random", "in-0", outcomes=[1.0])


def test_a_measurement_without_its_interface_has_no_key():
    m = Measurement.of(interface="i", input="x", values={}, seed=0, partition="search", loss=1.0)
    with pytest.raises(UsageError, match="Measurement.measured"):
        _ = m.key


def test_kinds_and_values_that_cannot_be_stored_are_refused():
    with pytest.raises(UsageError, match="lower-case"):
        Record.make("My Kind", "k", {})
    with pytest.raises(UsageError, match="artifacts"):
        Record.make("note", "k", {"x": object()})


def test_the_tail_average_in_both_estimators():
    losses = [5.0, 1.0, 4.0, 2.0, 3.0, 0.0, 0.0, 0.0]
    # n = 8, alpha = 0.4: alpha n = 3.2. ceil: 4 largest, 14 / 4. Fractional: (5+4+3 + 0.2*2)/3.2.
    assert tail_mean(losses, alpha=0.4, estimator="ceil") == 3.5
    assert math.isclose(tail_mean(losses, alpha=0.4), 12.4 / 3.2, rel_tol=1e-15)
    # 0.28 x 25 is 7 in decimals, 7.000000000000001 in floating point.
    assert tail_mean(range(25), alpha=0.28, estimator="ceil") == sum(range(18, 25)) / 7
    assert tail_mean(losses, alpha=1.0) == risk_of(losses, {"name": "mean"}) == 15 / 8
    assert risk_of(losses, {"name": "max"}) == 5.0
    with pytest.raises(UsageError, match="at least one loss"):
        risk_of([], {"name": "mean"})
    with pytest.raises(UsageError, match="alpha"):
        tail_mean(losses, alpha=0.0)


def test_a_library_keeps_ids_types_and_scaled_values(tmp_path):
    with Store.create(tmp_path, protocol={}, seeds={}) as store:
        values = [(1, 0.5, "a", 1), (2, 1.0, "b", 2.5)]
        made = library_entry(
            store.artifacts, spec="s", spec_digest=SPEC, names=("i", "f", "s", "mixed"),
            ids=IDS[:2], values=values, scaled=np.eye(2, 4), num_tuples=5, removed={"r": 3},
        )  # fmt: skip
        store.commit([made])
        table = library_table(store.artifacts, entry_of(store.get("library", SPEC)))
        assert made.types == ("int", "float", "str", "json")
        assert table.ids == IDS[:2] and table.values == tuple(values)
        assert [[type(v) for v in row] for row in table.values] == [
            [type(v) for v in row] for row in values
        ]
        assert np.array_equal(table.scaled, np.eye(2, 4))
        with pytest.raises(UsageError, match="appears twice"):
            library_entry(
                store.artifacts, spec="s", spec_digest=SPEC, names=("i",), ids=("a", "a"),
                values=[(1,), (2,)], scaled=np.zeros((2, 1)), num_tuples=2, removed={},
            )  # fmt: skip
