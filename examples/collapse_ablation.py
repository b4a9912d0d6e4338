"""TwoRoom models under falling weights of the regulariser, for the collapse ablation.

Run it:  python examples/collapse_ablation.py runs/weights
Then:    dreamcheck consistency runs/weights/* --task tworoom --experiments collapse --severity 0.005

The paper trains full models at weights 0, 0.01, 0.02 and 0.03; here every weight is the preset cut
to 300 steps without refinement, from one initialisation, data and order of clips. Stopped at any
point, the same command goes on from the last saved step.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from dreamcheck.training.pipeline import finish, start_training
from dreamcheck.training.prepare import prepare
from dreamcheck.training.progress import LineProgress
from dreamcheck.training.recipe import load_recipe

WEIGHTS = (0.0, 0.01, 0.02, 0.03)

# A model of the ablation needs its readouts and errors, not a card that ships.
REDUCED: dict[str, Any] = {
    "refinement.steps": 0,
    "measure.more_heldout": 100,
    "measure.probe_frames": 6000,
    "measure.probe_steps": 800,
    "measure.windows": 800,
}


def main() -> None:
    """Train the weights that are missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--preset", default="tworoom-small")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--weights", type=float, nargs="+", default=list(WEIGHTS))
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    data = None
    for weight in args.weights:
        folder = args.out / f"weight-{weight:.2f}"
        if (folder / "card.json").is_file():
            continue
        recipe = load_recipe(
            args.preset,
            **{**REDUCED, "optimiser.steps": args.steps, "objective.weight": weight},
        )
        data = data or prepare(recipe, progress=LineProgress())
        training = start_training(recipe, data, folder)
        training.load()
        training.run(progress=LineProgress())
        finish(recipe, data, training, folder, progress=LineProgress())
        print(f"weight {weight:g}: {folder}", flush=True)


if __name__ == "__main__":
    main()
