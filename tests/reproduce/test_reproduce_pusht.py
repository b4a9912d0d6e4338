"""The PushT page's parts that need no simulator: scores read twice, scales, what is left out."""

from __future__ import annotations

import pytest

from dreamcheck.cli.reproducing import group
from dreamcheck.reproduce import pusht, pusht_larger
from dreamcheck.reproduce.gates import page as gate_page
from dreamcheck.study import load_study


def test_a_scale_takes_the_first_of_everything_and_changes_nothing_else():
    shipped = load_study("pusht-3510")
    small = pusht.REDUCED.of(shipped)
    assert small.searches[0].restart_seeds == shipped.searches[0].restart_seeds[:2]
    assert small.seeds["search"] == shipped.seeds["search"]
    assert small.seeds["neighbourhood"] == shipped.seeds["neighbourhood"][:4]
    # Fewer than sixteen held-out seeds give no verdict, however small the run.
    assert small.seeds["validation"] == shipped.seeds["validation"]
    assert small.checks.validation_steps == (16,) and small.checks.references == 32
    assert pusht.Scale().of(shipped) == shipped


def test_the_consequences_seeds_lie_outside_every_partition():
    for library in pusht.LIBRARIES:
        used = {s for part in load_study(f"pusht-{library}").seeds.values() for s in part}
        assert not used & set(pusht.Scale().case_seeds)


def test_both_modes_read_the_same_losses(monkeypatch):
    class Row:
        def __init__(self, **payload):
            self.payload = payload

    class Evaluation:
        input, activity = "a", {"progress": 0.0, "contact": 10.0, "path": 10.0}
        losses = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)

    class Store:
        def records(self, kind):
            floors = {"progress": -1.0, "contact": 5.0, "path": 10.0}
            return [Row(floors=floors)] if kind == "activity-floors" else [Row()]

    monkeypatch.setattr(pusht_larger, "entry_of", lambda record: Evaluation())
    monkeypatch.setattr(pusht_larger, "Evaluation", Evaluation)
    scores = pusht_larger.mode_scores(Store())
    # ceil(0.4 * 8) = 4 of 8: (7 + 6 + 5 + 4) / 4. Fractional, 3.2 of 8: (7 + 6 + 5 + 0.2 * 4) / 3.2.
    assert scores["paper"]["a"] == pytest.approx(5.5)
    assert scores["default"]["a"] == pytest.approx(18.8 / 3.2)


def test_each_mode_reads_its_own_searches_and_says_when_it_only_rereads(monkeypatch):
    class Row:
        def __init__(self, **payload):
            self.payload = payload

    class Evaluation:
        activity = {"progress": 0.0, "contact": 10.0, "path": 10.0}

        def __init__(self, name, loss):
            self.input, self.losses = name, (loss,) * 8

    class Searched:
        def __init__(self, losses):
            self.losses = losses

        def records(self, kind):
            if kind == "activity-floors":
                return [Row(floors={"progress": -1.0, "contact": 5.0, "path": 10.0})]
            if kind == "evaluation":
                return [Evaluation(n, v) for n, v in self.losses.items()]
            return [
                Row(method=m, restart_seed=32, queries=list(self.losses))
                for m in pusht_larger.SEARCHES
            ]

    monkeypatch.setattr(pusht_larger, "entry_of", lambda record: record)
    monkeypatch.setattr(pusht_larger, "Evaluation", Evaluation)
    default, paper = Searched({"a": 1.0, "b": 2.0}), Searched({"a": 1.0, "c": 7.0})
    both = pusht_larger._searches({"paper": paper, "default": default})
    # Equal losses on every seed: the tail's average is that loss in either mode.
    first, second = both.split("### default mode")
    assert "| basinlens | 7.0 |" in first and "| basinlens | 2.0 |" in second
    assert "steered by its own score" in both and "re-reads" not in both
    again = pusht_larger._searches({"paper": default, "default": default})
    assert "paper mode re-reads" in again and "| basinlens | 7.0 |" not in again


def test_what_was_not_run_is_said(tmp_path):
    assert pusht_larger.larger_parts(tmp_path, "3510") == [
        "# The 3,510 library, searched\n\nNot run."
    ]
    assert pusht_larger.menu_part(tmp_path).endswith("Not run.")
    assert gate_page(tmp_path).count("Not run.") == 3


def test_an_unknown_library_or_task_is_named(tmp_path):
    from typer.testing import CliRunner

    from dreamcheck.errors import UsageError

    for command, words in (
        (["pusht", "--libraries", "577", "--out", str(tmp_path)], "577"),
        (["gate", "--task", "maze", "--out", str(tmp_path)], "maze"),
    ):
        found = CliRunner().invoke(group, command)
        assert isinstance(found.exception, UsageError) and words in str(found.exception)


def test_the_first_and_the_last_measured_stage_of_a_training_are_gated(tmp_path):
    from dreamcheck.errors import UsageError
    from dreamcheck.reproduce.gates import _short, stages_of

    def measured(*parts):
        folder = tmp_path.joinpath("run", *parts)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "card.json").write_text("{}")
        return folder

    first = measured("stages", "2")
    with pytest.raises(UsageError, match=r"holds 1 measured stage\(s\)"):
        stages_of(tmp_path / "run")
    tenth = measured("stages", "10")
    assert stages_of(tmp_path / "run") == (first, tenth)  # by number, not by letter
    assert stages_of(tmp_path / "run") != (first, measured())
    assert stages_of(tmp_path / "run") == (first, tmp_path / "run")
    assert _short(str(first)) == "run/stages/2" and _short(str(tmp_path / "run")) == "run"


def test_nothing_agrees_without_a_test():
    assert pusht.says("c", True, "w", p=0.05) == "| c | agrees | w, p = 0.05 |"
    for p in (0.051, None):
        assert "| same direction, not significant |" in pusht.says("c", True, "w", p=p)
    assert "| does not agree |" in pusht.says("c", False, "w", p=0.9)
    assert pusht.says("c", None, "w", p=None) == "| c | not testable | w |"


def test_a_lead_carries_the_larger_p_of_its_paired_tests():
    best = {"random": [1.0] * 5, "gp-ucb": [2.0, 2.0, 2.0, 9.0, 2.0], "basinlens": [3.0] * 5}
    # Ahead of random on 5 of 5 restarts, p = 1/32; of gp-ucb on 4 of 5: (5 + 1) / 32.
    same, p, why = pusht.leads("basinlens", best)
    assert not same and p == pytest.approx(6 / 32)  # gp-ucb's mean is 3.4
    assert why == "mean best random 1, gp-ucb 3, basinlens 3"
    assert pusht.leads("basinlens", {**best, "gp-ucb": [2.0] * 5})[:2] == (True, 1 / 32)
