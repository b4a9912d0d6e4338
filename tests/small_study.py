"""A whole study small enough for a test: the toy model on TwoRoom, seconds on one core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dreamcheck.imagination.support import Support
from dreamcheck.study import Bench, Study, StudyConfig, study_from
from dreamcheck.tasks.tworoom import GoalSeeking, TwoRoom
from toys import CentroidModel, IdentityReadout


def config(**changes: Any) -> StudyConfig:
    data: dict[str, Any] = {
        "title": "A small study",
        "model": "toy",
        "task": "tworoom",
        "policy": {"name": "goal-seeking"},
        "forecast": 4,
        "root_seed": 3,
        "floor_samples": 2,
        "searches": [
            {
                "specification": "start-goal-prefix",
                "methods": ["random", "basinlens"],
                "primary": "basinlens",
                "budget": 6,
                "restart_seeds": [1, 2],
            }
        ],
        "checks": {"top_k": 3, "references": 20, "anchors": 4, "strips": 2},
        "seeds": {
            "search": [0, 1],
            "validation": list(range(16, 32)),
            "neighbourhood": [48, 49],
        },
    }
    return study_from({**data, **changes})


def bench(model: Any = None) -> Bench:
    states = np.random.default_rng(0).uniform(21, 203, size=(2000, 2))
    return Bench(
        model=model or CentroidModel(),
        task=TwoRoom(),
        policy=GoalSeeking(),
        readout=IdentityReadout(),
        support=Support(states=states, latents=states),
    )


def run_at(directory: Path, *, model: Any = None, **changes: Any) -> None:
    from dreamcheck.study.running import run

    with Study.at(directory, config(**changes), bench(model)) as study:
        run(study)


if __name__ == "__main__":
    import sys

    # A child process of the kill-and-resume test.
    run_at(Path(sys.argv[1]))
