"""TwoRoom models under falling weights of the regulariser, for the collapse ablation.

Run it:  python examples/collapse_ablation.py runs/weights
Then:    dreamcheck consistency runs/weights/* --reference runs/sweep/level-0.00 --task tworoom \\
             --experiments collapse

The paper trains full models at weights 0, 0.01, 0.02 and 0.03; here every weight is the preset cut
to 300 steps without refinement, from one initialisation, data and order of clips, like level 0 of
examples/augmentation_sweep.py, which is their reference. Stopped at any point, the same command
goes on from the last saved step.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from dreamcheck.models.checkpoint import CONFIG_FILE
from dreamcheck.training.pipeline import settle, start_training, write_weights
from dreamcheck.training.prepare import prepare
from dreamcheck.training.progress import LineProgress
from dreamcheck.training.recipe import load_recipe

WEIGHTS = (0.0, 0.01, 0.02, 0.03)


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
        if (folder / CONFIG_FILE).is_file():
            continue
        recipe = load_recipe(
            args.preset,
            **{
                "refinement.steps": 0,
                "optimiser.steps": args.steps,
                "objective.weight": weight,
                "measure.more_heldout": 0,
            },
        )
        data = data or prepare(recipe, progress=LineProgress())
        training = start_training(recipe, data, folder)
        training.load()
        training.run(progress=LineProgress())
        # No card: a collapsed encoder has no errors or probes that mean anything.
        gap = settle(recipe, data, training, progress=LineProgress())
        write_weights(recipe, data, training, folder, gap=gap)
        print(f"weight {weight:g}: {folder}", flush=True)


if __name__ == "__main__":
    main()
