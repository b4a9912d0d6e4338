"""Is a study what it was when it was written? Every alteration is named."""

from __future__ import annotations

import importlib
import json
import math
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dreamcheck.digest import digest
from dreamcheck.errors import DreamcheckError, EvidenceError, ExitCode, UsageError
from dreamcheck.evidence import integrity, numbers, page_text
from dreamcheck.evidence.keys import Interface, measurement_key
from dreamcheck.evidence.protocol import protocol_problem
from dreamcheck.evidence.record import Record, altered_fields, chain_of, digest_of, seal
from dreamcheck.evidence.records import TYPES, entry_of
from dreamcheck.evidence.store import Store


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is not as it was written.

    what: "record", "chain", "key", "artifact", "protocol", "integrity", "report", "number" or
    "page". where: the record ("kind key"), artifact reference, number id, or file.
    """

    what: str
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.what} {self.where}: {self.message}"


@dataclass(frozen=True)
class VerifyReport:
    """What was checked (name -> count) and what is wrong; ``ok`` when nothing is."""

    problems: tuple[Problem, ...]
    checked: Mapping[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Nothing is wrong."""
        return not self.problems

    @property
    def exit_code(self) -> ExitCode:
        """DONE, or INTEGRITY."""
        return ExitCode.DONE if self.ok else ExitCode.INTEGRITY

    def raise_if_any(self) -> None:
        """EvidenceError (exit code 5) that names every problem, if there is one."""
        if self.problems:
            lines = "\n".join(f"- {p}" for p in self.problems)
            raise EvidenceError(f"{len(self.problems)} problem(s) in the evidence:\n{lines}")

    def __iter__(self) -> Iterator[Problem]:
        return iter(self.problems)

    def __len__(self) -> int:
        return len(self.problems)


def verify(
    directory: str | Path, *, regenerate: integrity.Regenerate | None = None
) -> VerifyReport:
    """Check a study: records and their chain, keys, artifacts, integrity, report.json, the page.

    Args:
        directory: of the study; only read.
        regenerate: anchor id -> ids of its radius-1 ball; without it stored neighbourhoods are
            checked against their losses only.

    Raises:
        UsageError: no study there, or one of a newer schema.
    """
    directory = Path(directory)
    try:
        store = Store.read(directory, strict=False)
    except EvidenceError as e:
        return VerifyReport((Problem("record", "evidence.sqlite", str(e)),))
    problems: list[Problem] = []
    checked: dict[str, int] = {}
    with store:
        told = protocol_problem(directory, store._protocol)
        if told:
            problems.append(Problem("protocol", "study.toml", told))
        try:
            problems += _seed_table(store)
            problems += _records(store, checked)
            problems += _artifacts(store, checked)
            for f in integrity.check_all(store, regenerate=regenerate):
                problems.append(
                    Problem("integrity", f"{f.kind} {f.key}", f"{f.check}: {f.message}")
                )
            problems += _report(store, checked)
        except sqlite3.DatabaseError as e:
            problems.append(Problem("record", "evidence.sqlite", f"the database is damaged: {e}"))
    return VerifyReport(tuple(problems), checked)


def _seed_table(store: Store) -> Iterator[Problem]:
    declared = {seed: name for name, seeds in store.seeds.items() for seed in seeds}
    for seed in sorted({*declared, *store._owner}):
        if declared.get(seed) != store._owner.get(seed):
            yield Problem(
                "protocol", f"seed {seed}",
                f"declared for {declared.get(seed)!r}, table seeds says {store._owner.get(seed)!r}",
            )  # fmt: skip


def _records(store: Store, checked: dict[str, int]) -> Iterator[Problem]:
    seq, chain = 0, store._protocol.sha256
    interfaces: dict[str, Interface] = {}
    for record in store.records():
        where = f"{record.kind} {record.key}"
        if record.seq != seq + 1:
            yield Problem(
                "chain", where, f"follows record {seq} as number {record.seq}: one was removed"
            )
        wrong = list(_record(record, interfaces))
        yield from (Problem(what, where, message) for what, message in wrong)
        # The chain is followed from the stored values, so that one bad record costs one record.
        if chain_of(chain, record.digest) != record.chain:
            yield Problem("chain", where, "its chained digest does not follow from those before it")
        seq, chain = record.seq or 0, record.chain or ""
        checked["records"] = checked.get("records", 0) + 1
    noted = json.loads(store._fact("head") or "null")
    if noted != [seq, chain]:
        last = noted[0] if noted else "?"
        yield Problem("chain", "the end", f"the study ended with record {last}, now with {seq}")


def _record(record: Record, interfaces: dict[str, Interface]) -> Iterator[tuple[str, str]]:
    try:
        payload = record.payload
    except ValueError as e:
        yield "record", f"its payload is not JSON any more ({e})"
        return
    text, now, fields = seal(record.kind, record.key, payload)
    sealed = digest_of(record.kind, record.key, record.text) == record.digest == now
    if not sealed:
        names = altered_fields(payload, record.fields)
        if names:
            yield "record", _names_values(names, record)
        else:
            yield "record", "its kind, key, digest, or set of fields was altered"
    elif fields != record.fields:
        yield "record", "its field digests were altered"
    if record.kind == "interface":
        try:
            interfaces[record.key] = Interface.from_payload(payload)
        except TypeError as e:
            yield "record", f"not an interface: {e}"
            return
        if interfaces[record.key].digest != record.key:
            yield "key", "the key does not follow from the interface's fields"
    elif record.kind in TYPES:
        try:
            entry = entry_of(record)
        except EvidenceError as e:
            yield "record", str(e)
            return
        if record.kind == "measurement":
            interface = interfaces.get(payload["interface"])
            if interface is None:
                yield "key", f"its interface {payload['interface']} is not stored before it"
            elif measurement_key(interface, payload["values"], payload["seed"]) != record.key:
                yield "key", "the key does not follow from interface, values and seed"
        elif entry.key != record.key:
            yield "key", "the key does not follow from the record's fields"


def _names_values(names: list[str], record: Record) -> str:
    shown = ", ".join(f"{n} (now {record.payload[n]!r:.60})" for n in names)
    return f"altered field: {shown}" if len(names) == 1 else f"altered fields: {shown}"


def _artifacts(store: Store, checked: dict[str, int]) -> Iterator[Problem]:
    listed = store.artifact_refs()
    held: dict[str, str] = {}
    for record in store.records():
        try:
            refs = record.payload.get("artifacts")
        except ValueError:
            continue
        if isinstance(refs, dict):
            held.update({ref: f"{record.kind} {record.key}" for ref in refs.values()})
    for ref in sorted({*listed, *held}):
        checked["artifacts"] = checked.get("artifacts", 0) + 1
        user = f" (held by {held[ref]})" if ref in held else ""
        try:
            size = len(store.artifacts.get(ref))
        except (EvidenceError, UsageError) as e:
            yield Problem("artifact", ref, f"{e}{user}")
            continue
        if listed.get(ref) != size:
            yield Problem("artifact", ref, f"table artifacts lists {listed.get(ref)} bytes{user}")


def _report(store: Store, checked: dict[str, int]) -> Iterator[Problem]:
    path, page = store.directory / "report.json", store.directory / "report.html"
    if not path.exists():
        if page.exists():
            yield Problem("report", "report.json", "is missing although there is a report.html")
        return
    try:
        manifest = json.loads(path.read_text("utf-8"))
        entries = manifest["numbers"]
        body = {k: v for k, v in manifest.items() if k != "digest"}
        intact = manifest.get("digest") == digest(body)
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        yield Problem("report", "report.json", f"cannot be read ({e!r}); make the report again")
        return
    if manifest.get("format") != numbers.FORMAT:
        yield Problem("report", "report.json", f"unknown format {manifest.get('format')!r}")
        return
    told = False
    for problem in _study_entry(store, manifest):
        told = True
        yield problem
    cache: dict[str, list[Record]] = {}
    for entry in entries:
        checked["numbers"] = checked.get("numbers", 0) + 1
        for message in _number(store, entry, cache):
            told = True
            yield Problem("number", str(entry.get("id")), message)
    if manifest.get("page") is not None:
        checked["page"] = 1
        if not page.exists():
            yield Problem("page", "report.html", "is missing")
        else:
            text = page.read_bytes().decode("utf-8", errors="replace")
            for p in page_text.check(text, manifest):
                told = True
                yield Problem("page", f"number {p.number}" if p.number else "text", p.message)
    if not intact and not told:
        yield Problem("report", "report.json", "was altered after it was written")


def _study_entry(store: Store, manifest: Mapping[str, Any]) -> Iterator[Problem]:
    study = manifest.get("study") or {}
    if study.get("protocol_digest") != store.protocol_digest:
        yield Problem("report", "report.json", "was made from a study with another protocol")
    row = store._db.execute(
        "SELECT chain FROM records WHERE seq = ?", (study.get("records"),)
    ).fetchone()
    then = row[0] if row else (store._protocol.sha256 if study.get("records") == 0 else None)
    if then != study.get("chain"):
        yield Problem(
            "report", "report.json",
            f"was made when the first {study.get('records')} records were others than now",
        )  # fmt: skip


def _number(
    store: Store, entry: Mapping[str, Any], cache: dict[str, list[Record]]
) -> Iterator[str]:
    body = {k: v for k, v in entry.items() if k != "entry_digest"}
    if entry.get("entry_digest") != digest(body)[:16]:
        yield "its entry in report.json was altered"
    module = str(entry.get("module", ""))
    if module.startswith("dreamcheck."):
        try:
            importlib.import_module(module)
        except ImportError as e:
            yield f"its statistic's module {module} cannot be imported ({e})"
            return
    definition = {k: entry.get(k) for k in ("id", "statistic", "params", "query", "format")}
    try:
        again, _ = numbers.compute(store, definition, cache=cache)
    except (DreamcheckError, ValueError, TypeError, LookupError, AttributeError) as e:
        yield f"cannot be recomputed: {e}"
        return
    if not _same_value(again["value"], entry.get("value")):
        yield f"value {entry.get('value')!r} is noted, the records give {again['value']!r}"
    if again["text"] != entry.get("text"):
        yield f"text {entry.get('text')!r} is noted, the records give {again['text']!r}"
    if again["records_digest"] != entry.get("records_digest"):
        yield "the records behind it are not those it was computed from"


def _same_value(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, (int, float)):
        return math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-300)
    return type(a) is type(b) and a == b
