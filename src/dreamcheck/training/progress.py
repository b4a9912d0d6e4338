"""One line that says how far, how fast and how long still; plain lines where nobody watches."""

from __future__ import annotations

import sys
import time
from typing import Protocol, TextIO


class Progress(Protocol):
    """Where long work reports to."""

    def start(self, label: str, total: int, done: int = 0) -> None:
        """A new stage of ``total`` steps, ``done`` of which are behind us."""
        ...

    def advance(self, done: int, note: str = "") -> None:
        """``done`` steps are finished; the note holds the current numbers."""
        ...

    def finish(self) -> None:
        """The stage is over."""
        ...


def duration(seconds: float) -> str:
    """75 -> "1:15", 3700 -> "1:01:40"."""
    minutes, s = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{s:02d}" if hours else f"{minutes}:{s:02d}"


class LineProgress:
    """Rewrites one line on a terminal; elsewhere prints a line every ``every_s`` seconds."""

    def __init__(self, out: TextIO | None = None, *, every_s: float = 15.0) -> None:
        self._out = sys.stderr if out is None else out
        self._live = self._out.isatty()
        self._every = 0.25 if self._live else every_s
        self._width = 0

    def start(self, label: str, total: int, done: int = 0) -> None:
        """A new stage."""
        self._label, self._total = label, total
        self._first, self._done = done, done
        self._began = self._shown = time.monotonic()
        self._note = ""
        self._show()

    def advance(self, done: int, note: str = "") -> None:
        """Shown at most every few seconds."""
        self._done, self._note = done, note
        if time.monotonic() - self._shown >= self._every:
            self._show()

    def finish(self) -> None:
        """The last state of the stage, on a line of its own."""
        self._show()
        if self._live:
            self._out.write("\n")
            self._out.flush()

    def _show(self) -> None:
        now = time.monotonic()
        fresh, spent = self._done - self._first, now - self._began
        self._shown = now
        parts = [f"{self._label}: {self._done}/{self._total}"]
        if fresh > 0 and spent > 0:
            rate = fresh / spent
            parts.append(f"{rate:.2f}/s" if rate < 100 else f"{rate:.0f}/s")
            parts.append(
                f"{duration((self._total - self._done) / rate)} left"
                if self._done < self._total
                else f"took {duration(spent)}"
            )
        if self._note:
            parts.append(self._note)
        line = "  ".join(parts)
        if self._live:
            self._out.write("\r" + line.ljust(self._width))
            self._width = len(line)
        else:
            self._out.write(line + "\n")
        self._out.flush()


class Silent:
    """No progress shown."""

    def start(self, label: str, total: int, done: int = 0) -> None:
        """Nothing."""

    def advance(self, done: int, note: str = "") -> None:
        """Nothing."""

    def finish(self) -> None:
        """Nothing."""
