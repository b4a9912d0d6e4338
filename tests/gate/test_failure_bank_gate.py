"""A bank replayed: hand-made losses with known verdicts, and the shipped model against itself."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import small_study
from dreamcheck.errors import (
    Abstention,
    EvidenceError,
    GuardRefused,
    InterfaceMismatch,
    UsageError,
)
from dreamcheck.gate import Bank, BankEntry, bank_from_study, gate, load_bank, save_bank
from dreamcheck.gate.bank import Measured
from dreamcheck.gate.judge import GateResult, Losses, judge
from dreamcheck.gate.junit import junit_xml
from dreamcheck.gate.recording import record_gate
from dreamcheck.reports import verify_study, write_report
from dreamcheck.study import load_study
from dreamcheck.study.assembling import assemble
from dreamcheck.study.measuring import interface_of
from toys import CentroidModel

VALUES = {"start_x": 60, "start_y": 60, "goal_x": 160, "goal_y": 60, "prefix": "right"}
N = 16


def entry(name, role="failure", risk=12.0, **values):
    values = None if role == "default-reset" else {**VALUES, **values}
    return BankEntry(
        id=name, role=role, specification="start-goal-prefix", values=values, risk=risk
    )


def bank_of(*entries, **measured):
    facts = dict(
        task="tworoom", task_version="1", package_version="dreamcheck 0.1.0", policy="goal-seeking",
        policy_digest="p", target="state_probe", unit="px", columns=("agent_x", "agent_y"),
        history=3, forecast=8, frameskip=5, levels={"start-goal-prefix": 10.0},
    )  # fmt: skip
    config = load_study("tworoom-demo")
    return Bank(
        title="hand-made",
        model="m",
        measured=Measured(**{**facts, **measured}),
        protocol=config.entries(),
        used_seeds=(0, 1, 2, 5),
        entries=entries,
    )


def losses(**rows):
    return Losses(
        "id", "name", {k: [v + 0.01 * s for s in range(N)] for k, v in rows.items()}, rows
    )


def words(bank, old, new):
    return {c.id: c.word for c in judge(bank, losses(**old), losses(**new))}


def test_each_word_on_losses_whose_verdict_is_known():
    bank = bank_of(
        entry("a"), entry("b"), entry("c"), entry("d"),
        entry("s", "random", 2.0), entry("t", "random", 2.0), entry("r", "default-reset", 2.0),
    )  # fmt: skip
    old = dict(a=12, b=12, c=12, d=9, s=2, t=2, r=2)
    new = dict(a=5, b=11, c=15, d=13, s=11, t=4, r=2)
    # All 16 seeds agree: p = 2^-16, times 7 entries is far below 0.05.
    assert words(bank, old, new) == {
        "a": "fixed",  # lower and below the level of 10
        "b": "unchanged",  # lower, but still a failure
        "c": "worse",
        "d": "new",  # regressed to the mean under the old model, fails under the new one
        "s": "new",  # a sentinel that passed
        "t": "unchanged",  # higher, but it still passes
        "r": "unchanged",  # equal on every seed: no test rejects
    }


def test_swapping_the_checkpoints_turns_worse_into_lower():
    bank = bank_of(entry("a"), entry("b"))
    assert words(bank, dict(a=12, b=13), dict(a=15, b=5)) == {"a": "worse", "b": "fixed"}
    assert words(bank, dict(a=15, b=5), dict(a=12, b=13)) == {"a": "unchanged", "b": "new"}


def test_holm_keeps_a_four_seed_change_from_counting():
    bank = bank_of(entry("a"))
    old = Losses("o", "o", {"a": [12.0] * 4}, {"a": 12.0})
    new = Losses("n", "n", {"a": [5.0] * 4}, {"a": 5.0})
    (case,) = judge(bank, old, new)
    assert case.word == "unchanged" and case.p_lower == pytest.approx(1 / 16)  # 2^-4 > 0.05


def test_a_failed_measurement_is_not_comparable_and_does_not_touch_the_others():
    bank = bank_of(entry("a"), entry("b"))
    new = replace(losses(a=5, b=5), failures={"a": "new: crash"}, risks={"a": None, "b": 5})
    first, second = judge(bank, losses(a=12, b=12), new)
    assert (first.word, first.reason) == ("not comparable", "new: crash")
    assert second.word == "fixed"


def test_fresh_seeds_are_those_the_study_never_declared():
    assert bank_of(entry("a")).fresh_seeds(4) == (3, 4, 6, 7)


def test_a_bank_survives_the_disk_and_an_altered_one_is_named(tmp_path):
    bank = bank_of(entry("a"), entry("s", "random"))
    path = save_bank(bank, tmp_path)
    assert load_bank(tmp_path) == bank
    save_bank(bank, tmp_path)  # the same one again is no news
    with pytest.raises(UsageError, match="already holds another bank"):
        save_bank(bank_of(entry("b")), tmp_path)
    path.write_text(path.read_text().replace('"risk": 12.0', '"risk": 13.0', 1))
    with pytest.raises(EvidenceError, match="was altered after it was written"):
        load_bank(tmp_path)
    with pytest.raises(UsageError, match="holds no bank.json"):
        load_bank(tmp_path / "nowhere")


def replayable(*entries, **measured):
    bank = bank_of(*entries)
    bench = assemble(load_study("tworoom-demo"))
    from dreamcheck.gate.replay import _probe

    probe = _probe(bank, "tworoom-small", bench.task)
    return bank_of(*entries, **{"policy_digest": interface_of(probe).policy, **measured})


@pytest.mark.parametrize(
    ("measured", "error", "what"),
    [
        ({"task_version": "0"}, InterfaceMismatch, "task version '0'"),
        ({"forecast": 6}, InterfaceMismatch, "forecast 6"),
        ({"unit": "cm"}, InterfaceMismatch, "risk unit 'cm'"),
        (
            {"policy_digest": "x"},
            InterfaceMismatch,
            "policy 'goal-seeking x', the old .* [0-9a-f]{12}'",
        ),
        ({"columns": ("agent_x",)}, InterfaceMismatch, "readout columns"),
    ],
)
def test_a_bank_made_elsewhere_is_refused_before_anything_is_measured(measured, error, what):
    with pytest.raises(error, match=what):
        gate(replayable(entry("a"), **measured), new="tworoom-small", old="tworoom-small")


def test_a_refused_gate_writes_nothing_and_a_bank_is_written_whole_or_not_at_all(
    tmp_path, monkeypatch
):
    from dreamcheck.cli.main import app

    bank = replayable(entry("a"), task_version="0")
    save_bank(bank, tmp_path / "bank")
    options = ["--model", "tworoom-small", "--baseline", "tworoom-small", "--quiet"]
    asked = ["gate", str(tmp_path / "bank"), *options, "--out", str(tmp_path / "out")]
    found = CliRunner().invoke(app, [*asked, "--junit", str(tmp_path / "gate.xml")])
    assert isinstance(found.exception, InterfaceMismatch)
    assert found.exception.exit_code == 4
    assert "It was made with dreamcheck 0.1.0, this is" in str(found.exception)
    assert [p.name for p in tmp_path.iterdir()] == ["bank"]

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("dreamcheck.gate.bank.os.replace", full)
    with pytest.raises(OSError, match="no space left"):
        save_bank(bank, tmp_path / "second")
    assert not (tmp_path / "second" / "bank.json").exists()


def test_another_appearance_is_called_by_its_name():
    from dreamcheck.gate.replay import _probe, require_same

    bank = replayable(entry("a"), task_version="1, appearance aaaa")
    probe = _probe(bank, "tworoom-small", None)
    probe.task.version = "1, appearance bbbb"
    with pytest.raises(InterfaceMismatch, match="made with task appearance '1, appearance aaaa'"):
        require_same(bank, probe, label="new checkpoint")


def test_a_probe_worse_than_the_bound_compares_nothing():
    with pytest.raises(GuardRefused, match="more than the bound of 0.01"):
        gate(replayable(entry("a")), new="tworoom-small", old="tworoom-small", probe_bound=0.01)


@pytest.fixture(scope="module")
def against_itself():
    bank = replayable(
        entry("a"), entry("s", "random", 2.0, start_x=150), entry("reset", "default-reset")
    )
    return gate(bank, new="tworoom-small", old="tworoom-small", null="tworoom-small", num_seeds=6)


def test_a_checkpoint_against_itself_changes_nothing(against_itself):
    assert against_itself.counts["unchanged"] == 3 and not against_itself.regressed
    assert all(c.old_risk == c.new_risk and c.lower == c.higher == 0 for c in against_itself.cases)
    assert against_itself.null == {"unchanged": 3}


def test_junit_counts_worse_and_new_as_failures(against_itself):
    cases = against_itself.cases
    marked = (
        replace(cases[0], word="worse"),
        replace(cases[1], word="new"),
        replace(cases[2], word="not comparable", reason="crash: x < y"),
    )
    result: GateResult = replace(against_itself, cases=marked)
    suite = ET.fromstring(junit_xml(result).split("?>", 1)[1])
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "2", "1")
    assert result.regressed


def test_the_report_shows_the_gate_and_verify_recomputes_it(against_itself, tmp_path):
    record_gate(tmp_path / "g", against_itself)
    page = write_report(tmp_path / "g").read_text()
    assert "the new checkpoint on old failures" in page
    assert verify_study(tmp_path / "g").ok


class _Blind(CentroidModel):
    """A model whose forecast is off everywhere, so that nothing stands out."""


def test_a_study_that_confirmed_nothing_gives_no_bank(tmp_path):
    small_study.run_at(tmp_path / "s", model=_Blind())
    with pytest.raises(Abstention, match="gives no bank"):
        bank_from_study(tmp_path / "s")
