"""A meta-evaluation as lines for a console: every table with its reference beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dreamcheck.diagnostics.viscore.meta.bootstrap import Interval
from dreamcheck.diagnostics.viscore.meta.evaluate import MetaReport, TransferRow, View


def report_lines(report: MetaReport, transfer: Sequence[TransferRow] = ()) -> list[str]:
    """Within-task views, pooled ranking and calibration, ablation, frozen maps, transfer, notes."""
    lines = [f"pool {report.pool}: tasks {', '.join(report.tasks)}"]
    for task in report.tasks:
        rows = [r for r in report.task_rows if r.task == task]
        dagger = "†" if task in report.unresolvable else ""
        lines += [
            "",
            f"{task}{dagger}: {max(r.num_rows for r in rows)} checkpoints of "
            f"{max(r.num_runs for r in rows)} runs, label resolvability "
            f"{_plain(rows[0].resolvability)} ({report.episodes} episodes a label)",
        ]
        if dagger:
            lines.append(f"  {rows[0].reason}")
            continue
        lines.append(
            f"  {'metric':20} {'rho':>7} {'given epoch':>12} {'one per run':>12} "
            f"{'fixed epoch':>12}  rows"
        )
        for r in rows:
            lines.append(
                f"  {r.metric:20} {_rho(r.rho):>7} {_rho(r.partial_given_epoch):>12} "
                f"{_view(r.one_per_run):>12} {_view(r.fixed_epoch):>12} {r.num_rows:>5}"
            )
    live = [t for t in report.tasks if t not in report.unresolvable]
    if live:
        lines += [
            "",
            f"pooled over {', '.join(live)}; intervals resample runs; calibration leaves a task out",
            f"  {'metric':20} {'rho':>7} {'95 %':>16} {'error, pts':>11} {'95 %':>14} "
            f"{'constant':>9}  rows  runs",
        ]
        for p in report.pooled_rows:
            lines.append(
                f"  {p.metric:20} {_rho(p.rho):>7} {_bounds(p.rho_interval, '+.2f'):>16} "
                f"{_plain(p.calibration):>11} {_bounds(p.calibration_interval, '.1f'):>14} "
                f"{_plain(p.constant_reference):>9} {p.num_rows:>5} {p.num_runs:>5}"
            )
    if report.ablation:
        lines += ["", f"factor ablation  {'rho':>7} {'error, pts':>11}"]
        lines += [
            f"  {a.factors:14} {_rho(a.rho):>7} {_plain(a.calibration):>11}"
            for a in report.ablation
        ]
    if report.frozen:
        lines += [
            "",
            f"maps fitted on {report.frozen[0].fit} and frozen"
            f"  {'error, pts':>11} {'constant':>9}  rows",
        ]
        lines += [
            f"  {f.metric:20} {_plain(f.error):>11} {_plain(f.reference):>9} {f.num_used:>5}"
            for f in report.frozen
        ]
    lines += _transfer_lines(transfer)
    if report.notes:
        lines += ["", *report.notes]
    return lines


def _transfer_lines(rows: Sequence[TransferRow]) -> list[str]:
    if not rows:
        return []
    tasks = list(dict.fromkeys(t for r in rows for t, _ in r.rho))
    head = " ".join(f"{t:>9}" for t in tasks)
    lines = [
        "",
        f"transfer across planners: rho by task († resolvability at or below 1)\n"
        f"  {'planner':14} {'metric':18} {head} {'pooled':>7} {'error, pts':>11} {'constant':>9}",
    ]
    for r in rows:
        rho, spread = dict(r.rho), dict(r.resolvability)
        cells = [
            f"{'†' if not spread.get(t, math.nan) > 1 else _rho(rho.get(t, math.nan)):>9}"
            for t in tasks
        ]
        lines.append(
            f"  {r.planner:14} {r.metric:18} {' '.join(cells)} {_rho(r.rho_pooled):>7} "
            f"{_plain(r.calibration):>11} {_plain(r.constant_reference):>9}"
        )
    return lines


def _rho(value: float) -> str:
    return f"{value:+.2f}" if math.isfinite(value) else "-"


def _plain(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "-"


def _view(view: View) -> str:
    return f"{view.rho:+.2f} ({view.num_rows:.0f})" if math.isfinite(view.rho) else "-"


def _bounds(interval: Interval, digits: str) -> str:
    if not math.isfinite(interval.low):
        return "-"
    return f"[{interval.low:{digits}}, {interval.high:{digits}}]"
