"""Operating characteristics of the doctor: false alarms, and the smallest fault each check finds.

    python benchmarks/doctor.py --widths CKPT8 CKPT32 --seeds 3 --write

Bases: the shipped model, TwoRoom checkpoints of other widths (``--train DIR`` trains two in a few
minutes), and a toy that one can read. Every check is run on clean subjects of several seeds and on
the graded faults of its generator. ``--write`` keeps the result as the package's
doctor/operating.json, which is shown beside every verdict, and the table in docs/doctor.md. After a
change to one check, the rest stays as it was measured:

    python benchmarks/doctor.py --only protocol_feasibility --seeds 8 --write
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from dreamcheck.doctor.bases import ModelBase, checkpoint_base, toy_base
from dreamcheck.doctor.contract import Verdict
from dreamcheck.doctor.examination import run_check
from dreamcheck.doctor.operating import BEGIN, END, FILE, table
from dreamcheck.doctor.registry import all_checks, all_generators
from dreamcheck.models.registry import shipped_folder
from dreamcheck.stats.binomial import wilson_interval

ALARMS = (Verdict.WARN, Verdict.WRONG)
SMALL = {
    "data.episodes": 300, "data.image_size": 28, "model.image_size": 28, "model.patch_size": 7,
    "model.encoder_width": 48, "model.encoder_depth": 2, "model.encoder_mlp": 128,
    "model.head_hidden": 128, "model.action_hidden": 64, "model.predictor_width": 48,
    "model.predictor_depth": 2, "model.predictor_heads": 4, "model.predictor_head_width": 16,
    "model.predictor_mlp": 128, "optimiser.steps": 1500, "optimiser.batch": 64,
    "optimiser.precision": "float32", "optimiser.learning_rate": 2e-3, "objective.directions": 64,
    "refinement.steps": 1500, "measure.more_heldout": 40, "measure.probe_frames": 4000,
    "measure.probe_steps": 300, "measure.windows": 500, "measure.support_rows": 1000,
}  # fmt: skip


def trained(folder: Path, width: int) -> Path:
    """A small TwoRoom model of a latent width, trained now unless it is there."""
    from dreamcheck.training.pipeline import train_preset

    out = folder / f"width-{width}"
    if not (out / "card.json").is_file():
        train_preset(
            "tworoom-small", out, threads=1, name=out.name, **{"model.latent_width": width}, **SMALL
        )
    return out


def bases(widths: list[Path], seed: int) -> list[ModelBase]:
    """Sound subjects of a seed."""
    return [
        checkpoint_base(shipped_folder() / "tworoom-small", seed=seed),
        *(checkpoint_base(w, seed=seed) for w in widths),
        toy_base(seed),
    ]


def measure(
    widths: list[Path], seeds: range, only: list[str], on: list[str]
) -> list[dict[str, Any]]:
    """One row per case: check, base, seed, case, grade, whether faulty, verdict."""
    checks = {c.name: c for c in all_checks() if not only or c.name in only}
    generators = all_generators()
    without = [n for n in checks if n not in generators]
    if without:
        raise SystemExit(f"no fault generator for {', '.join(without)}")
    rows = []
    for seed in seeds:
        for place, base in enumerate(bases(widths, seed)):
            for name, check in checks.items():
                generator = generators[name]
                if not generator.uses_model and place:
                    continue
                if on and (base.name if generator.uses_model else "own data") not in on:
                    continue
                for case in generator.cases(base):
                    if case.faulty and seed:
                        continue  # faults are graded on the first seed, false alarms on all
                    begun = time.monotonic()
                    finding = run_check(check, case.build())
                    rows.append(
                        {
                            "check": name,
                            "base": base.name if generator.uses_model else "own data",
                            "seed": seed,
                            "case": case.name,
                            "grade": case.grade,
                            "faulty": case.faulty,
                            "verdict": finding.verdict.value,
                            "alarm": finding.verdict in ALARMS,
                            "evidence": list(finding.evidence)[:3],
                            "seconds": time.monotonic() - begun,
                        }
                    )
            print(f"seed {seed}, {base.name}: {len(rows)} cases so far", flush=True)
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Per check: clean cases, false alarms with the interval's upper end, smallest fault found.

    The smallest fault found is the lowest grade from which on every graded fault of every base and
    seed raised an alarm.
    """
    by = defaultdict(list)
    for row in rows:
        by[row["check"]].append(row)
    generators, out = all_generators(), {}
    for name, cases in by.items():
        clean = [r for r in cases if not r["faulty"]]
        false = sum(r["alarm"] for r in clean)
        interval = wilson_interval(false, len(clean))
        faults = sorted((r for r in cases if r["faulty"]), key=lambda r: r["grade"])
        missed = [r["grade"] for r in faults if not r["alarm"]]
        above = [r["grade"] for r in faults if not missed or r["grade"] > max(missed)]
        out[name] = {
            "clean": len(clean),
            "false_alarms": false,
            "false_alarm_low": interval.low,
            "false_alarm_high": interval.high,
            "faulty": len(faults),
            "found": sum(r["alarm"] for r in faults),
            "smallest_found": min(above) if above else None,
            "smallest_tried": faults[0]["grade"] if faults else None,
            "unit": generators[name].unit,
            "bases": sorted({r["base"] for r in cases}),
        }
    return out


def kept(before: dict[str, Any] | None, found: dict[str, Any], made_by: str) -> dict[str, Any]:
    """The document of all checks: those found now, the others as they were measured before."""
    checks = {**({} if before is None else before["checks"]), **found}
    return {
        "made_by": made_by if before is None else before["made_by"],
        "cases": sum(c["clean"] + c["faulty"] for c in checks.values()),
        "checks": checks,
    }


def main() -> None:
    """Measure, print, and keep the result where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", type=Path, help="train widths 8 and 32 here, and use them")
    parser.add_argument("--widths", type=Path, nargs="*", default=[], help="TwoRoom checkpoints")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[], help="only these checks")
    parser.add_argument("--on", nargs="*", default=[], help="only these bases ('own data': none)")
    parser.add_argument("--rows", type=Path, help="write every case here as JSON")
    parser.add_argument("--add", type=Path, nargs="*", default=[], help="rows of earlier parts")
    parser.add_argument("--write", action="store_true", help="keep as doctor/operating.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    widths = list(args.widths)
    if args.train:
        widths += [trained(args.train, w) for w in (8, 32)]
    begun = time.monotonic()
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    rows = measure(widths, seeds, args.only, args.on)
    for part in args.add:
        rows += json.loads(part.read_text())
    found = summary(rows)
    print(
        f"{'check':<20} {'false alarms':>14} {'95% up to':>10} {'found':>9}  smallest fault found"
    )
    for name, s in found.items():
        smallest = (
            "none" if s["smallest_found"] is None else f"{s['smallest_found']:.3g} {s['unit']}"
        )
        print(
            f"{name:<20} {s['false_alarms']:>6} of {s['clean']:<5} {s['false_alarm_high']:>9.1%} "
            f"{s['found']:>4}/{s['faulty']:<4}  {smallest}"
        )
    print(f"{len(rows)} cases in {time.monotonic() - begun:.0f} s")
    if args.rows:
        args.rows.write_text(json.dumps(rows, indent=1))
    if args.write:
        from dreamcheck import doctor

        path = Path(doctor.__file__).parent / FILE
        parts = " (in parts: --on, --first-seed, --rows, --add)" if args.add else ""
        seeds_run = 1 + max(r["seed"] for r in rows)
        document = kept(
            json.loads(path.read_text(encoding="utf-8")) if args.only else None,
            found,
            f"python benchmarks/doctor.py --train DIR --seeds {seeds_run} --write{parts}",
        )
        path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
        page = Path(__file__).parent.parent / "docs" / "doctor.md"
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        page.write_text(f"{before}{BEGIN}\n{table(document)}{END}{after}", encoding="utf-8")
        print(f"written to {path} and {page}")


if __name__ == "__main__":
    main()
