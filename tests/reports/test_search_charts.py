"""Charts with more methods than the palette has colours."""

from dreamcheck.discovery import METHODS
from dreamcheck.reports.charts import best_so_far
from dreamcheck.reports.search_charts import cumulative_hits, mean_best
from dreamcheck.reports.svg import PALETTE, series_css


def test_eighteen_series_are_told_apart():
    css = [series_css(i) for i in range(3 * len(PALETTE))]
    assert len(set(css)) == len(css) and css[6] == f"{css[0]} dashed"


def test_no_method_is_dropped_from_the_best_so_far_chart():
    traces = [{"method": m, "outcomes": [1.0, None, 2.0 + i]} for i, m in enumerate(METHODS)]
    drawn = best_so_far(traces, unit="px")
    assert all(f"{m}: mean over restarts" in drawn for m in METHODS)
    assert 'class="line c4 dashed bold"' in drawn  # the tenth


def test_curves_start_where_a_score_is_known():
    curve = {
        "method": "random", "best": [None, 1.0, 2.0], "sem": [None, None, 0.5],
        "hits": [{"threshold": 150, "share": [0.0, 0.0, 0.5]}],
    }  # fmt: skip
    chart = mean_best([curve], unit="px")
    (line,) = [m for m in chart.splitlines() if "polyline" in m]
    assert line.count(",") == 2  # two points, of three queries
    assert "random: 0.500" in cumulative_hits([curve], 0)
