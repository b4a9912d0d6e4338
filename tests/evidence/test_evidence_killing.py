"""Kill the process at any point and resume: the records equal those of the unbroken run (law 4)."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from evidence_toys import content, entries, run

from dreamcheck.evidence import Store, verify

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes (POSIX)")


def start(work: Callable[[], None]) -> int:
    """Run the work in a forked process that ends with status 0 only when the work is done."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as e:
            os.write(2, f"{type(e).__name__}: {e}\n".encode())
        os._exit(1)
    return child


def finished(child: int) -> bool:
    """Wait for the child: True when it ended by itself, False when it was killed."""
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0, "the resumed run failed"
    return True


@pytest.fixture
def unbroken(tmp_path: Path) -> dict:
    run(tmp_path / "unbroken")
    return content(tmp_path / "unbroken")


@pytest.mark.parametrize("batch", [1, 2, 5, 50])
def test_a_run_killed_at_random_moments_ends_with_the_same_records(tmp_path, unbroken, batch):
    began = time.perf_counter()
    assert finished(start(lambda: run(tmp_path / "timed", batch=batch)))
    whole = time.perf_counter() - began
    rng = np.random.default_rng(batch)
    kills = 0
    study = tmp_path / "s"
    for _ in range(60):
        child = start(lambda: run(study, batch=batch))
        time.sleep(float(rng.uniform(0.05, 0.7)) * whole)
        os.kill(child, signal.SIGKILL)
        if finished(child):
            if kills:
                break
            # The timed run was slower than this one: start over, and kill sooner.
            shutil.rmtree(study)
            whole /= 2
            continue
        kills += 1
        if kills >= 12:
            # Enough: let it end, so that slow machines do not keep it from ever finishing.
            assert finished(start(lambda: run(study, batch=batch)))
            break
    assert kills >= 1, "no kill landed inside the run"
    assert content(study) == unbroken
    assert verify(study).ok


class _Killing:
    """Wraps a function so that its n-th call kills the process, before or after it runs."""

    def __init__(self, function: Callable, at: int, *, after: bool = False) -> None:
        self.function, self.left, self.after = function, at, after

    def __call__(self, *args, **kwargs):
        self.left -= 1
        if self.left == 0 and not self.after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = self.function(*args, **kwargs)
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result


def run_killed_at_statement(study: Path, number: int, batch: int) -> int:
    """Run until SQLite begins its ``number``-th statement; returns how many there were."""
    begun = [0]

    def trace(statement: str) -> None:
        begun[0] += 1
        if begun[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)

    connect = sqlite3.connect

    def traced(*args, **kwargs):
        db = connect(*args, **kwargs)
        db.set_trace_callback(trace)
        return db

    sqlite3.connect = traced
    try:
        run(study, batch=batch)
    finally:
        sqlite3.connect = connect
    return begun[0]


def test_a_run_killed_at_any_statement_resumes_to_the_same_records(tmp_path, unbroken):
    total = run_killed_at_statement(tmp_path / "counted", 0, 20)
    # Making and opening a study, the first batch, writing, and folding the log at the end.
    points = [*range(1, 80, 7), *range(80, total - 8, 67), *range(total - 8, total, 2)]
    for number in points:
        study = tmp_path / f"s-{number}"
        assert not finished(start(lambda n=number, s=study: run_killed_at_statement(s, n, 20)))
        assert finished(start(lambda s=study: run(s, batch=20)))
        assert content(study) == unbroken, f"killed at statement {number}"
        left = [p.name for p in study.iterdir() if "-wal" in p.name or "creating" in p.name]
        assert left == []


@pytest.mark.parametrize("name", ["replace", "fsync"])
@pytest.mark.parametrize("after", [False, True])
def test_a_run_killed_around_file_operations_resumes_to_the_same_records(
    tmp_path, unbroken, monkeypatch, name, after
):
    for at in (1, 2, 5):
        study = tmp_path / f"s-{at}"

        def killed(at=at, study=study) -> None:
            setattr(os, name, _Killing(getattr(os, name), at, after=after))
            run(study, batch=5)

        assert not finished(start(killed))
        assert finished(start(lambda study=study: run(study, batch=5)))
        assert content(study) == unbroken
        assert verify(study).ok


def test_many_kills_in_a_row_still_end_with_the_same_records(tmp_path, unbroken):
    study = tmp_path / "s"
    for number in (4, 40, 80, 90, 120, 150, 200, 250):
        finished(start(lambda n=number: run_killed_at_statement(study, n, 1)))
    run(study, batch=1)
    assert content(study) == unbroken


def test_what_was_committed_before_the_kill_is_there_after_it(tmp_path):
    study = tmp_path / "s"
    said, saying = os.pipe()

    def work() -> None:
        from evidence_toys import PROFILE, PROTOCOL, SEEDS

        with Store.ensure(study, protocol=PROTOCOL, seeds=SEEDS, profile=PROFILE) as store:
            for i, entry in enumerate(entries(store)):
                store.commit([entry])
                os.write(saying, b".")
                if i == 17:
                    os.kill(os.getpid(), signal.SIGKILL)

    assert not finished(start(work))
    with Store.read(study) as store:
        assert store.count() == len(os.read(said, 1000)) == 18


def test_a_separate_program_killed_and_resumed_ends_with_the_same_records(tmp_path, unbroken):
    program = (
        "import sys; from pathlib import Path; import evidence_toys\n"
        "print('ready', flush=True)\n"
        "evidence_toys.run(Path(sys.argv[1]), batch=2)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "s")]
    here = Path(__file__).parent
    rng = np.random.default_rng(0)
    for _ in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=here) as process:
            assert process.stdout.readline() == "ready\n"
            time.sleep(float(rng.uniform(0.0, 0.08)))
            process.kill()
    subprocess.run(command, check=True, cwd=here, stdout=subprocess.DEVNULL)
    assert content(tmp_path / "s") == unbroken
