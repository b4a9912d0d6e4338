"""Time per query of the search methods, against the same rules on scikit-learn's GP.

    python benchmarks/search.py            # pusht-12016, budget 64, both in turn
    python benchmarks/search.py --quick    # pusht-3510, budget 24

Both ask the same score table; where their sequences part, the reference's acquisition values of
both inputs are printed. One BLAS thread: these matrices are small.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parent))
from reference_search import ReferenceSearch

from dreamcheck.discovery import (
    Library,
    Score,
    SearchParameters,
    get_specification,
    make_method,
)


def table(library: Library) -> np.ndarray:
    """A deterministic score table: two basins, an interaction, rough noise."""
    x = library.psi
    basin = np.exp(-((x - [0.0, 0.5, 1.0, 0.5, 0.0, 1.0]) ** 2).sum(axis=1) / 0.5)
    second = 0.8 * np.exp(-((x - [1.0, 1.0, 0.5, 0.0, 0.5, 0.0]) ** 2).sum(axis=1) / 0.3)
    rough = 0.05 * np.sin(37.0 * x @ np.array([1.0, 2.0, 3.0, 5.0, 7.0, 11.0]))
    return 1.0 + basin + second + 0.2 * x[:, 0] * x[:, 3] + rough


def ours(library: Library, scores: np.ndarray, *, method: str, seed: int, budget: int):
    """Seconds spent asking, and the sequence."""
    search = make_method(method, library, seed=seed, budget=budget)
    asked, spent = [], 0.0
    for _ in range(budget):
        begun = time.perf_counter()
        (name,) = search.ask()
        spent += time.perf_counter() - begun
        index = library.index(name)
        search.tell([name], [Score(float(scores[index]))])
        asked.append(index)
    return spent, asked


def reference(library: Library, scores: np.ndarray, *, method: str, seed: int, asked: list[int]):
    """Seconds the reference needs along the same sequence, and where it would have parted."""
    plain = ReferenceSearch(library, seed=seed, method=method, parameters=SearchParameters())
    spent, parted = 0.0, None
    for t, index in enumerate(asked):
        begun = time.perf_counter()
        step = plain.next(asked[:t], scores)
        spent += time.perf_counter() - begun
        if step.chosen != index and parted is None:
            parted = (t, step.values[index], step.values[step.chosen])
    return spent, parted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smaller library and budget")
    options = parser.parse_args()
    name, budget = ("pusht-3510", 24) if options.quick else ("pusht-12016", 64)
    library = Library.build(get_specification(name))
    scores = table(library)
    ours(library, scores, method="basinlens", seed=99, budget=8)
    print(f"{name}, {len(library)} inputs, budget {budget}, ms per query, one BLAS thread\n")
    print(f"{'method':<10} {'ours':>8} {'scikit-learn':>13} {'ratio':>7}  sequences")
    with threadpool_limits(limits=1, user_api="blas"):
        for method in ("basinlens", "gp-ucb"):
            fast, asked = ours(library, scores, method=method, seed=1, budget=budget)
            slow, parted = reference(library, scores, method=method, seed=1, asked=asked)
            said = "the same" if parted is None else f"part at {parted[0]}: {parted[1:]}"
            print(
                f"{method:<10} {1e3 * fast / budget:>8.2f} {1e3 * slow / budget:>13.2f} "
                f"{slow / fast:>6.1f}x  {said}"
            )


if __name__ == "__main__":
    main()
