"""An augmentation sweep's records read as the paper reads them."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from dreamcheck.diagnostics.consistency.screening import Level
from dreamcheck.diagnostics.consistency.sweep import (
    CHECKPOINT,
    CONSISTENCY,
    COST,
    PLANNING,
    claims,
    page,
    read_sweep,
)
from dreamcheck.errors import UsageError
from dreamcheck.reports.sweep_chart import sweep_figure

# sigma_max, raw radius, separated of 40, clean and noisy successes of 80
ROWS = (
    (0.0, 2.0, 10, 72, 40),
    (0.01, 1.0, 30, 72, 60),
    (0.02, 0.6, 38, 70, 73),
    (0.04, 0.2, 39, 67, 76),
)


def rate(count, n=80):
    return {
        "value": count / n, "low": count / n - 0.05, "high": count / n + 0.05,
        "num_cases": n, "num_streams": 1, "successes": float(count),
    }  # fmt: skip


def records(rows=ROWS, loss_low=20.0):
    out = []
    for sigma, ir, separated, clean, noisy in rows:
        same = {"sigma_max": sigma, "identity": f"model-{sigma}"}
        out.append((CHECKPOINT, {
            **same, "data_digest": "d", "steps": 300, "batch": 128, "parameters": 1000,
            "image_size": 56, "one_step_ratio": 0.1, "probe_r2": 0.9,
        }))  # fmt: skip
        severities = [
            {"severity": s, "ir_raw": ir * s / 0.08, "sr_count": separated, "sr_eligible": 40,
             "undefined": ""}
            for s in (0.02, 0.08)
        ]  # fmt: skip
        out.append((CONSISTENCY, {
            **same, "anchors": "a" * 20, "num_anchors": 50, "history": 3, "horizon": 8, "draws": 5,
            "num_pairs": 40, "median_different": 3.0, "num_still": 0, "severities": severities,
        }))  # fmt: skip
        out.append((PLANNING, {
            **same, "protocol_digest": "p" * 20, "num_cases": 80, "label": "offset 25 / budget 50",
            "num_samples": 100, "iterations": 10, "num_streams": 1, "random": rate(8),
            "clean": rate(clean), "perturbed": rate(noisy), "loss_low": loss_low,
            "loss_points": 100 * (clean - noisy) / 80, "loss_high": 60.0,
        }))  # fmt: skip
    return out


def test_the_whole_cost_is_scaled_from_the_levels_that_were_timed():
    def took(sigma, stage, cpu_s):
        row = {"sigma_max": sigma, "stage": stage, "wall_s": 1.0, "cpu_s": cpu_s, "threads": 1}
        return (COST, row)

    some = [took(s, "train", 300.0) for s in (0.0, 0.01, 0.02, 0.04)]
    some += [took(0.04, "consistency", 9.0), took(0.04, "consistency", 12.0)]  # the last counts

    def text(*more):
        return page(read_sweep([*records(), *some, *more]), command="c", figure="f")

    assert "What it cost" not in text()  # planning was not timed at all
    made = text(took(0.02, "plan", 120.0), took(0.04, "plan", 240.0))
    # Of 4 levels: 4 x 5 min, 4 x 0.2 min, 4 x the mean of 2 and 4 min.
    assert "| train | 4 of 4 | 5.00 | 20.0 |" in made
    assert "| consistency | 1 of 4 | 0.20 | 0.8 |" in made
    assert "| plan | 2 of 4 | 2.00 to 4.00 | 12.0 |" in made
    assert "4 levels take 33 CPU minutes on 1 thread(s), within the 90" in made
    assert "**more than** the 90" in text(took(0.04, "plan", 1800.0))


def by_statement(sweep):
    return {c.statement.split(",")[0].split("(")[0].strip(): c for c in claims(sweep)}


def test_recovery_and_screen_by_hand():
    sweep = read_sweep(records())
    # Best gain 36 of 80; 0.8 x 36 = 28.8, so 73 (+33) and 76 (+36) pass and 60 (+20) does not.
    # Clean: 5 points of 80 episodes are 4; level 0.02 loses 2, level 0.04 loses 5.
    assert sweep.recovered == (False, False, True, False)
    # Relative radius 1, 0.5, 0.3, 0.1 against 0.3; separation 38/40 = 0.95 against 0.95.
    assert sweep.block().ir_relative == pytest.approx((1, 0.5, 0.3, 0.1))
    assert sweep.accepted == (False, False, True, True)
    assert sweep.severities == (0.02, 0.08) and sweep.episodes == 80


def test_every_claim_is_answered_from_the_records():
    held = by_statement(read_sweep(records()))
    assert held["Without augmentation"].holds
    assert "40 points lost [20, 60]" in held["Without augmentation"].found
    assert held["Some training noise recovers it"].holds
    # Level 0.04 loses 5 of 80 clean successes, 6.25 points.
    assert held["Clean success does not pay for it"].holds is False
    assert held["The relative radius falls with the level"].holds
    assert held["The separation rate rises"].holds
    assert held["It rises because the radius shrinks"].holds
    screen = held["The screen"]
    assert screen.holds and "agrees with recovery on 3 of 4 levels; first ones 0" in screen.found


def test_a_sweep_that_shows_nothing_says_so():
    flat = tuple((s, 2.0 + s, 10, 72, 40) for s in (0.0, 0.01, 0.02))
    sweep = read_sweep(records(flat, loss_low=-3.0))
    held = by_statement(sweep)
    assert sweep.recovered is None
    assert held["Without augmentation"].holds is False
    assert "no gain to recover" in held["Some training noise recovers it"].found
    assert held["The relative radius falls with the level"].holds is False
    assert held["The screen"].holds is None
    text = page(sweep, command="c", figure="f.svg")
    assert "## What reproduced: 1 of 7" in text  # clean success was not lost
    assert "not asked" in text


def test_the_page_shows_the_records_and_the_papers_levels_beside_them():
    paper = [Level(0.0, 2.0, 6, 61, 282, 197), Level(0.08, 0.1, 60, 61, 295, 293)]
    text = page(read_sweep(records()), command="the command", figure="f.svg", paper=paper)
    assert "`the command`" in text and "![" in text and "(f.svg)" in text
    assert "| 0.02 | 88% [82%, 92%] | 91% [86%, 96%] |" in text
    # Under 0.02 every radius is a quarter: relative ones stay.
    assert "| 0.04 | 0.10 / 0.97 | 0.10 / 0.97 |" in text
    assert "| 0.08 | 98 % | 98 % | 0.05 | 0.98 |" in text
    assert "Random actions on the same episodes: 10%" in text


def test_unfinished_levels_are_named_and_left_out():
    some = [r for r in records() if not (r[0] == PLANNING and r[1]["sigma_max"] == 0.02)]
    sweep = read_sweep(some)
    assert sweep.sigmas == (0.0, 0.01, 0.04) and sweep.missing == (0.02,)
    assert "Not finished: level 0.02." in page(sweep, command="c", figure="f")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda p: p.pop(0), "level 0 not among them"),
        (lambda p: p[4][1].update(anchors="b"), "differ in their windows"),
        (lambda p: p[5][1].update(protocol_digest="q"), "differ in their planning protocol"),
        (lambda p: p[5][1].update(identity="other"), "different checkpoints"),
        (lambda p: p[3][1].update(steps=200), "differ in their steps and batch"),
    ],
)
def test_levels_that_cannot_stand_in_one_table_are_refused(spoil, says):
    made = records()
    spoil(made)
    with pytest.raises(UsageError, match=says):
        read_sweep(made)


def test_the_figure_draws_every_level_once():
    levels = [
        {"sigma_max": s, "clean": rate(c), "noisy": rate(n), "recovered": s > 0, "accepted": None,
         "by_severity": {0.02: (ir, 0.5), 0.08: (ir, k / 40)}}
        for s, ir, k, c, n in ROWS
    ]  # fmt: skip
    svg = sweep_figure(levels, severity=0.08, t_ir=0.3, t_sr=0.95, title="A <sweep>")
    root = ET.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    dots = [c for c in root.iter(f"{space}circle")]
    assert len(dots) == 4 * 2 * 3
    marks = [r.get("class") for r in root.iter(f"{space}rect")]
    assert marks.count("on") == 3 and marks.count("off") == 1
    assert svg.count('class="rule"') == 2
