"""Repair on TwoRoom, as small as it can be: halves, two arms, and what is recorded."""

from __future__ import annotations

import json

import pytest

from dreamcheck.discovery.library import Library
from dreamcheck.discovery.specification import get_specification
from dreamcheck.errors import Abstention
from dreamcheck.gate import Bank, BankEntry
from dreamcheck.gate.bank import Measured
from dreamcheck.gate.repair import Settings, repair, split_failures
from dreamcheck.gate.replay import _probe
from dreamcheck.models.registry import load_model
from dreamcheck.reports import verify_study, write_report
from dreamcheck.study import load_study
from dreamcheck.study.measuring import interface_of
from dreamcheck.tasks.tworoom import TwoRoom

SETTINGS = Settings(original=6, around=4, steps=2, batch=16, seeds=1, planning=0)


def bank_of(strata):
    library = Library.build(get_specification("start-goal-prefix"), task_rules=TwoRoom().rules())
    roles = [*["failure"] * len(strata), "random"]
    entries = tuple(
        BankEntry(
            id=library.id(100 * i), role=role, specification="start-goal-prefix",
            values=dict(library.values(100 * i)), risk=9.0, stratum=stratum,
        )
        for i, (role, stratum) in enumerate(zip(roles, [*strata, "in"], strict=True))
    )  # fmt: skip
    facts = dict(
        task="tworoom", task_version="1", package_version="x", policy="goal-seeking",
        policy_digest="p", target="state_probe", unit="px", columns=("agent_x", "agent_y"),
        history=3, forecast=8, frameskip=5, levels={"start-goal-prefix": 5.0},
    )  # fmt: skip
    bank = Bank(
        title="hand-made", model="m", measured=Measured(**facts),
        protocol=load_study("tworoom-demo").entries(), used_seeds=(0,), entries=entries,
    )  # fmt: skip
    policy = interface_of(_probe(bank, "tworoom-small", None)).policy
    measured = bank.measured.model_copy(update={"policy_digest": policy})
    return bank.model_copy(update={"measured": measured})


def test_the_halves_share_no_failure_and_leave_out_what_is_out_of_support():
    bank = bank_of(["in", "in", "edge", "out", "in"])
    first, second = split_failures(bank, root_seed=0)
    ids = [e.id for e in (*first, *second)]
    assert len(first) == len(second) == 2 and len(set(ids)) == 4
    assert bank.entries[3].id not in ids and bank.entries[5].id not in ids


def test_one_failure_in_support_is_too_few_to_judge_by():
    with pytest.raises(Abstention, match="1 failure"):
        split_failures(bank_of(["in", "out"]), root_seed=0)


def test_a_whole_loop_leaves_the_encoder_alone_and_is_reported(tmp_path):
    found = repair(
        bank_of(["in", "in"]), model="tworoom-small", recipe="tworoom-small", out=tmp_path,
        settings=SETTINGS,
    )  # fmt: skip
    groups = found.to_dict()["groups"]
    assert {g: groups[g]["inputs"] for g in groups} == {
        "repaired_half": 1, "other_half": 1, "random": 1, "default_reset": 0,
    }  # fmt: skip
    before = load_model("tworoom-small").module.state_dict()
    for arm in ("repaired", "control"):
        after = load_model(tmp_path / arm).module.state_dict()
        moved = {k.split(".")[0] for k in after if not after[k].equal(before[k])}
        assert moved and not moved & {"encoder", "projector"}
    assert json.loads((tmp_path / "repair.json").read_text())["groups"] == groups
    assert "half of the failures" in write_report(tmp_path / "record").read_text()
    assert verify_study(tmp_path / "record").ok
