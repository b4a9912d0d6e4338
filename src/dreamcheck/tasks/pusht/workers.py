"""Simulators spread over worker processes; a process that dies is named and replaced."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from dreamcheck.errors import IncompleteError
from dreamcheck.tasks.pusht.simulator import FRAME_SIDE, Origin, Reading, Simulators

Build = tuple[int, Origin, np.ndarray]
Step = tuple[int, np.ndarray]


class SimulatorDied(IncompleteError):
    """A worker process ended inside the simulator, twice for the same rows."""


class Here:
    """All simulators in this process."""

    def __init__(self) -> None:
        self._simulators = Simulators()

    def build(self, jobs: Sequence[Build]) -> list[Reading]:
        """Simulators reset and replayed."""
        return [self._simulators.build(*job) for job in jobs]

    def step(self, jobs: Sequence[Step]) -> list[Reading | None]:
        """One step each; None would mean that the simulator is gone, which cannot happen here."""
        return [self._simulators.step(*job) for job in jobs]

    def drop(self, numbers: Sequence[int]) -> None:
        """Simulators nobody will step again."""
        self._simulators.drop(list(numbers))

    def draw(self, poses: np.ndarray) -> np.ndarray:
        """uint8 [N, 224, 224, 3]."""
        return self._simulators.draw(poses)

    def close(self) -> None:
        """Nothing to end."""


class Workers:
    """Simulator n lives in process n mod ``count``; replies come in the order of the jobs.

    A process that dies is started again. The simulators it held are gone; ``step`` answers None
    for them and the task replays them from seed and prefix. A second death on the same jobs is
    an error that names the process, its exit code and the jobs' seeds.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        # Not forked: torch's threads and the parent's locks would come along.
        self._context = multiprocessing.get_context("spawn")
        self._processes: list[Any] = [None] * count
        self._pipes: list[Connection | None] = [None] * count
        self.deaths = 0

    def build(self, jobs: Sequence[Build]) -> list[Reading]:
        """Simulators reset and replayed.

        Raises:
            SimulatorDied: a process ended twice on its jobs.
        """
        out: list[Reading | None] = [None] * len(jobs)
        for worker, places in self._shares(jobs).items():
            self._send(worker, ("build", [jobs[i] for i in places]))
        for worker, places in self._shares(jobs).items():
            mine = [jobs[i] for i in places]
            readings = self._receive(worker)
            if readings is None:
                self._send(worker, ("build", mine))
                readings = self._receive(worker)
            if readings is None:
                seeds = sorted({job[1].seed for job in mine})
                raise SimulatorDied(
                    f"PushT worker {worker} died twice (exit code {self._last_code}) while it "
                    f"replayed {len(mine)} episode(s) of seeds {_some(seeds)}, up to "
                    f"{max(len(job[2]) for job in mine)} steps in. What was measured before is "
                    "kept; run the same command again to go on, or leave these seeds out"
                )
            for i, reading in zip(places, readings, strict=True):
                out[i] = reading
        return [r for r in out if r is not None]

    def step(self, jobs: Sequence[Step]) -> list[Reading | None]:
        """One step each; None where the process that held the simulator has died."""
        out: list[Reading | None] = [None] * len(jobs)
        shares = self._shares(jobs)
        for worker, places in shares.items():
            self._send(worker, ("step", [jobs[i] for i in places]))
        for worker, places in shares.items():
            readings = self._receive(worker)
            for i, reading in zip(places, readings or [None] * len(places), strict=True):
                out[i] = reading
        return out

    def drop(self, numbers: Sequence[int]) -> None:
        """Simulators nobody will step again."""
        for worker, places in self._shares([(n,) for n in numbers]).items():
            self._send(worker, ("drop", [numbers[i] for i in places]))
            self._receive(worker)

    def draw(self, poses: np.ndarray) -> np.ndarray:
        """uint8 [N, 224, 224, 3].

        Raises:
            SimulatorDied: a process ended twice while drawing.
        """
        parts = np.array_split(np.asarray(poses), self._count)
        for worker, part in enumerate(parts):
            self._send(worker, ("draw", part))
        frames = []
        for worker, part in enumerate(parts):
            drawn = self._receive(worker)
            if drawn is None:
                self._send(worker, ("draw", part))
                drawn = self._receive(worker)
            if drawn is None:
                raise SimulatorDied(
                    f"PushT worker {worker} died twice (exit code {self._last_code}) while drawing "
                    f"{len(part)} frames. What was measured before is kept; run the command again"
                )
            frames.append(drawn)
        return np.concatenate(frames) if frames else np.empty((0, FRAME_SIDE, FRAME_SIDE, 3))

    def close(self) -> None:
        """End the processes."""
        for worker, pipe in enumerate(self._pipes):
            if pipe is not None:
                pipe.close()
            process = self._processes[worker]
            if process is not None:
                process.join(timeout=2)
                if process.is_alive():
                    process.terminate()
            self._pipes[worker] = self._processes[worker] = None

    def _shares(self, jobs: Sequence[tuple[Any, ...]]) -> dict[int, list[int]]:
        shares: dict[int, list[int]] = {}
        for i, job in enumerate(jobs):
            shares.setdefault(job[0] % self._count, []).append(i)
        return shares

    def _send(self, worker: int, message: tuple[str, Any]) -> None:
        pipe = self._pipes[worker]
        if pipe is None:
            pipe, theirs = self._context.Pipe()
            process = self._context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._processes[worker], self._pipes[worker] = process, pipe
        try:
            pipe.send(message)
        except (BrokenPipeError, ConnectionError, OSError):
            return  # told by the missing answer

    def _receive(self, worker: int) -> Any:
        """The answer, or None when the process died; then it is set aside."""
        pipe = self._pipes[worker]
        assert pipe is not None
        try:
            kind, answer = pipe.recv()
        except (EOFError, ConnectionError, OSError):
            process = self._processes[worker]
            process.join(timeout=2)
            self._last_code = process.exitcode
            pipe.close()
            self._pipes[worker] = self._processes[worker] = None
            self.deaths += 1
            return None
        if kind == "error":
            raise answer
        return answer


def _some(values: Sequence[int]) -> str:
    shown = ", ".join(str(v) for v in values[:8])
    return shown if len(values) <= 8 else f"{shown} and {len(values) - 8} more"


def _serve(pipe: Connection) -> None:
    """A worker's whole life: answer until the pipe closes."""
    try:
        simulators = Simulators()
    except Exception as error:  # told to whoever asks first
        with_error = ("error", error)
        pipe.recv()
        pipe.send(with_error)
        return
    answers: dict[str, Callable[[Any], Any]] = {
        "build": lambda jobs: [simulators.build(*job) for job in jobs],
        # A replacement process knows none of the numbers its predecessor held.
        "step": lambda jobs: [
            simulators.step(*j) if simulators.holds(j[0]) else None for j in jobs
        ],
        "drop": simulators.drop,
        "draw": simulators.draw,
    }
    while True:
        try:
            kind, argument = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            reply = ("answer", answers[kind](argument))
        except Exception as error:
            reply = ("error", error)
        pipe.send(reply)


def default_workers() -> int:
    """Processes to step with: DREAMCHECK_WORKERS, or one per core up to 8; 0 means none."""
    asked = os.environ.get("DREAMCHECK_WORKERS", "")
    if asked.isdigit():
        return int(asked)
    return min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)
