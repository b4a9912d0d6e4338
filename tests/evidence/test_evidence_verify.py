import json
import shutil

import pytest
from evidence_toys import ball, content, edit, run

from dreamcheck.errors import EvidenceError, ExitCode, UsageError
from dreamcheck.evidence import Numbers, Record, Store, verify


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    directory = tmp_path_factory.mktemp("study") / "s"
    run(directory)
    with Store.read(directory) as store:
        numbers = Numbers(store)
        worst = numbers.number(
            "worst.risk", "max", query={"kind": "evaluation"}, params={"path": "risk"},
            format="{:.2f} px",
        )  # fmt: skip
        runs = numbers.number("traces", "count", query={"kind": "trace"})
        text = (
            f"<html><body><p>{worst.element()} worst of 8 inputs.</p>"
            f"<p>{runs.element()} traces.</p></body></html>\n"
        )
        (directory / "report.html").write_text(text)
        numbers.write(directory / "report.json", page=text)
    return directory


@pytest.fixture
def study(original, tmp_path):
    return shutil.copytree(original, tmp_path / "s")


def key_of(study, kind: str, **where) -> str:
    with Store.read(study) as store:
        return next(store.records(kind, **where)).key


def problems(study) -> list[tuple[str, str, str]]:
    report = verify(study, regenerate=ball)
    assert report.exit_code == (ExitCode.INTEGRITY if report.problems else ExitCode.DONE)
    return [(p.what, p.where, p.message) for p in report]


def test_an_untouched_study_verifies(study):
    report = verify(study, regenerate=ball)
    assert report.ok and len(report) == 0
    assert report.checked == {"records": 75, "artifacts": 9, "numbers": 2, "page": 1}
    report.raise_if_any()


def test_verifying_changes_nothing(study):
    before = {p: p.read_bytes() for p in study.rglob("*") if p.is_file()}
    verify(study)
    assert {p: p.read_bytes() for p in study.rglob("*") if p.is_file()} == before


def test_one_altered_loss_is_named_with_record_and_field(study):
    key = key_of(study, "measurement", input="in-3", seed=2)
    sql = "UPDATE records SET payload = json_set(payload, '$.loss', 0.125) WHERE key = ?"
    assert edit(study, sql, key) == 1
    found = problems(study)
    assert ("record", f"measurement {key}", "altered field: loss (now 0.125)") in found
    # The evaluation that cites it tells the loss that was measured.
    assert any(w == "integrity" and "on seed 2, but measurement" in m for w, _, m in found)
    with pytest.raises(EvidenceError, match=key):
        verify(study).raise_if_any()


def test_one_altered_seed_is_named_with_record_and_field(study):
    key = key_of(study, "measurement", input="in-3", seed=2)
    edit(study, "UPDATE records SET payload = json_set(payload, '$.seed', 3) WHERE key = ?", key)
    found = problems(study)
    assert ("record", f"measurement {key}", "altered field: seed (now 3)") in found
    assert ("key", f"measurement {key}",
            "the key does not follow from interface, values and seed") in found  # fmt: skip


def test_an_altered_loss_inside_an_evaluation_is_named(study):
    key = key_of(study, "evaluation", input="in-5")
    sql = "UPDATE records SET payload = json_set(payload, '$.losses[1]', 7.5) WHERE key = ?"
    edit(study, sql, key)
    found = problems(study)
    assert any(w == "record" and k == f"evaluation {key}" and m.startswith("altered field: losses")
               for w, k, m in found)  # fmt: skip


def test_a_record_altered_with_all_its_own_digests_breaks_the_chain(study):
    with Store.read(study) as store:
        record = store.get("guard", "domain-gap")
    forged = Record.make("guard", "domain-gap", {**record.payload, "passed": False})
    edit(study, "UPDATE records SET payload = ?, digest = ?, fields = ? WHERE seq = ?",
         forged.text, forged.digest, forged.fields, record.seq)  # fmt: skip
    assert problems(study) == [
        ("chain", "guard domain-gap",
         "its chained digest does not follow from those before it"),
    ]  # fmt: skip


def test_a_renamed_record_is_named_by_its_key(study):
    key = key_of(study, "evaluation", input="in-5")
    edit(study, "UPDATE records SET key = 'mine' WHERE key = ?", key)
    told = [m for w, k, m in problems(study) if (w, k) == ("key", "evaluation mine")]
    assert told == ["the key does not follow from the record's fields"]


def test_a_noted_text_that_its_value_does_not_give_is_told(study):
    change_entry(study, text="1.00 px")
    told = [m for w, k, m in problems(study) if (w, k) == ("number", "worst.risk")]
    assert any(m.startswith("text '1.00 px' is noted, the records give ") for m in told)


def test_the_table_of_artifacts_is_checked_against_the_files(study):
    sql = "UPDATE artifacts SET num_bytes = 7 WHERE ref = (SELECT min(ref) FROM artifacts)"
    edit(study, sql)
    ((what, where, message),) = problems(study)
    assert what == "artifact" and where.endswith(".npz") and "lists 7 bytes" in message


@pytest.mark.parametrize("column", ["key", "digest", "fields", "chain"])
def test_every_column_of_a_record_is_guarded(study, column):
    edit(study, f"UPDATE records SET {column} = '00' || substr({column}, 3) WHERE seq = 10")
    assert problems(study)


def test_a_removed_record_is_noticed_in_the_middle_and_at_the_end(study):
    with Store.read(study) as store:
        last = store.head[0]
    # Nothing cites the last two; foreign keys are off in a plain connection.
    edit(study, "DELETE FROM records WHERE seq = ?", last)
    assert any(w == "chain" and f"ended with record {last}, now with {last - 1}" in m
               for w, _, m in problems(study))  # fmt: skip
    with pytest.raises(EvidenceError, match="added or removed by hand"):
        Store.open(study)
    edit(study, "DELETE FROM records WHERE seq = 20")
    assert any(
        w == "chain" and "follows record 19 as number 21" in m for w, _, m in problems(study)
    )


def test_an_added_record_is_noticed(study):
    r = Record.make("finding", "made-up", {"verdict": "confirmed"})
    edit(study, "INSERT INTO records VALUES (1000, ?, ?, ?, ?, ?, ?, '{}')",
         r.kind, r.key, r.text, r.digest, r.fields, "0" * 64)  # fmt: skip
    found = problems(study)
    assert ("chain", "finding made-up",
            "its chained digest does not follow from those before it") in found  # fmt: skip


def test_one_altered_artifact_byte_is_named(study):
    path = sorted((study / "artifacts").glob("??/*.npz"))[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    (found, *_) = [p for p in problems(study) if p[0] == "artifact"]
    assert found[1] == path.name and "is altered" in found[2] and "held by " in found[2]


def test_a_missing_artifact_is_named(study):
    with Store.read(study) as store:
        record = next(store.records("measurement", input="in-4", seed=0))
        ref = record.at("artifacts.frames")
        store.artifacts.path(ref).unlink()
    assert [(w, k) for w, k, _ in problems(study)] == [("artifact", ref)]
    # Emptying the table of artifacts does not hide it.
    edit(study, "DELETE FROM artifacts")
    assert ("artifact", ref) in [(w, k) for w, k, _ in problems(study)]


def test_one_digit_of_the_page_is_named(study):
    page = study / "report.html"
    text = page.read_text()
    shown = json.loads((study / "report.json").read_text())["numbers"][0]["text"]
    page.write_text(text.replace(f">{shown}<", f">9{shown[1:]}<"))
    assert [(w, k) for w, k, _ in problems(study)] == [("page", "number worst.risk")]
    page.write_text(text.replace("worst of 8 inputs", "worst of 9 inputs"))
    ((what, where, message),) = problems(study)
    assert (what, where) == ("page", "text") and "worst of 9 inputs" in message


def change_entry(study, **fields) -> None:
    path = study / "report.json"
    report = json.loads(path.read_text())
    report["numbers"][0].update(fields)
    path.write_text(json.dumps(report))


@pytest.mark.parametrize(
    "fields",
    [{"value": 1.5}, {"text": "1.00 px"}, {"statistic": "min"}, {"records_digest": "0" * 64},
     {"query": {"kind": "note"}}, {"params": {"path": "score"}}, {"statistic": "unknown"},
     {"num_records": 3}],
)  # fmt: skip
def test_an_altered_manifest_entry_is_named_by_number(study, fields):
    change_entry(study, **fields)
    assert ("number", "worst.risk") in [(w, k) for w, k, _ in problems(study)]


def test_any_other_change_of_report_json_is_told(study):
    path = study / "report.json"
    report = json.loads(path.read_text())
    report["page"]["blocks"][0][1] = "another snippet"
    path.write_text(json.dumps(report))
    assert problems(study) == [("report", "report.json", "was altered after it was written")]
    path.write_text("{")
    assert problems(study)[0][:2] == ("report", "report.json")
    path.unlink()
    assert "is missing although" in problems(study)[0][2]


def test_a_missing_page_is_told(study):
    (study / "report.html").unlink()
    assert problems(study) == [("page", "report.html", "is missing")]


def test_a_report_older_than_the_last_records_still_verifies(study):
    with Store.open(study) as store:
        store.commit([Record.make("note", "later", {})])
    assert problems(study) == []


def test_a_number_whose_records_grew_since_is_named(study):
    with Store.read(study) as store:
        payload = {**next(store.records("trace")).payload, "method": "cem"}
    from dreamcheck.evidence import SearchTrace

    with Store.open(study) as store:
        store.commit([SearchTrace.of(**payload)])
    found = problems(study)
    assert {k for w, k, _ in found if w == "number"} == {"traces"}
    assert any("value 2 is noted, the records give 3" in m for _, _, m in found)


def test_an_edited_protocol_and_seed_table_are_told(study):
    path = study / "study.toml"
    path.write_text(path.read_text().replace("budget = 4", "budget = 8"))
    edit(study, "UPDATE seeds SET partition = 'search' WHERE seed = 16")
    found = problems(study)
    assert found[0][:2] == ("protocol", "study.toml") and "search.budget" in found[0][2]
    assert ("protocol", "seed 16",
            "declared for 'validation', table seeds says 'search'") in found  # fmt: skip


def test_a_damaged_database_is_a_problem_not_a_crash(study):
    path = study / "evidence.sqlite"
    data = bytearray(path.read_bytes())
    data[4096 * 3 : 4096 * 12] = b"\x5a" * (4096 * 9)
    path.write_bytes(bytes(data))
    assert problems(study)
    path.write_bytes(b"no database" * 500)
    assert problems(study)
    with pytest.raises(UsageError, match="holds no study"):
        verify(study / "nowhere")


def test_a_payload_that_is_no_json_costs_one_record(study):
    edit(study, "DROP INDEX records_by_input")
    edit(study, "UPDATE records SET payload = substr(payload, 2) WHERE kind = 'guard'")
    found = problems(study)
    assert [(w, k) for w, k, _ in found] == [("record", "guard domain-gap")]
    assert "not JSON any more" in found[0][2]


def test_the_same_study_made_twice_is_the_same(original, tmp_path):
    run(tmp_path / "again", batch=7)
    assert content(tmp_path / "again") == content(original)
