"""Score tables of made landscapes, and a search method of one's own to compare on them.

    python examples/search_tables.py tables/
    dreamcheck compare tables/*.npz --protocol pusht-combinatorial --restarts 0-15 \\
        --methods random,gp-ucb,basinlens,examples.search_tables:Farthest --primary basinlens

Each table is one landscape over the 431 inputs of the library: a few smooth factors, one interaction
of two of them, noise, and three measurements that failed. Landscapes are drawn independently, so
they are units of a claim about methods; restarts over one of them are not.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from dreamcheck.discovery import Library, Method, get_specification
from dreamcheck.discovery.search import Observed, Proposal
from dreamcheck.streams import stream

LIBRARY = "pusht-combinatorial"


class Farthest(Method):
    """Always the unseen input farthest from everything observed."""

    name = "farthest"

    def _next(self, observed: Observed) -> Proposal:
        unseen = np.flatnonzero(observed.unseen)
        gaps = self.library.psi[unseen][:, None] - self.library.psi[observed.indices]
        nearest = (gaps**2).sum(axis=2).min(axis=1)
        at, tied = self._argmax(unseen, nearest, step=observed.step)
        return Proposal(int(unseen[at]), float(nearest[at]), "all", tied=tied)


def landscape(library: Library, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores [N] and which measurements failed [N] of the landscape with this number."""
    rng = stream(number, "landscape")
    x = library.psi
    waves = sum(
        a * np.sin(b * x[:, c] + d)
        for c, (a, b, d) in enumerate(rng.uniform(0.5, 2.5, size=(x.shape[1], 3)))
    )
    one, other = rng.choice(x.shape[1], size=2, replace=False)
    scores = waves + 2.0 * x[:, one] * x[:, other] + 0.2 * rng.normal(size=len(x))
    failed = np.zeros(len(x), dtype=bool)
    failed[rng.choice(len(x), size=3, replace=False)] = True
    return np.where(failed, np.nan, scores + 5.0), failed


def main(folder: Path, *, tables: int = 8) -> None:
    """Write the tables."""
    library = Library.build(get_specification(LIBRARY))
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(tables):
        scores, failed = landscape(library, number)
        ids = np.array(library.ids())
        np.savez(folder / f"landscape-{number}.npz", id=ids, scores=scores, failed=failed)
    print(f"{tables} tables of {len(library)} inputs in {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "tables"))
