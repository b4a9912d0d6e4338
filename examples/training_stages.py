"""Checkpoints of one training at several stages, for `dreamcheck dissociation`.

Run it:  python examples/training_stages.py runs/stages --steps 50 100 200 400 2000 --refined
Then:    dreamcheck dissociation runs/stages/* --out runs/dissociation

Every stage is the same training stopped at that step of its own schedule, recalibrated and measured
as a finished one is; ``--refined`` adds the finished recipe. Stopped at any point, the same command
goes on from the last saved step.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from dreamcheck.training.loop import Training
from dreamcheck.training.pipeline import finish, prepare, start_training
from dreamcheck.training.progress import LineProgress
from dreamcheck.training.recipe import Recipe, load_recipe

# A stage needs a readout and a one-step error, not a card that ships.
MEASURE = {"probe_frames": 6000, "probe_steps": 800, "windows": 800}


def write_stage(recipe: Recipe, prepared: object, training: Training, out: Path) -> None:
    """One stage's checkpoint; the training goes on from where it was."""
    kept = {k: v.clone() for k, v in training.net.state_dict().items()}
    finish(recipe, prepared, training, out, progress=LineProgress())  # type: ignore[arg-type]
    training.net.load_state_dict(kept)


def main() -> None:
    """Train up to each stage and write it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--preset", default="tworoom-small")
    parser.add_argument("--steps", type=int, nargs="+", default=[50, 100, 200, 400])
    parser.add_argument("--refined", action="store_true", help="add the refined last stage")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    measure = {f"measure.{k}": v for k, v in MEASURE.items()}
    plain = load_recipe(args.preset, **{"refinement.steps": 0}, **measure)
    whole = load_recipe(args.preset, **measure)
    prepared = prepare(plain, progress=LineProgress())
    training = start_training(plain, prepared, args.out)
    training.load()
    stages = [(s, plain, f"step-{s:05d}") for s in sorted(args.steps)]
    if args.refined:
        stages.append((whole.optimiser.steps, whole, f"step-{whole.optimiser.steps:05d}-refined"))
    for steps, recipe, name in stages:
        if (args.out / name / "card.json").is_file():
            continue
        if training.step > steps:
            raise SystemExit(
                f"the saved state is at step {training.step}, beyond stage {steps}: delete "
                f"{training.state_path} to train the missing stage."
            )
        training.run(until=steps, progress=LineProgress())
        write_stage(recipe, prepared, training, args.out / name)


if __name__ == "__main__":
    main()
