"""Progress with rate and time left: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO


class Stage(Protocol):
    """One stage of work, counted."""

    def advance(self, count: int = 1, *, note: str = "") -> None:
        """Count finished work; ``note`` replaces the text behind the numbers."""
        ...


class Progress:
    """Where stages are shown. ``Progress(quiet=True)`` shows nothing.

    Args:
        out: stream for the lines; standard error unless given, so that --json stays clean.
        every: seconds between plain lines.
    """

    def __init__(
        self, *, quiet: bool = False, out: TextIO | None = None, every: float = 5.0
    ) -> None:
        self.quiet = quiet
        self.out = out if out is not None else sys.stderr
        self.every = every

    @contextmanager
    def stage(self, name: str, total: int, *, unit: str = "inputs") -> Iterator[Stage]:
        """Show one stage while the block runs."""
        if self.quiet:
            yield _Silent()
            return
        if self.out.isatty():
            yield from self._bar(name, total, unit)
            return
        lines = _Lines(self.out, name, total, unit, self.every)
        yield lines
        lines.close()

    def say(self, text: str) -> None:
        """One line outside any stage."""
        if not self.quiet:
            print(text, file=self.out, flush=True)

    def _bar(self, name: str, total: int, unit: str) -> Iterator[Stage]:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        console = Console(file=self.out)
        with Bars(
            TextColumn("{task.description:<28}"),
            BarColumn(bar_width=32),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}"),
            console=console,
        ) as bars:
            yield _Bar(bars, bars.add_task(name, total=total, rate="", note=""), unit)


class _Silent:
    def advance(self, count: int = 1, *, note: str = "") -> None:
        return None


class _Bar:
    def __init__(self, bars: Any, task: Any, unit: str) -> None:
        self._bars, self._task, self._unit = bars, task, unit
        self._done, self._start = 0, time.monotonic()

    def advance(self, count: int = 1, *, note: str = "") -> None:
        self._done += count
        rate = self._done / max(time.monotonic() - self._start, 1e-9)
        self._bars.update(self._task, advance=count, note=note, rate=f"{rate:,.1f} {self._unit}/s")


class _Lines:
    def __init__(self, out: TextIO, name: str, total: int, unit: str, every: float) -> None:
        self._out, self._name, self._total, self._unit = out, name, total, unit
        self._every, self._done = every, 0
        self._start = self._last = time.monotonic()
        self._note = ""

    def advance(self, count: int = 1, *, note: str = "") -> None:
        self._done += count
        self._note = note or self._note
        now = time.monotonic()
        if now - self._last >= self._every and self._done < self._total:
            self._last = now
            self._print(now)

    def _print(self, now: float) -> None:
        elapsed = max(now - self._start, 1e-9)
        rate = self._done / elapsed
        left = (self._total - self._done) / rate if rate > 0 else float("inf")
        tail = f", {left:.0f} s left" if self._done < self._total else f" in {elapsed:.0f} s"
        note = f"  {self._note}" if self._note else ""
        print(
            f"{self._name}: {self._done}/{self._total} {self._unit}, {rate:,.1f}/s{tail}{note}",
            file=self._out,
            flush=True,
        )

    def close(self) -> None:
        self._print(time.monotonic())
