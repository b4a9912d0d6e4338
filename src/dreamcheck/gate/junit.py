"""A gate's cases as JUnit XML, which every CI system shows."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

from dreamcheck.gate.judge import GateResult


def junit_xml(result: GateResult) -> str:
    """One test case per entry: worse and new are failures, not comparable is skipped."""
    counts = result.counts
    suite = ET.Element(
        "testsuite",
        name=f"dreamcheck gate: {result.title}",
        tests=str(len(result.cases)),
        failures=str(counts["worse"] + counts["new"]),
        skipped=str(counts["not comparable"]),
        errors="0",
    )
    for c in result.cases:
        where = (
            "default reset"
            if c.values is None
            else ", ".join(f"{k}={v}" for k, v in c.values.items())
        )
        case = ET.SubElement(
            suite, "testcase", classname=f"{result.title}.{c.role}", name=f"{c.id} ({where})"
        )
        if c.word in ("worse", "new"):
            ET.SubElement(case, "failure", message=f"{c.word}: {c.reason}").text = c.reason
        elif c.word == "not comparable":
            ET.SubElement(case, "skipped", message=c.reason)
        else:
            ET.SubElement(case, "system-out").text = f"{c.word}: {c.reason}"
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def write_junit(result: GateResult, path: str | Path) -> Path:
    """The XML, written to a file."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(junit_xml(result), encoding="utf-8")
    return path
