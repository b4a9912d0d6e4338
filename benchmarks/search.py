"""Search benchmark: speed against scikit-learn, Optuna and BoTorch, scale in the library, replay.

    python benchmarks/search.py            # everything; minutes
    python benchmarks/search.py --quick    # small sizes; under a minute on an idle machine

Every ratio is measured in one run, both sides driven the same way on one thread; times are CPU
times, so that a busy machine does not change them much. "same" says whether both sides asked the
same inputs.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from peer_search import PEERS, NotInstalled
from reference_search import ReferenceSearch

from dreamcheck.discovery import (
    METHODS,
    Library,
    Score,
    SearchParameters,
    get_specification,
    make_method,
    specification_from,
)
from dreamcheck.discovery.replay import ScoreTable, replay

REPLAYED = ("random", "gp-ucb", "cem", "frontier", "basinlens", "interaction", "beam")


def landscape(library: Library) -> np.ndarray:
    """A smooth deterministic score with one interaction and a rough part."""
    x = library.psi
    weights = np.arange(1, x.shape[1] + 1)
    first = np.sin(3 * x[:, 0] + 2 * x[:, 2 % x.shape[1]])
    return 1.2 + 0.2 * first + 0.3 * x[:, 1] * x[:, -1] + 0.02 * np.sin(37.0 * x @ weights)


def cpu(work: Callable[[], object]) -> tuple[float, object]:
    """CPU seconds of a call, and what it returned."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def against_scikit_learn(*, preset: str, budget: int, restarts: int) -> None:
    """Time per query of both, and whether they asked the same."""
    library = Library.build(get_specification(preset))
    scores = landscape(library)
    library.ids()
    for name in ("gp-ucb", "basinlens"):
        plain_s = ours_s = 0.0
        same = 0
        for seed in range(restarts):
            plain = ReferenceSearch(library, seed=seed, method=name, parameters=SearchParameters())
            asked: list[int] = []

            def drive_plain(plain: ReferenceSearch = plain, asked: list[int] = asked) -> None:
                while len(asked) < budget:
                    asked.append(plain.next(asked, scores).chosen)

            spent, _ = cpu(drive_plain)
            plain_s += spent
            spent, queries = cpu(
                lambda name=name, seed=seed: drive(name, library, scores, seed, budget)
            )
            ours_s += spent
            same += queries == [library.id(i) for i in asked]
        count = restarts * budget
        print(
            f"{preset} x {budget} {name:10s} scikit-learn {plain_s / count * 1e3:6.2f} ms/query, "
            f"ours {ours_s / count * 1e3:5.2f} ms/query, ratio {plain_s / ours_s:4.1f}x, "
            f"same {same}/{restarts}",
            flush=True,
        )


def against_peers(*, levels: int, budget: int, restarts: int) -> None:
    """CPU time per query and worst score found, on one whole grid and the same first inputs."""
    library = Library.build(cube(levels))
    scores = landscape(library)
    print(
        f"\n{len(library)} inputs x {budget} queries, {restarts} restarts, highest {scores.max():.3f}"
    )

    def ours(name: str) -> Callable[[int], list[int]]:
        return lambda seed: [library.index(i) for i in drive(name, library, scores, seed, budget)]

    runs: dict[str, Callable[[int], list[int]]] = {n: ours(n) for n in ("gp-ucb", "basinlens")}
    for name, restart in PEERS.items():
        runs[name] = lambda seed, restart=restart: restart(library, scores, seed, budget)
    base_s = 0.0
    for name, run in runs.items():
        try:
            run(restarts)  # imports and first calls are nobody's fault
            measured = [cpu(lambda seed=seed, run=run: run(seed)) for seed in range(restarts)]
        except NotInstalled as e:
            print(f"  {name}: skipped, {e}")
            continue
        spent = sum(s for s, _ in measured) / restarts
        base_s = base_s or spent
        best = np.mean([scores[asked].max() for _, asked in measured])
        repeats = np.mean([len(asked) - len(set(asked)) for _, asked in measured])
        print(
            f"  {name:16s} {spent / budget * 1e3:7.1f} ms/query, {spent / base_s:6.1f}x gp-ucb's, "
            f"best {best:.3f}, {repeats:.1f} repeated queries",
            flush=True,
        )


def drive(name: str, library: Library, scores: np.ndarray, seed: int, budget: int) -> list[str]:
    """One restart over a score table; its queries."""
    method = make_method(name, library, seed=seed, budget=budget)
    while ids := method.ask():
        method.tell(ids, [Score(float(scores[library.index(ids[0])]))])
    return list(method.queries)


def scale(*, exponents: tuple[int, ...], budgets: tuple[int, ...]) -> None:
    """CPU time of a restart of every method as the library grows; six coordinates."""
    print("\nCPU seconds per restart (and ms per query)")
    for exponent in exponents:
        levels = {3: 3, 4: 5, 5: 7, 6: 10}[exponent]
        spent, library = cpu(lambda levels=levels: Library.build(cube(levels)))
        assert isinstance(library, Library)
        scores = landscape(library)
        print(f"library of {len(library)} inputs, built in {spent:.2f} s")
        for budget in budgets:
            cells = []
            for name in METHODS:
                used, _ = cpu(
                    lambda name=name, library=library, scores=scores, budget=budget: drive(
                        name, library, scores, 0, budget
                    )
                )
                cells.append(f"{name} {used:.2f} ({used / budget * 1e3:.1f})")
            print(f"  budget {budget:3d}: " + ", ".join(cells), flush=True)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"  peak memory so far {peak:.0f} MiB", flush=True)


def cube(levels: int):
    """Six ordered coordinates of that many values."""
    return specification_from(
        {
            "name": f"cube-{levels}",
            "task": "benchmark",
            "title": "six ordered coordinates",
            "source": "ours",
            "coordinates": [
                {"name": f"c{i}", "kind": "grid", "values": list(range(levels))} for i in range(6)
            ],
        }
    )


def replayed(*, restarts: int, workers: int) -> None:
    """Many paired restarts of seven methods over 431 inputs."""
    library = Library.build(get_specification("pusht-combinatorial"))
    table = ScoreTable(library, landscape(library))
    start = time.perf_counter()
    replay(table, methods=REPLAYED, restarts=range(restarts), budget=32, workers=workers)
    wall = time.perf_counter() - start
    # Others may use the machine: what one process needs for a part of it says what is ours.
    part = range(max(1, restarts // 16))
    spent, _ = cpu(lambda: replay(table, methods=REPLAYED, restarts=part, budget=32))
    each = spent / len(part)
    print(
        f"\nreplay of {restarts} restarts x {len(REPLAYED)} methods x 32 queries on {len(library)} "
        f"inputs, {workers} processes: {wall:.0f} s of wall time; {each:.2f} s of processor time a "
        f"restart of all methods, {each * restarts / workers:.0f} s for all on {workers} idle cores"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=("ratio", "peers", "scale", "replay"))
    arguments = parser.parse_args()
    quick, only = arguments.quick, arguments.only
    if only in (None, "ratio"):
        preset, budget = ("pusht-3510", 32) if quick else ("pusht-12016", 64)
        against_scikit_learn(preset=preset, budget=budget, restarts=1 if quick else 4)
    if only in (None, "peers"):
        against_peers(
            levels=3 if quick else 5, budget=16 if quick else 64, restarts=1 if quick else 2
        )
    if only in (None, "scale"):
        scale(
            exponents=(3, 4) if quick else (3, 4, 5, 6),
            budgets=(32,) if quick else (32, 64, 256),
        )
    if only in (None, "replay"):
        replayed(restarts=32 if quick else 512, workers=2)


if __name__ == "__main__":
    main()
