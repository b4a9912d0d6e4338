"""Law 2: a failed guard refuses, or stamps what was let through."""

import pytest

from dreamcheck.doctor.bases import toy_base
from dreamcheck.doctor.callback import DoctorCallback
from dreamcheck.doctor.contract import Verdict
from dreamcheck.doctor.guards import GUARDS, guarded, guards_of, require
from dreamcheck.doctor.registry import all_checks, all_generators
from dreamcheck.errors import ExitCode, GuardRefused, UsageError


def test_every_guard_is_a_check():
    known = {c.name for c in all_checks()}
    assert all(set(names) <= known for names in GUARDS.values())


def test_a_sound_subject_passes_without_a_stamp():
    assert require(guards_of("discover"), toy_base().subject()) == []


@pytest.mark.parametrize("name", ["training_mode", "collapse", "domain_guard", "batch_mates"])
def test_a_failed_guard_refuses_with_its_measurement_and_the_way_out(name):
    worst = max(all_generators()[name].cases(toy_base()), key=lambda c: c.grade)
    with pytest.raises(GuardRefused, match=f"--allow {name}") as refused:
        require((name,), worst.build())
    assert refused.value.exit_code == ExitCode.GUARD_REFUSED
    stamps = require((name,), worst.build(), allow=(name,))
    assert len(stamps) == 1 and name in stamps[0] and "allowed" in stamps[0]


def test_allowing_one_guard_lets_no_other_through():
    worst = max(all_generators()["collapse"].cases(toy_base()), key=lambda c: c.grade)
    with pytest.raises(GuardRefused, match="collapse"):
        require(guards_of("discover"), worst.build(), allow=("domain_guard",))


def test_a_guard_that_does_not_exist_cannot_be_allowed():
    with pytest.raises(UsageError, match="no guard"):
        require(("collapse",), toy_base().subject(), allow=("colapse",))


def test_a_callback_examines_within_its_budget_and_leaves_training_mode_as_it_was():
    subject = toy_base().subject()
    subject.model.module.train()
    doctor = DoctorCallback(
        episodes=subject.episodes, task=subject.task, windows=64, seconds=30.0, every=2
    )
    assert doctor(subject.model, epoch=1) is None
    found = doctor(subject.model, epoch=2)
    assert found is not None and doctor.worst in (Verdict.FINE, Verdict.WARN)
    assert "training_mode" not in [f.check for f in found.findings]
    assert subject.model.module.training


def test_a_planned_evaluation_reads_the_normalisation_of_a_shipped_checkpoint_on_drawn_frames():
    from dreamcheck.models.registry import load_model
    from dreamcheck.planning.protocol import load_protocol
    from dreamcheck.planning.recorded import FreshPolicy, fresh_episodes
    from dreamcheck.tasks.tworoom import TwoRoom

    task = TwoRoom()
    held = fresh_episodes(task, FreshPolicy(num_episodes=20, length=60), seed=1)
    model = load_model("tworoom-small")
    found = guarded(
        "plan", "tworoom-small", model, task=task, episodes=held.episodes,
        protocol=load_protocol("fresh-25-50").replace(num_eval=5),
    )  # fmt: skip
    assert found.stamps == () and found.domain_guard["verdict"] == "fine"
    assert found.norm_audit["verdict"] == "fine"
    assert found.norm_audit["measured"]["gap"]["value"] < 1.5
    # Statistics that lag behind: a hundredth of the variance in every layer.
    for module in model.module.modules():
        if hasattr(module, "running_var") and module.running_var is not None:
            module.running_var.mul_(0.01)
    stale = guarded(
        "plan", "tworoom-small", model, task=task, episodes=held.episodes,
        protocol=load_protocol("fresh-25-50").replace(num_eval=5),
        allow=["collapse", "domain_guard", "batch_mates"],
    )  # fmt: skip
    assert stale.norm_audit["verdict"] == "wrong"
    assert stale.norm_audit["measured"]["gap"]["value"] > 100
