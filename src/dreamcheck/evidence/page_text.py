"""The text of a report page: its numbers by element, the rest block by block.

report.json keeps, for the page as it was written, the place of every number and one digest per
block, so that a digit altered anywhere afterwards is found and its block named.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

from dreamcheck.digest import sha256_bytes

_BLOCKS = frozenset(
    (
        "html", "head", "title", "body", "script", "style", "header", "footer", "main", "nav",
        "section", "article", "aside", "div", "p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol",
        "li", "dl", "dt", "dd", "table", "caption", "thead", "tbody", "tfoot", "tr", "figure",
        "figcaption", "details", "summary", "pre", "blockquote", "svg", "form", "fieldset",
    )
)  # fmt: skip
_LONGEST = 4096  # characters; a longer block (a script's data) is cut, so that its part is named
_SNIPPET = 60


@dataclass(frozen=True, slots=True)
class PageProblem:
    """Where the page disagrees with report.json: number: its id, or None for other text."""

    number: str | None
    message: str


@dataclass(frozen=True, slots=True)
class Element:
    """One ``<data class="num" id="n:...">`` of a page; copy tells its appearances apart."""

    id: str
    copy: str
    value: str
    text: str
    offset: int


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of the page's source: where it begins, its digest, what a reader sees of it."""

    offset: int
    digest: str
    snippet: str


def value_text(value: Any) -> str:
    """A value as the attribute of its element spells it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def describe(page: str) -> dict[str, Any]:
    """What report.json notes of a page: its digest, the numbers on it, its blocks."""
    elements, blocks = read(page)
    return {
        "sha256": sha256_bytes(page.encode("utf-8")),
        "numbers": [f"{e.id}{e.copy}" for e in elements],
        "blocks": [[b.digest, b.snippet] for b in blocks],
    }


def check(page: str, manifest: Mapping[str, Any]) -> list[PageProblem]:
    """Every disagreement between a page and its report.json; empty when there is none.

    A number with another text or value is named by its id; any other altered block by its text
    and the nearest number before it.
    """
    noted = manifest.get("page")
    if noted is None:
        return [PageProblem(None, "report.json was written without the page's text.")]
    elements, blocks = read(page)
    problems = []
    entries = {n["id"]: n for n in manifest["numbers"]}
    touched: set[int] = set()
    starts = [b.offset for b in blocks]
    for e in elements:
        entry = entries.get(e.id)
        if entry is None:
            problems.append(
                PageProblem(e.id, f"number {e.id} shows {e.text!r}; report.json has no such number")
            )
        elif e.text != entry["text"]:
            problems.append(
                PageProblem(
                    e.id, f"number {e.id} shows {e.text!r}; the records give {entry['text']!r}"
                )
            )
        elif e.value != value_text(entry["value"]):
            problems.append(
                PageProblem(
                    e.id,
                    f"number {e.id} carries value {e.value!r}; the records give "
                    f"{value_text(entry['value'])!r}",
                )
            )
        else:
            continue
        touched.add(bisect_right(starts, e.offset) - 1)
    for place in noted["numbers"]:
        if not any(f"{e.id}{e.copy}" == place for e in elements):
            problems.append(PageProblem(place, f"number {place} is no longer on the page"))
    if noted["sha256"] != sha256_bytes(page.encode("utf-8")):
        # A block that an altered number already explains need not be told twice; if it holds a
        # second alteration, that one is named once the number is right again.
        problems += [
            PageProblem(None, _told(page, index, message, blocks, elements))
            for index, message in _altered(blocks, noted["blocks"])
            if index not in touched
        ]
        if not problems:
            problems.append(PageProblem(None, "the page's bytes differ from those written"))
    return problems


def read(page: str) -> tuple[list[Element], list[Block]]:
    """The number elements of a page and its blocks, in order."""
    reader = _Reader(page)
    reader.feed(page)
    reader.close()
    return reader.elements, list(reader.blocks())


def _altered(blocks: list[Block], noted: list[list[str]]) -> Iterator[tuple[int, str]]:
    """(block index, what was written there) for every block that is not what was written."""
    now = [b.digest for b in blocks]
    then = [d for d, _ in noted]
    start = 0
    while start < min(len(now), len(then)) and now[start] == then[start]:
        start += 1
    end = 0
    while end < min(len(now), len(then)) - start and now[-1 - end] == then[-1 - end]:
        end += 1
    if len(now) == len(then):
        for i in range(start, len(now) - end):
            if now[i] != then[i]:
                yield i, f"was written as {noted[i][1]!r}"
        return
    lost = [s for _, s in noted[start : len(then) - end]]
    yield start, f"{len(now) - end - start} block(s) stand in the place of {len(lost)}: {lost[:2]}"


def _told(page: str, index: int, message: str, blocks: list[Block], elements: list[Element]) -> str:
    if index >= len(blocks):
        return f"the end of the page is missing; {message}"
    block = blocks[index]
    line = page.count("\n", 0, block.offset) + 1
    before = [e.id for e in elements if e.offset <= block.offset]
    near = f", after number {before[-1]}" if before else ""
    return f"line {line}{near}: the page now says {block.snippet!r}; it {message}"


class _Reader(HTMLParser):
    """Finds number elements, block boundaries and the text between tags."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self._page = page
        self._lines = [0, *(m.end() for m in re.finditer("\n", page))]
        self._cuts = [0]
        self._texts: list[tuple[int, str]] = []
        self._open: tuple[str, str, int] | None = None
        self._parts: list[str] = []
        self.elements: list[Element] = []

    def _offset(self) -> int:
        line, column = self.getpos()
        return self._lines[line - 1] + column

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _BLOCKS:
            self._cuts.append(self._offset())
        elif tag == "data":
            found = dict(attrs)
            place = found.get("id") or ""
            if "num" in (found.get("class") or "").split() and place.startswith("n:"):
                self._open = (place[2:], found.get("value") or "", self._offset())
                self._parts = []

    def handle_endtag(self, tag: str) -> None:
        if tag in _BLOCKS:
            self._cuts.append(self._offset())
        elif tag == "data" and self._open is not None:
            place, value, offset = self._open
            id, mark, copy = place.partition("~")
            text = "".join(self._parts)
            self.elements.append(Element(id, mark + copy, value, text, offset))
            self._open = None

    def handle_data(self, data: str) -> None:
        self._texts.append((self._offset(), data))
        if self._open is not None:
            self._parts.append(data)

    def blocks(self) -> Iterator[Block]:
        """Stretches of the source between block tags, long ones cut."""
        edges = sorted(set(self._cuts)) + [len(self._page)]
        starts = [offset for offset, _ in self._texts]
        for begin, end in zip(edges, edges[1:], strict=False):
            for at in range(begin, end, _LONGEST):
                stop = min(at + _LONGEST, end)
                source = self._page[at:stop]
                if end - begin > _LONGEST:
                    text = source
                else:
                    first = bisect_right(starts, at - 1)
                    last = bisect_right(starts, stop - 1)
                    text = "".join(t for _, t in self._texts[first:last])
                snippet = " ".join(text.split())[:_SNIPPET] or " ".join(source.split())[:_SNIPPET]
                yield Block(at, sha256_bytes(source.encode("utf-8"))[:16], snippet)
