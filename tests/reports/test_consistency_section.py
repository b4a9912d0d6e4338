"""The consistency section: its order, numbers recomputed from what is kept, marks that stay apart."""

from __future__ import annotations

import io
import re
import sqlite3

import pytest
from PIL import Image

from dreamcheck.errors import Abstention
from dreamcheck.evidence.diagnoses import record_diagnosis
from dreamcheck.reports import verify_study, write_report
from dreamcheck.reports.consistency_charts import (
    by_severity,
    colours,
    divergence,
    radii,
    screen,
)
from dreamcheck.reports.consistency_statistics import radius_of, undefined_because

OUTCOMES = ("certified, unchanged", "uncertified, unchanged", "uncertified, changed")


def planner(*winners, **changes):
    """Choices at histories with these winners' outcomes (positions in OUTCOMES)."""
    counts = {o: sum(OUTCOMES[w] == o for w in winners) for o in OUTCOMES}
    made = {
        "num_histories": len(winners), "winner": counts, "elites": counts, "changed_low": 0.1,
        "changed_high": 0.9, "plans_unchanged": 1, "certified_runs": 0, "certified_iterations": 3,
        "num_iterations": 8, "mean_overlap": 0.5, "median_regret": 0.25,
        "median_lost_advantage": -0.0004,
        "histories": [{"winner": OUTCOMES[w], "elites": OUTCOMES[w]} for w in winners],
    }  # fmt: skip
    return {**made, **changes}


def success(clean, perturbed):
    rate = {"low": 0.0, "high": 1.0}
    return {
        "label": "offset 25 / budget 50", "clean": {"value": sum(clean) / len(clean), **rate},
        "perturbed": {"value": sum(perturbed) / len(perturbed), **rate}, "num_cases": len(clean),
        "loss_points": -0.0, "loss_low": -0.2, "loss_high": 40.0,
        "clean_success": [[x] for x in clean], "perturbed_success": [[x] for x in perturbed],
        "trivial": [0] * len(clean),
    }  # fmt: skip


def severity(at, *, distances=((1.0, 2.0), (3.0, 2.0)), **changes):
    made = {
        "severity": at, "label": f"gaussian {at:g} on history", "distances": distances,
        "by_step": [0.1, 0.2], "ir_raw": 1.9, "ir_rel": 0.25, "sr": 0.5, "sr_count": 1,
        "sr_eligible": 2, "undefined": "", "not_relative": "", "score": -0.01, "delta_score": 1.0,
        "accepted": False, "planner": planner(0, 1, 2, 2), "success": success([1, 1, 0], [1, 1, 0]),
    }  # fmt: skip
    return {**made, **changes}


def checkpoint(name, *severities, **changes):
    made = {
        "name": name, "is_reference": False, "num_still": 0, "clipped": False,
        "scales": [1.0, 1.0], "different": [1.5, 9.0], "severities": list(severities),
    }  # fmt: skip
    return {**made, **changes}


def table(*checkpoints, **changes):
    made = {
        "task": "toy", "perturbation": "gaussian", "severity_means": "spread", "on": "history",
        "identity_severity": 0.0, "severities": [0.02, 0.08], "reference": "plain",
        "horizon": 2, "history": 3, "frameskip": 5, "image_size": 56, "num_anchors": 2,
        "num_windows": 40, "num_episodes": 2, "draws": 2, "t_ir": 0.3, "t_sr": 0.95,
        "sign_from_radius_alone": True, "eligible": 2, "skipped": 0, "no_success": "",
        "cost_scale": "squared distance summed over latent coordinates", "protocol": None,
        "film": {"checkpoint": checkpoints[-1]["name"], "scene": "0:0", "steps": [1, 2],
                 "label": "gaussian 0.08 on history", "divergence": [0.31, 0.42]},
        "checkpoints": list(checkpoints),
    }  # fmt: skip
    return {**made, **changes}


def png(shade):
    held = io.BytesIO()
    Image.new("RGB", (2, 2), (shade, 0, 0)).save(held, format="PNG")
    return held.getvalue()


def keep(directory, result):
    frames = {f"{s}-{k}": png(50 * k) for s in ("real", "clean", "perturbed") for k in (0, 1, 2)}
    record_diagnosis(
        directory, name="consistency", subject={"task": "toy"}, inputs={}, result=result,
        artifacts=frames if result["film"] else None,
    )  # fmt: skip
    return write_report(directory).read_text(encoding="utf-8")


def words_of(page):
    """What a reader sees of the section."""
    section = page[page.index('id="consistency"') : page.index("<footer")]
    return re.sub(r"<[^>]+>", "", re.sub(r"<style>.*?</style>", "", section, flags=re.DOTALL))


def two(*, noisy=None, plain=None):
    return (
        checkpoint("plain", severity(0.02), plain or severity(0.08), is_reference=True),
        checkpoint("noisy", severity(0.02), noisy or severity(0.08)),
    )


def test_the_section_shows_what_matters_first(tmp_path):
    page = keep(tmp_path / "d", table(*two()))
    text = words_of(page)
    order = [
        "Does it see through noise?", "choice changed in 50%", "success lost 0 [0, 40] points", "of choices are certified",
        "imagined from clean", "imagined from perturbed", "The same distance at every step",
        "Invariance radius:", "Separation rate.", "The screen at severity",
        "The same candidates costed", "What the changed choices cost", "Radius in units",
    ]  # fmt: skip
    at = [text.index(words) for words in order]
    assert at == sorted(at)
    # The reference stands beside what was asked about; certificates and film are not of it.
    lead = text[: text.index("of choices are certified")]
    assert 0 < lead.index("noisy: the") < lead.index("plain, the reference: the")
    assert "plain: 25% of choices" not in text and "as noisy sees it" in text
    assert "separation cannot change it" in text and verify_study(tmp_path / "d").ok


def paired(page, at):
    """Whether the place lies inside a pair of columns."""
    open_divs = []
    for tag in re.finditer(r"<(/?)div([^>]*)>", page[:at]):
        open_divs.pop() if tag[1] else open_divs.append(tag[2])
    return any('class="pair"' in d for d in open_divs)


def test_wide_drawings_stand_in_pairs_and_no_zero_has_a_sign(tmp_path):
    page = keep(tmp_path / "d", table(*two()))
    assert page.count('<div class="pair"><figure><div class="seen"') == 1
    for chart in re.finditer(r'<svg class="chart"', page[page.index('id="consistency"') :]):
        assert paired(page, page.index('id="consistency"') + chart.start())
    assert not re.search(r">-0(\.0*)?%?<", page)
    assert ">0.0%<" in page  # -0.0004 of the advantage


def test_certificates_that_prove_nothing_get_one_line(tmp_path):
    none = severity(0.08, planner=planner(1, 1, 2, 2))
    page = keep(tmp_path / "d", table(*two(noisy=none, plain=none)))
    text = words_of(page)
    assert "of choices are certified, so the bounds prove nothing" in text
    assert text.count("certif") == 1 and "changed." in text


def test_numbers_are_recomputed_from_what_is_kept():
    # Means over draws (2, 2), motion 1 and 4: 2 and 0.5; the 0.9 quantile is 0.5 + 0.9 x 1.5.
    assert radius_of(severity(0.08), [1.0, 4.0]) == pytest.approx(1.85, abs=1e-7)


def test_an_altered_distance_changes_the_shown_radius_and_is_named(tmp_path):
    page = keep(tmp_path / "d", table(*two()))
    # Both windows move by 2 of 1; 9 of (1.5, 9) lies beyond 2 and a tenth.
    assert ">2.000<" in page and ">0.500<" in page
    db = sqlite3.connect(tmp_path / "d/evidence.sqlite")
    db.execute("UPDATE records SET payload = replace(payload, '[3.0,2.0]', '[9.0,9.0]')")
    db.commit()
    db.close()
    problems = "\n".join(map(str, verify_study(tmp_path / "d").problems))
    assert "radius" in problems and "consistency" in problems


def test_what_is_undefined_is_said_and_not_drawn(tmp_path):
    lost = {"sr": None, "sr_count": None, "sr_eligible": None, "score": None, "ir_rel": None}
    why = "no anchor has a <neighbour>"
    rows = [severity(x, **lost, undefined=why, not_relative=why) for x in (0.02, 0.08)]
    page = keep(
        tmp_path / "d",
        table(
            checkpoint("plain", *rows, is_reference=True, num_still=1, different=[]),
            checkpoint("noisy", *rows, clipped=True, different=[]), eligible=0, film=None,
        ),
    )  # fmt: skip
    text = words_of(page)
    assert "noisy: no anchor has a &lt;neighbour&gt;." in text and "undefined" in text
    assert "The screen is undefined here" in text and "stand still" in text
    assert "perturbed frames were clipped" in text and verify_study(tmp_path / "d").ok


def test_without_reference_or_searches_the_section_says_so(tmp_path):
    bare = {"planner": None, "success": None, "ir_rel": None, "score": None}
    bare["not_relative"] = "no reference was named"
    rows = [severity(x, **bare) for x in (0.02, 0.08)]
    page = keep(
        tmp_path / "d",
        table(checkpoint("only", *rows), reference=None, no_success="--protocol none", film=None),
    )
    assert "No reference was named" in page and "neither choices nor success" in page
    assert "only: no reference" not in page


def test_reasons_name_their_severities_unless_all_share_them():
    row = checkpoint("a", severity(0.0, not_relative="nothing moves"), severity(0.08))
    assert undefined_because({"reference": "p"}, row) == ["severity 0: nothing moves"]
    assert undefined_because({"reference": None}, row) == []
    both = checkpoint("a", severity(0.0, undefined="no pair"), severity(0.08, undefined="no pair"))
    assert undefined_because({"reference": "p"}, both) == ["no pair"]


def test_coinciding_points_are_rings_and_coinciding_lines_dashes():
    assert radii([(0, 0), (50, 0), (1, 1)], r=5) == [pytest.approx(7.4), 5, 5]
    chart = by_severity(two(), "sr", label="separation", x_label="noise")
    sizes = re.findall(r'r="([\d.]+)"', chart)
    assert sizes == ["5.9", "5.9", "3.5", "3.5"] and "c2 over-1" in chart
    apart = two(noisy=severity(0.08, sr=0.9))
    assert "over-" not in by_severity(apart, "sr", label="separation", x_label="noise")


def test_names_on_the_screen_do_not_cover_one_another():
    chart = screen(two(), 1, t_ir=0.3, t_sr=0.95)
    y = [float(v) for v in re.findall(r'class="name" x="[\d.]+" y="([\d.]+)"', chart)]
    assert len(y) == 2 and abs(y[0] - y[1]) >= 13


def test_no_checkpoint_beyond_the_palette_is_lost():
    assert colours(8)[5:] == ["c6", "neutral", "neutral"]
    many = [checkpoint(f"m{i}", severity(0.02), severity(0.08)) for i in range(8)]
    for chart in (
        by_severity(many, "ir_raw", label="radius", x_label="noise"),
        screen(many, 1, t_ir=0.3, t_sr=0.95),
    ):
        assert all(f"<title>m{i}" in chart for i in range(8))


def test_the_divergence_axis_holds_both_lines():
    chart = divergence([0.1, 0.2], [0.1, 5.0])
    assert "step 2: 0.200" in chart and ">4<" in chart
    assert divergence([0.0])  # an identity moves nothing


def test_a_statistic_that_was_not_measured_abstains(tmp_path):
    from dreamcheck.evidence import Record
    from dreamcheck.reports.consistency_statistics import consistency_choices, consistency_loss

    bare = severity(0.08, planner=None, success=None)
    record = Record.make("diagnosis", "k", {"result": table(checkpoint("a", bare))})
    at = {"position": 0, "severity": 0, "what": "winner", "outcome": OUTCOMES[2]}
    with pytest.raises(Abstention, match="no paired search"):
        consistency_choices([record], at)
    with pytest.raises(Abstention, match="not evaluated"):
        consistency_loss([record], at)
