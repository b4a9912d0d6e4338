"""Every check about the model finds its faults and passes its clean subject, on the readable toy."""

import numpy as np
import pytest
import torch

from dreamcheck.doctor.bases import toy_base
from dreamcheck.doctor.contract import Verdict
from dreamcheck.doctor.examination import examine, run_check
from dreamcheck.doctor.registry import all_checks, all_generators, chosen_checks
from dreamcheck.doctor.spoiling import Spoiled, with_conventions, with_episodes
from dreamcheck.doctor.subject import Subject
from dreamcheck.doctor.thresholds import load_thresholds
from dreamcheck.errors import ExitCode, UsageError

MODEL_CHECKS = sorted(n for n, g in all_generators().items() if g.uses_model)
ALARMS = (Verdict.WARN, Verdict.WRONG)


@pytest.fixture(scope="module")
def base():
    torch.set_num_threads(1)
    return toy_base()


def check_named(name):
    return chosen_checks(only=(name,))[0]


def test_every_check_has_a_generator_of_faults_and_a_threshold_with_a_source():
    assert {c.name for c in all_checks()} == set(all_generators())
    assert all(c.group and c.title and c.needs for c in all_checks())


@pytest.mark.parametrize("name", MODEL_CHECKS)
def test_a_clean_subject_is_fine_and_the_worst_fault_is_found(base, name):
    cases = list(all_generators()[name].cases(base))
    clean = [c for c in cases if not c.faulty]
    worst = max((c for c in cases if c.faulty), key=lambda c: c.grade)
    assert clean and clean[0].grade == 0
    good = run_check(check_named(name), clean[0].build())
    assert good.verdict is Verdict.FINE, good.evidence
    bad = run_check(check_named(name), worst.build())
    assert bad.verdict in ALARMS, bad.evidence
    assert bad.fix and bad.evidence and bad.threshold is not None and bad.threshold.source
    assert next(iter(bad.measured.values())).unit


@pytest.mark.parametrize("name", MODEL_CHECKS)
def test_grades_rise_and_a_found_fault_stays_found_when_it_grows(base, name):
    """Within one kind of fault: names up to the first '-' that share a prefix."""
    cases = [c for c in all_generators()[name].cases(base) if c.faulty]
    kinds = {}
    for c in cases:
        kinds.setdefault(c.name.rstrip("0123456789.+-e"), []).append(c)
    for same in kinds.values():
        if len({np.sign(float(c.name[3:])) for c in same if c.name.startswith("lag")}) > 1:
            same = [c for c in same if "+" in c.name]
        grades = [c.grade for c in same]
        assert grades == sorted(grades)
        found = [run_check(check_named(name), c.build()).verdict in ALARMS for c in same]
        assert found == sorted(found), list(zip([c.name for c in same], found, strict=True))


def test_an_examination_changes_no_weight_buffer_or_mode(base):
    subject = base.subject()
    before = {k: v.clone() for k, v in subject.model.module.state_dict().items()}
    modes = [m.training for m in subject.model.module.modules()]
    examine(subject)
    after = subject.model.module.state_dict()
    assert all(torch.equal(after[k], v) for k, v in before.items())
    assert [m.training for m in subject.model.module.modules()] == modes


def test_nothing_to_examine_is_skipped_with_what_it_needs_and_is_no_failure():
    found = examine(Subject())
    assert found.worst is Verdict.SKIPPED and found.exit_code == ExitCode.DONE
    assert all(f.verdict is Verdict.SKIPPED and f.needs for f in found.findings)


def test_a_model_alone_is_examined_as_far_as_possible(base):
    found = examine(Subject(model=base.subject().model))
    verdicts = {f.check: f.verdict for f in found.findings}
    assert verdicts["model_nan"] is Verdict.FINE and verdicts["batch_mates"] is Verdict.FINE
    assert verdicts["pixels"] is Verdict.SKIPPED and "--data" in found.of("pixels").needs


def test_a_spent_budget_skips_and_says_so(base):
    found = examine(base.subject(), seconds=0.0)
    assert all(
        f.verdict is Verdict.SKIPPED and ("budget" in f.needs or "--" in f.needs or f.needs)
        for f in found.findings
    )


def test_an_error_in_a_users_model_becomes_a_verdict_and_the_others_go_on(base):
    def broken(model, observation):
        raise ZeroDivisionError("my encoder")

    subject = base.subject()
    subject.model = Spoiled(subject.model, encode=broken)
    found = examine(subject, checks=chosen_checks(only=("pixels", "training_mode")))
    assert found.of("pixels").verdict is Verdict.CANNOT_TELL
    assert "my encoder" in found.of("pixels").evidence[0]
    assert found.of("training_mode").verdict is Verdict.FINE


def test_the_scale_sweep_finds_the_factor_that_was_put_in(base):
    """Spec C12: actions five times too small are best multiplied by five."""
    subject = base.subject()
    subject.episodes = with_episodes(subject.episodes, actions=lambda a: a / 5)
    found = run_check(check_named("action_scale"), subject)
    assert found.verdict is Verdict.WRONG and "actions x 5" in found.fix


def test_a_lag_is_named_with_its_size_and_side(base):
    lagged = next(c for c in all_generators()["model_lag"].cases(base) if c.name == "lag+2")
    found = run_check(check_named("model_lag"), lagged.build())
    assert found.measured["best_lag"].value == 2


def test_values_of_a_batchnorm_gap_by_hand(base):
    """Stored variance a hundredth: evaluation amplifies tenfold what the predictor was fitted for."""
    subject = base.subject()
    with torch.no_grad():
        subject.model.module.norm.running_var /= 100
    found = run_check(check_named("batchnorm"), subject)
    assert found.verdict is Verdict.WRONG
    assert found.measured["amplification"].value == pytest.approx(30**-0.5, rel=1e-3)
    assert found.measured["batches"].value == 1000


def test_a_scaler_of_other_data_is_found_from_its_statistics_and_limits_are_stated(base):
    """A deviation 30 % off is under what 16 episodes can tell (the limit says so); 60 % is not."""
    subject = base.subject(train=None)
    c = subject.model.conventions
    found = {}
    for factor in (1.3, 1.6):
        std = tuple(factor * s for s in c.action_std)
        subject.model = with_conventions(subject.model, c.model_copy(update={"action_std": std}))
        found[factor] = run_check(check_named("action_scaler"), subject)
    assert found[1.6].verdict in ALARMS
    assert found[1.3].limit.value > 0.2


def test_the_paper_has_no_relative_domain_threshold():
    paper, default = load_thresholds("paper"), load_thresholds()
    assert default.get("domain_guard", "per_spacing").value == 0.2
    assert paper.get("domain_guard", "per_spacing").value == float("inf")
    assert paper.get("domain_guard", "paired") == default.get("domain_guard", "paired")
    with pytest.raises(UsageError, match="no thresholds are called 'strict'"):
        load_thresholds("strict")


def test_unknown_checks_are_named():
    with pytest.raises(UsageError, match="no check is called 'colour'"):
        chosen_checks(only=("colour",))
