"""An augmentation sweep read as the paper reads it: success, radius and separation by level.

A level is one checkpoint, trained under noise up to ``sigma_max``; level 0 is the unaugmented
reference. Everything here is computed from a sweep's records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dreamcheck.diagnostics.consistency.screening import (
    CLEAN_LOSS_POINTS,
    RECOVERED_SHARE,
    Block,
    Level,
    separation_cannot_change_sign,
)
from dreamcheck.errors import Abstention, UsageError
from dreamcheck.stats import spearman

CHECKPOINT, CONSISTENCY, PLANNING = "sweep-checkpoint", "sweep-consistency", "sweep-planning"
"""Kinds of a sweep's records, one of each for every level."""
COST = "sweep-cost"
"""What one stage of one level took: sigma_max, stage, wall_s, cpu_s, threads."""
STAGES = ("train", "consistency", "plan")
LIMIT_MIN = 90
"""CPU minutes that the whole sweep may take; CPU time, since a shared machine's clock says little."""

T_IR, T_SR = 0.30, 0.95
"""The thresholds that the paper's sources choose for TwoRoom."""


@dataclass(frozen=True)
class SweepLevel:
    """One level's records.

    checkpoint, consistency, planning: payloads, None where that stage has not been run.
    cost: by stage, what it took where that was timed.
    """

    sigma_max: float
    checkpoint: Mapping[str, Any] | None
    consistency: Mapping[str, Any] | None
    planning: Mapping[str, Any] | None
    cost: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every stage was run."""
        return None not in (self.checkpoint, self.consistency, self.planning)

    def shifted(self, severity: float) -> Mapping[str, Any]:
        """Radius and separation under one severity."""
        assert self.consistency is not None
        for row in self.consistency["severities"]:
            if row["severity"] == severity:
                return row
        raise UsageError(f"level {self.sigma_max:g} was not measured under severity {severity:g}.")

    def successes(self, which: str) -> int:
        """Planned episodes that reached their goal, "clean" or "perturbed"."""
        assert self.planning is not None
        return round(self.planning[which]["successes"])


@dataclass(frozen=True)
class Claim:
    """One statement of the paper beside what the sweep shows.

    holds: None where it could not be asked.
    """

    statement: str
    found: str
    holds: bool | None


@dataclass(frozen=True)
class Sweep:
    """The complete levels of a sweep, the reference first.

    missing: levels with a stage still to run.
    severity: of the noise that planning and the screen are about.
    """

    levels: tuple[SweepLevel, ...]
    missing: tuple[float, ...]
    severity: float

    @property
    def severities(self) -> tuple[float, ...]:
        """Those every level was measured under."""
        assert self.levels[0].consistency is not None
        return tuple(r["severity"] for r in self.levels[0].consistency["severities"])

    @property
    def sigmas(self) -> tuple[float, ...]:
        """The levels' largest training noise."""
        return tuple(level.sigma_max for level in self.levels)

    @property
    def episodes(self) -> int:
        """Planned episodes of a level; starts already at the goal are left out."""
        assert self.levels[0].planning is not None
        return int(self.levels[0].planning["num_cases"])

    def block(self, severity: float | None = None) -> Block:
        """The levels as the screen takes them, under one severity (the planning one by default).

        Raises:
            UsageError: a level has no separation rate.
        """
        severity = self.severity if severity is None else severity
        made = []
        for level in self.levels:
            row = level.shifted(severity)
            if row["sr_eligible"] is None:
                raise UsageError(
                    f"level {level.sigma_max:g} has no separation rate: {row['undefined']}"
                )
            made.append(
                Level(
                    sigma_max=level.sigma_max,
                    ir_raw=row["ir_raw"],
                    sr_count=row["sr_count"],
                    sr_eligible=row["sr_eligible"],
                    clean_successes=level.successes("clean"),
                    noisy_successes=level.successes("perturbed"),
                    episodes=self.episodes,
                )
            )
        return Block("TwoRoom", 0, tuple(made))

    @cached_property
    def recovered(self) -> tuple[bool, ...] | None:
        """Which levels recovered the success under noise; None where there is no gain to recover.

        Source: consistency.md section 8.
        """
        try:
            return self.block().recovered
        except Abstention:
            return None

    @cached_property
    def accepted(self) -> tuple[bool, ...]:
        """Which levels the screen accepts at the paper's thresholds."""
        return self.block().accepted(t_ir=T_IR, t_sr=T_SR)


def read_sweep(
    records: Iterable[tuple[str, Mapping[str, Any]]],
    *,
    severity: float = 0.08,
    planned: Iterable[float] = (),
) -> Sweep:
    """A sweep from (kind, payload) pairs of its records; the last of a kind and level counts.

    Args:
        planned: levels that the sweep is to have; those without every stage are named as missing.

    Raises:
        UsageError: level 0 or every other level is missing, or levels cannot stand in one table.
    """
    kept: dict[float, dict[str, Mapping[str, Any]]] = {float(s): {} for s in planned}
    took: dict[float, dict[str, Mapping[str, Any]]] = {}
    for kind, payload in records:
        if kind in (CHECKPOINT, CONSISTENCY, PLANNING):
            kept.setdefault(float(payload["sigma_max"]), {})[kind] = payload
        elif kind == COST:
            took.setdefault(float(payload["sigma_max"]), {})[payload["stage"]] = payload
    levels = [
        SweepLevel(
            s, of.get(CHECKPOINT), of.get(CONSISTENCY), of.get(PLANNING), cost=took.get(s, {})
        )
        for s, of in sorted(kept.items())
    ]
    complete = tuple(level for level in levels if level.complete)
    if len(complete) < 2 or complete[0].sigma_max != 0:
        raise UsageError(
            f"{len(complete)} complete level(s)"
            f"{'' if complete and complete[0].sigma_max == 0 else ', level 0 not among them'}: a "
            "sweep needs its unaugmented reference and at least one more. Run the stages that are "
            "missing."
        )
    for what, of in (
        ("windows", lambda x: x.consistency["anchors"]),
        ("planning protocol", lambda x: x.planning["protocol_digest"]),
        ("episodes", lambda x: x.planning["num_cases"]),
        ("training data", lambda x: x.checkpoint["data_digest"]),
        ("steps and batch", lambda x: (x.checkpoint["steps"], x.checkpoint["batch"])),
    ):
        seen = {str(of(level)) for level in complete}
        if len(seen) > 1:
            raise UsageError(f"the levels differ in their {what}: they are not one sweep.")
    for level in complete:
        one = {p["identity"] for p in (level.checkpoint, level.consistency, level.planning) if p}
        if len(one) > 1:
            raise UsageError(
                f"level {level.sigma_max:g}: its stages measured different checkpoints "
                f"({', '.join(sorted(i[:12] for i in one))}); run them again."
            )
    return Sweep(complete, tuple(x.sigma_max for x in levels if not x.complete), severity)


def claims(sweep: Sweep) -> list[Claim]:
    """What the paper found in its sweeps, asked of this one; every answer is computed."""
    block, recovered, accepted = sweep.block(), sweep.recovered, sweep.accepted
    first, last = sweep.levels[0], sweep.levels[-1]
    n = sweep.episodes
    assert first.planning is not None and first.consistency is not None
    assert last.consistency is not None
    ir, top = block.ir_relative, f"{last.sigma_max:g}"
    loss = first.planning
    out = [
        Claim(
            f"Without augmentation, noise of {sweep.severity:g} costs success",
            f"{_points(loss['loss_points'])} lost [{loss['loss_low']:.0f}, {loss['loss_high']:.0f}]"
            f" (paired 95 % interval, {n} episodes)",
            loss["loss_low"] > 0,
        )
    ]
    gain = max(level.successes("perturbed") for level in sweep.levels[1:]) - first.successes(
        "perturbed"
    )
    if recovered is None:
        found, holds = "no level does better under noise than level 0: no gain to recover", False
    else:
        found, holds = (
            f"best gain under noise {_points(100 * gain / n)}; recovered: {_levels(sweep, recovered)}",
            any(recovered),
        )
    out.append(
        Claim(
            f"Some training noise recovers it ({float(RECOVERED_SHARE):.0%} of the best gain, clean "
            f"success within {CLEAN_LOSS_POINTS} points)",
            found,
            holds,
        )
    )
    worst = max(
        100 * (first.successes("clean") - level.successes("clean")) / n for level in sweep.levels
    )
    out.append(
        Claim(
            "Clean success does not pay for it",
            f"largest loss of clean success at any level: {_points(worst)}",
            worst <= CLEAN_LOSS_POINTS,
        )
    )
    rho = spearman(list(sweep.sigmas), list(ir))
    order = f"Spearman with the level {rho.value:+.2f}" if rho.defined else rho.reason
    out.append(
        Claim(
            f"The relative radius falls with the level, below {T_IR:g}",
            f"1 to {ir[-1]:.2f} at level {top}; {order}",
            ir[-1] <= T_IR and rho.defined and rho.value < 0,
        )
    )
    rates = [level.sr for level in block.levels]
    out.append(
        Claim(
            f"The separation rate rises, to {T_SR:g} or more",
            f"{rates[0]:.2f} to {rates[-1]:.2f} at level {top} "
            f"({block.levels[-1].sr_count} of {block.levels[-1].sr_eligible} pairs)",
            rates[-1] >= T_SR and rates[-1] > rates[0],
        )
    )
    apart = [x.consistency["median_different"] for x in (first, last) if x.consistency]
    fell, grew = block.levels[0].ir_raw / block.levels[-1].ir_raw, apart[1] / apart[0]
    out.append(
        Claim(
            "It rises because the radius shrinks, not because different states move apart",
            f"raw radius divided by {fell:.2f}, median distance of different pairs times {grew:.2f}",
            fell > 1 and fell > grew if rates[-1] > rates[0] else None,
        )
    )
    out.append(_screen(sweep, recovered, accepted))
    return out


def _screen(sweep: Sweep, recovered: tuple[bool, ...] | None, accepted: tuple[bool, ...]) -> Claim:
    statement = (
        f"The screen (relative radius <= {T_IR:g}, separation >= {T_SR:g}) first accepts at most one "
        "level away from the first recovered one"
    )
    taken = f"accepted: {_levels(sweep, accepted)}"
    if recovered is None or not any(recovered):
        return Claim(statement, f"{taken}; nothing was recovered to compare with", None)
    agree = sum(a == r for a, r in zip(accepted, recovered, strict=True))
    found = f"{taken}; agrees with recovery on {agree} of {len(accepted)} levels"
    if sweep.missing:
        return Claim(statement, f"{found}; to be asked when no level is missing", None)
    if not any(accepted):
        return Claim(statement, found, False)
    apart = abs(accepted.index(True) - recovered.index(True))
    return Claim(statement, f"{found}; first ones {apart} level(s) apart", apart <= 1)


def _points(value: float) -> str:
    return f"{value:.0f} points"


def _levels(sweep: Sweep, chosen: tuple[bool, ...]) -> str:
    names = [f"{s:g}" for s, yes in zip(sweep.sigmas, chosen, strict=True) if yes]
    return ", ".join(names) or "none"


def page(sweep: Sweep, *, command: str, figure: str, paper: Iterable[Level] = ()) -> str:
    """The sweep's result page, Markdown; no number of it is typed.

    Args:
        command: what writes this page.
        figure: file name of the figure beside it.
        paper: the paper's levels of the same task, of any number of runs, for comparison.
    """
    first, paper = sweep.levels[0], list(paper)
    made, looked, planned = first.checkpoint, first.consistency, first.planning
    assert made is not None and looked is not None and planned is not None
    block = sweep.block()
    held = claims(sweep)
    yes = sum(c.holds is True for c in held)
    lines = [
        "# Augmentation sweep on a small TwoRoom model",
        "",
        f"Written by `{command}` from the records of the sweep; no number here was typed.",
        "",
        "**Reduced against the paper in every direction**: a model of "
        f"{made['parameters']:,} parameters on {made['image_size']} px frames, {made['steps']} "
        f"steps of {made['batch']} clips, one run, {sweep.episodes} planned episodes a level "
        f"({planned['label']}, CEM of {planned['num_samples']} samples x {planned['iterations']} "
        f"iterations, {planned['num_streams']} stream). The paper trains full models and counts 300 "
        "episodes a level in each of three runs. All levels share data, initial weights and the "
        "order of clips; level 0 trains without noise. Single levels differ by chance too: "
        "intervals below are 95 %.",
        "",
        f"![Success, relative radius and separation rate by level]({figure})",
        "",
        f"## What reproduced: {yes} of {len(held)}",
        "",
        "| the paper finds | here | reproduced |",
        "|---|---|---|",
        *(f"| {c.statement} | {c.found} | {_verdict(c.holds)} |" for c in held),
        "",
    ]
    lines += _height(first, paper)
    if separation_cannot_change_sign(t_ir=T_IR):
        lines += [
            f"At a threshold of {T_IR:g} the sign of a score difference to level 0 depends on the "
            "relative radius alone; the separation rate changes its size.",
            "",
        ]
    lines += [
        f"## By level, noise {sweep.severity:g}",
        "",
        f"| level | clean | under noise | lost | raw radius | relative | separation | median distance "
        f"of {looked['num_pairs']} different pairs | recovered | accepted | one-step error | probe R2 |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    recovered = sweep.recovered or (None,) * len(sweep.levels)
    for level, b, ir, back, taken in zip(
        sweep.levels, block.levels, block.ir_relative, recovered, sweep.accepted, strict=True
    ):
        p, c, m = level.planning, level.consistency, level.checkpoint
        assert p is not None and c is not None and m is not None
        lines.append(
            f"| {level.sigma_max:g} | {_rate(p['clean'])} | {_rate(p['perturbed'])} | "
            f"{p['loss_points']:.0f} [{p['loss_low']:.0f}, {p['loss_high']:.0f}] | "
            f"{b.ir_raw:.3f} | {ir:.2f} | {b.sr:.2f} ({b.sr_count} of {b.sr_eligible}) | "
            f"{c['median_different']:.2f} | {_mark(back)} | {_mark(taken)} | "
            f"{m['one_step_ratio']:.3f} | {m['probe_r2']:.3f} |"
        )
    if planned["random"] is not None:
        lines += ["", f"Random actions on the same episodes: {_rate(planned['random'])}."]
    lines += ["", "## Relative radius / separation rate by severity", ""]
    lines += [
        "| level | " + " | ".join(f"noise {s:g}" for s in sweep.severities) + " |",
        "|" + "---|" * (1 + len(sweep.severities)),
    ]
    blocks = [sweep.block(s) for s in sweep.severities]
    for i, level in enumerate(sweep.levels):
        cells = [f"{b.ir_relative[i]:.2f} / {b.levels[i].sr:.2f}" for b in blocks]
        lines.append(f"| {level.sigma_max:g} | {' | '.join(cells)} |")
    lines += _beside(paper)
    lines += _costs(sweep)
    if sweep.missing:
        lines += ["", f"Not finished: level {', '.join(f'{s:g}' for s in sweep.missing)}."]
    still = max(x.consistency["num_still"] for x in sweep.levels if x.consistency)
    lines += [
        "",
        f"Windows: {looked['num_anchors']} of {looked['history']} observed and {looked['horizon']} "
        f"later frames (digest `{looked['anchors'][:12]}`), {looked['draws']} draws of the noise; "
        f"{still} still windows. Planning protocol `{planned['protocol_digest'][:12]}`.",
    ]
    return "\n".join(lines) + "\n"


def _height(first: SweepLevel, paper: list[Level]) -> list[str]:
    """How high success is at all, which no claim above asks."""
    assert first.planning is not None
    text = f"How high success is at all: level 0 reaches {_rate(first.planning['clean'])} clean"
    if first.planning["random"] is not None:
        text += f", random actions {_rate(first.planning['random'])}"
    base = [100 * x.clean_successes / x.episodes for x in paper if x.sigma_max == 0]
    if base:
        text += f"; the paper's level 0 reaches {_range(base, '{:.0f} %')}"
    return [
        f"{text}. Differences between levels that lie inside the intervals are not findings.",
        "",
    ]


def _beside(paper: list[Level]) -> list[str]:
    if not paper:
        return []
    out = ["", "## The paper's TwoRoom levels, range over its runs", ""]
    out += [
        "| level | clean | under noise | relative radius | separation |",
        "|---|---|---|---|---|",
    ]
    base = [x.ir_raw for x in paper if x.sigma_max == 0]
    for sigma in sorted({x.sigma_max for x in paper}):
        rows = [x for x in paper if x.sigma_max == sigma]
        cells = [
            _range([100 * x.clean_successes / x.episodes for x in rows], "{:.0f} %"),
            _range([100 * x.noisy_successes / x.episodes for x in rows], "{:.0f} %"),
            _range([x.ir_raw / b for x, b in zip(rows, base, strict=True)], "{:.2f}"),
            _range([x.sr for x in rows], "{:.2f}"),
        ]
        out.append(f"| {sigma:g} | {' | '.join(cells)} |")
    return out


def _costs(sweep: Sweep) -> list[str]:
    """What the stages took, and the whole sweep at that rate; nothing unless all were timed once."""
    by_stage = {s: [x.cost[s] for x in sweep.levels if s in x.cost] for s in STAGES}
    if not all(by_stage.values()):
        return []
    count = len(sweep.levels)
    out = ["", "## What it cost", ""]
    out += ["| stage | levels timed | CPU min a level | all levels, CPU min |", "|---|---|---|---|"]
    whole = 0.0
    for stage, timed in by_stage.items():
        minutes = [row["cpu_s"] / 60 for row in timed]
        scaled = count * sum(minutes) / len(minutes)
        whole += scaled
        out.append(
            f"| {stage} | {len(timed)} of {count} | {_range(minutes, '{:.2f}')} | {scaled:.1f} |"
        )
    threads = sorted({row["threads"] for timed in by_stage.values() for row in timed})
    return [
        *out,
        "",
        f"{count} levels take {whole:.0f} CPU minutes on {', '.join(map(str, threads))} thread(s), "
        f"{'within' if whole < LIMIT_MIN else '**more than**'} the {LIMIT_MIN} they may take; a "
        "stage that was not timed at every level counts with its mean. Each stage of each level is "
        "kept when it ends, and training and planning inside a stage too.",
    ]


def _range(values: list[float], form: str) -> str:
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def _rate(rate: Mapping[str, Any]) -> str:
    return f"{rate['value']:.0%} [{rate['low']:.0%}, {rate['high']:.0%}]"


def _mark(value: bool | None) -> str:
    return "–" if value is None else "yes" if value else "no"


def _verdict(holds: bool | None) -> str:
    return "not asked" if holds is None else "yes" if holds else "**no**"
