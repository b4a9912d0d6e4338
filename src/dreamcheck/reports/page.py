"""The report: one self-contained HTML page and its report.json, from a study's records alone."""

from __future__ import annotations

from collections import Counter
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import dreamcheck.reports.statistics  # noqa: F401  (registers the statistics)
from dreamcheck import __version__
from dreamcheck.errors import UsageError
from dreamcheck.evidence import Numbers, Shown, Store, values_text
from dreamcheck.evidence.artifacts import write_whole
from dreamcheck.reports.diagnoses import diagnosis_sections
from dreamcheck.reports.reading import Reader
from dreamcheck.reports.sections import search_section
from dreamcheck.reports.wording import limits, opening

PAGE = "report.html"
MANIFEST = "report.json"


def write_report(directory: str | Path) -> Path:
    """Write report.html and report.json of a study; returns the page's path.

    Raises:
        UsageError: no study there, or one that has measured nothing yet.
    """
    directory = Path(directory)
    with Store.read(directory) as store:
        numbers = Numbers(store)
        page = render(store, numbers)
        write_whole(directory / PAGE, page.encode("utf-8"))
        numbers.write(directory / MANIFEST, page=page)
    return directory / PAGE


def render(store: Store, numbers: Numbers) -> str:
    """The page's text. Deterministic: the same records give the same bytes."""
    mark = Marker()
    diagnoses = diagnosis_sections(store, numbers, mark)
    subjects = [r.payload for r in store.records("subject")]
    if not subjects and not diagnoses:
        raise UsageError(
            f"{store.directory} has measured nothing yet; run `dreamcheck discover` on it first."
        )
    environment = Environment(
        loader=PackageLoader("dreamcheck.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["num"] = mark
    environment.filters["safe_svg"] = Markup
    environment.filters["values"] = values_text
    assets = resources.files("dreamcheck.reports") / "templates"
    study = _study(Reader(store=store, numbers=numbers, subject=subjects[0])) if subjects else {}
    return environment.get_template("report.html.j2").render(
        version=__version__,
        protocol=store.protocol,
        seeds=store.seeds,
        diagnoses=diagnoses,
        searched=bool(subjects),
        protocol_digest=store.protocol_digest,
        study_toml=(store.directory / "study.toml").read_text(encoding="utf-8"),
        style=Markup((assets / "style.css").read_text(encoding="utf-8")),
        script=Markup((assets / "page.js").read_text(encoding="utf-8")),
        **{"sections": [], **study},
    )


def _study(reader: Reader) -> dict[str, Any]:
    """What the page shows of a study's searches."""
    store, numbers = reader.store, reader.numbers
    sections = [
        search_section(reader, s)
        for s in store.protocol["searches"]
        if store.count("trace", spec=s["specification"])
    ]
    return {
        "subject": reader.subject,
        "unit": reader.unit,
        "sections": sections,
        "opening": opening(reader, sections),
        "limits": limits(reader, sections),
        "measurements": reader.count("measurements", "measurement"),
        "failures": numbers.number(
            "measurements.failed", "failed-measurements", query={"kind": "measurement"}
        ),
        # Siblings are measured in the same store, each through an interface of its own.
        "jumps": numbers.number(
            "measurements.jumps",
            "share-above",
            query={"kind": "measurement", "where": {"interface": reader.subject["interface"]}},
            params={"path": "discontinuity", "threshold": 0.0},
            format="{:.1%}",
        ),
    }


class Marker:
    """The template filter ``num``: a displayed number as its marked element.

    Counts the appearances of each number, so that every element on the page has its own id.
    """

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def __call__(self, shown: Shown | Any) -> Markup:
        copy = self._seen[shown.id]
        self._seen[shown.id] += 1
        return Markup(shown.element(copy=copy))
