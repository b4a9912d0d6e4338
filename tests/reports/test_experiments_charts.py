"""Charts of the consistency experiments: what is drawn, and what is left out."""

from __future__ import annotations

import math
import re

import pytest

from dreamcheck.reports.experiments_charts import (
    charts,
    collapse_chart,
    experiments_figure,
    geometry_chart,
    sensitivity_chart,
)


def weight(at, spread, sr, clean):
    rate = None if clean is None else {"value": clean, "low": clean - 0.1, "high": clean + 0.1}
    return {"weight": at, "spread": spread, "sr": sr, "clean": rate}


def heights(drawn, css):
    """Heights above the axis of a class's dots, as shares of the plot."""
    bottom, top = drawn.height - drawn.bottom, drawn.top
    found = re.findall(rf'<circle class="dot {css}" cx="[\d.]+" cy="([\d.]+)"', drawn.render())
    return [(bottom - float(y)) / (bottom - top) for y in found]


def test_collapse_draws_spread_over_the_largest_and_needs_two_weights():
    rows = [weight(0.0, 1.0, 0.0, 0.2), weight(0.05, 4.0, 1.0, None)]
    drawn = collapse_chart(rows)
    assert heights(drawn, "c2") == pytest.approx([0.25, 1.0], abs=0.01)
    assert heights(drawn, "c1") == pytest.approx([0.2], abs=0.01)
    assert drawn.render().count('class="whisker c1"') == 1
    assert collapse_chart(rows[:1]) is None
    assert collapse_chart([rows[1], weight(None, 4.0, 1.0, 0.5)]) is None


def test_the_reference_has_no_line_of_its_own_in_the_sensitivity():
    rows = [{"name": n, "horizon": h, "quantile": 0.9, "ratio": r}
            for n, h, r in (("a", 1, 1.0), ("a", 8, 1.0), ("b", 1, 0.5), ("b", 8, 0.2))]  # fmt: skip
    drawn = sensitivity_chart(rows, "a")
    assert len(heights(drawn, "c3")) == 2
    assert sensitivity_chart(rows[:2], "a") is None


def test_a_scene_on_the_line_has_its_nearest_neighbour_as_far_as_its_views():
    rows = [{"name": "a", "space": "encoder", "nearest": [1.0, 10.0], "radius": [1.0, 100.0]}]
    drawn = geometry_chart(rows, "encoder")
    low, high = -0.1, 2.1  # log10 of the smallest and largest value, and a margin
    share = [(math.log10(r) - low) / (high - low) for r in (1.0, 100.0)]
    assert heights(drawn, "c1") == pytest.approx(share, abs=0.01)
    # Coinciding scenes have a distance of 0, which no logarithm takes.
    assert geometry_chart([{**rows[0], "nearest": [0.0, 1.0]}], "encoder").render()


def test_the_figure_holds_what_was_run():
    none = dict.fromkeys(("drift", "planner", "geometry", "collapse", "sensitivity"))
    cell = {"name": "a<b", "base_mae": 3.0, "best_control_mae": 2.0, "acpc_mae": 1.0}
    result = {**none, "reference": "a", "drift": {"cells": [cell]}}
    assert len(charts(result)) == 1
    figure = experiments_figure(result, title="T & t")
    assert figure.startswith("<svg") and "T &amp; t" in figure and "a&lt;b" in figure
