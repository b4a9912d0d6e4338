"""The PushT protocol end to end on a model of ours, and its page, from records alone.

The whole library is measured when it is small enough (spec/evidence.md section 10): every search
is then a replay over stored scores, and paper mode (ceil tail) and default mode (fractional tail)
are two readings of the same losses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dreamcheck.discovery.compare import Comparison, compare
from dreamcheck.discovery.library import Library
from dreamcheck.discovery.replay import Replay, ScoreTable, replay
from dreamcheck.discovery.specification import get_specification
from dreamcheck.errors import Abstention, UsageError
from dreamcheck.evidence import Record, Statistic, Store, Validation, entry_of, risk_of
from dreamcheck.evidence.diagnoses import KIND
from dreamcheck.progress import Progress
from dreamcheck.stats import NotTestable, mean_sem, permutation_test, sign_test
from dreamcheck.study.activity import ActivityFloors
from dreamcheck.study.assembling import assemble
from dreamcheck.study.config import StudyConfig, load_study
from dreamcheck.study.consequence import CONTROLLERS, MPC, consequence_table, run_case
from dreamcheck.study.running import opened, run
from dreamcheck.study.searching import evaluate, run_searches
from dreamcheck.study.study import Study

METHODS = ("random", "gp-ucb", "basinlens", "frontier", "interaction", "beam", "cem")
SEARCHES = ("random", "gp-ucb", "basinlens")
BUDGETS = (8, 16, 32)
RESTARTS = tuple(range(32, 40))
MODES: Mapping[str, Statistic] = {
    "paper": Statistic(name="cvar", alpha=0.4, estimator="ceil"),
    "default": Statistic(name="cvar", alpha=0.4, estimator="fractional"),
}


LIBRARIES = ("576", "3510", "12016")


@dataclass(frozen=True)
class Scale:
    """How much of a shipped protocol is run; None is all of it.

    restarts: online searches. search_seeds, validation_seeds, neighbourhood_seeds: the first so
    many of each. references: random inputs that a finding is held against. cases: selected inputs
    of the consequence, and as many random controls. case_seeds: its environment seeds, outside
    every other partition.
    """

    restarts: int | None = None
    search_seeds: int | None = None
    validation_seeds: int | None = None
    neighbourhood_seeds: int | None = None
    references: int | None = None
    cases: int = 8
    case_seeds: tuple[int, ...] = (1032, 1033)

    def of(self, config: StudyConfig) -> StudyConfig:
        """The protocol cut down to this scale."""
        seeds = {
            name: part[: getattr(self, f"{name}_seeds")] for name, part in config.seeds.items()
        }
        searches = tuple(
            s.model_copy(update={"restart_seeds": s.restart_seeds[: self.restarts]})
            for s in config.searches
        )
        checks = config.checks.model_copy(
            update={
                "references": self.references or config.checks.references,
                "validation_steps": (len(seeds["validation"]),),
            }
        )
        return config.model_copy(update={"seeds": seeds, "searches": searches, "checks": checks})


REDUCED = Scale(restarts=2, neighbourhood_seeds=4, references=32, cases=3)
"""For an hour on a laptop; the page says what was left out. A verdict needs all sixteen seeds."""


def run_protocol(
    model: str,
    out: str | Path,
    *,
    library: str = "576",
    scale: Scale | None = None,
    paper_searches: bool = True,
    threads: int = 1,
    progress: Progress | None = None,
) -> Path:
    """Measure everything that a library's part of the page is made of; resumable at any point.

    Args:
        library: "576" is measured whole; "3510" and "12016" are only searched.
        paper_searches: search the larger libraries a second time, steered by paper mode's score,
            in a study of its own beside the first; the whole 576 is replayed in either mode.
    """
    progress = progress or Progress()
    scale = scale or Scale()
    config = scale.of(load_study(f"pusht-{library}", model=model))
    directory = Path(out) / library
    with opened(directory, config, progress=progress, threads=threads) as study:
        search = study.config.searches[0]
        began, rows = time.monotonic(), study.store.count("measurement")
        if library == "576":
            ids = study.library(search).ids()
            with progress.stage("whole library", len(ids)) as stage:
                # Many inputs a batch; the evaluations then only read them.
                study.measured(
                    study.asked(search, ids), study.seeds("search"), partition="search", stage=stage
                )
            for i in ids:
                evaluate(study, search, i)
        spent, new = time.monotonic() - began, study.store.count("measurement") - rows
        if new:
            study.store.commit(
                [Record.make("unit-cost", f"{rows}", {"measurements": new}, meta={"wall_s": spent})]
            )
        run(study)
        _consequences(study, cases=scale.cases, seeds=scale.case_seeds, progress=progress)
    if paper_searches and library != "576":
        config = config.model_copy(update={"mode": "paper"})
        beside = paper_folder(directory)
        with opened(beside, config, progress=progress, threads=threads) as study:
            run_searches(study)
    return directory


def paper_folder(directory: Path) -> Path:
    """Where a larger library's searches in paper mode lie, beside its study."""
    return directory.with_name(f"{directory.name}-paper")


def _consequences(study: Study, *, cases: int, seeds: Sequence[int], progress: Progress) -> None:
    bench = study.bench
    if bench.readout is None:
        return
    findings = [r.payload for r in study.store.records("finding")]
    for group, name in (("shortlist", "selected"), ("random-shortlist", "random-control")):
        chosen = [f for f in findings if f["group"] == group][:cases]
        with progress.stage(f"consequence {name}", len(chosen) * len(seeds)) as stage:
            for f in chosen:
                for seed in seeds:
                    key = f"{name}:{f['input']}:{seed}"
                    if study.store.get("consequence", key) is None:
                        found = run_case(
                            bench.task, bench.policy, study.probe.runner, bench.readout,
                            f["values"], int(seed), mpc=MPC(), root_seed=study.config.root_seed,
                        )  # fmt: skip
                        study.keep(
                            "consequence",
                            key,
                            {"group": name, "input": f["input"], "seed": int(seed),
                             "progress": found, "protocol": asdict(MPC())},
                        )  # fmt: skip
                    stage.advance()


def explain_protocol(
    model: str,
    out: str | Path,
    *,
    episodes: int,
    progress: Callable[[int, int, str], None] | None = None,
) -> Path:
    """`explain` over the fixed menu, by the simulator's rule and by the block alone.

    Kept in ``out/explain``: a rule that is there already is not run again, and an episode's menu
    that was simulated is not simulated again.
    """
    from dreamcheck.planning import explain_menu, load_protocol
    from dreamcheck.planning.records import record_explanation

    directory = Path(out) / "explain"
    done = set()
    if (directory / "evidence.sqlite").exists():
        with Store.read(directory) as store:
            done = {r.payload["result"]["protocol"]["success"] for r in store.records(KIND)}
    bench = assemble(load_study("pusht-576", model=model), threads=1)
    for success in ("native", "block_only"):
        if success not in done:
            protocol = load_protocol("pusht-menu").replace(num_eval=episodes, success=success)
            found = explain_menu(
                bench.model, bench.task, protocol, readout=bench.readout, progress=progress,
                keep=directory / "episodes",
            )  # fmt: skip
            record_explanation(directory, found, model=model, task=bench.task)
    return directory


def score_tables(store: Store) -> dict[str, tuple[ScoreTable, np.ndarray]]:
    """Per mode, the score of every input of the library, and its prediction risk.

    Raises:
        IncompleteError: the library was not measured whole.
    """
    spec = get_specification(next(iter(store.records("library"))).payload["spec"])
    library = Library.build(spec, task_rules={})
    losses: dict[str, list[float]] = {}
    activity: dict[str, Mapping[str, float]] = {}
    for r in store.records("evaluation"):
        if None not in r.payload["losses"]:
            losses[r.payload["input"]] = r.payload["losses"]
            activity[r.payload["input"]] = r.payload["activity"]
    floors = ActivityFloors(**next(iter(store.records("activity-floors"))).payload["floors"])
    out = {}
    for mode, statistic in MODES.items():
        risk = np.full(len(library), np.nan)
        score, active = risk.copy(), np.zeros(len(library), bool)
        for n, i in enumerate(library.ids()):
            if i in losses:
                penalty = floors.penalty(activity[i])
                risk[n] = risk_of(losses[i], statistic.model_dump())
                score[n], active[n] = risk[n] - penalty, penalty == 0
        out[mode] = (ScoreTable(library, score, active=active), risk)
    return out


def searched(found: Replay, *, thresholds: Sequence[int], budget: int) -> Comparison:
    """The replay's first ``budget`` queries, every method, and the paper's paired tests."""
    return compare(
        found.first(budget),
        thresholds=thresholds,
        averaged=tuple(range(thresholds[0], thresholds[-1] + 1, 1))[:16],
        method="basinlens",
    )


def page(out: str | Path) -> str:
    """docs/results/pusht.md, from the records of finished protocols.

    Args:
        out: what ``run_protocol`` wrote into, one folder a library, with "explain" beside them
            where the menu was run.

    Raises:
        UsageError: the 576 protocol was not run there.
    """
    from dreamcheck.reproduce.pusht_larger import larger_parts, menu_part

    out = Path(out)
    directory = out / LIBRARIES[0]
    with Store.read(directory) as store:
        subject = last(store, "subject")
        if subject is None or subject["task"] != "pusht":
            raise UsageError(f"{directory} holds no PushT study; run `dreamcheck reproduce pusht`.")
        parts = [_head(store, subject), "# The 576 library, measured whole", _searches(store),
                 heldout_part(store), local_part(store), _difficulty(store), mpc_part(store),
                 _agreement(store)]  # fmt: skip
        ending = _not_run(store)
    for library in LIBRARIES[1:]:
        parts += larger_parts(out / library, library)
    return "\n\n".join([*parts, menu_part(out / "explain"), ending]) + "\n"


def last(store: Store, kind: str) -> dict[str, Any] | None:
    rows = [r.payload for r in store.records(kind)]
    return rows[-1] if rows else None


def _head(store: Store, subject: Mapping[str, Any]) -> str:
    cost = [r for r in store.records("unit-cost")]
    unit = ""
    if cost:
        wall = sum(r.meta["wall_s"] for r in cost)
        count = sum(r.payload["measurements"] for r in cost)
        unit = f" One measurement (one input, one seed) took {1000 * wall / count:.0f} ms of wall time on the machine that ran it, busy with other work."
    readout = subject["readout"]
    return f"""# PushT: the 576, 3,510 and 12,016 protocols on a small model of ours

Written by `dreamcheck reproduce pusht --model MODEL --out DIR --page docs/results/pusht.md` from the records in DIR; no number here was typed.

- Checkpoint `{Path(subject["model"]).name}`, identity `{subject["identity"][:12]}`, task version `{subject["task_version"]}`, {subject["package_version"]}, policy {subject["policy"]["name"]}.
- Interface: state probe, agent xy, block xy and the tip of a 60 px arm at the block's angle, {subject["unit"]} at the final forecast step; {subject["history"]} frames observed, {subject["forecast"]} predicted, {subject["frameskip"]} steps apart. The paper's is the same in structure but in its own probe's units: **the risks cannot be compared with the paper's, only the orderings.**
- The probe's own held-out error: {readout["mean_mae"]:.2f} px mean absolute.
- {store.count("measurement")} measurements.{unit}
- Paper mode is the tail average with `ceil(alpha n)` and the paper's tests; default mode is the fractional tail with ours. Both read the same losses. On the 576 library, measured whole, each mode's searches are replayed on its own scores; each larger library says whose queries its paper mode reads. Shortlists, and with them everything after the searches, are default mode's throughout."""


def _searches(store: Store) -> str:
    try:
        tables = score_tables(store)
    except Exception as error:
        raise Abstention(f"tables E and J need the whole library: {error}") from error
    out = ["## Search (structure of tables E.1-E.5, F.1 and J.1)"]
    for mode, (table, risk) in tables.items():
        top = np.sort(table.scores)[::-1]
        # The paper's thresholds mean nothing in px: ours are the 5 %, 2 % and 1 % best scores.
        cut = [int(np.floor(100 * top[max(0, int(len(top) * q) - 1)])) for q in (0.05, 0.02, 0.01)]
        cut = sorted({max(1, c) for c in cut})
        lines = [
            f"### {mode} mode",
            f"{int(table.active.sum())} of {len(table.scores)} inputs are task-active; prediction risk: median {np.median(risk):.1f}, 95th percentile {np.percentile(risk, 95):.1f}. Thresholds are the 5 %, 2 % and 1 % best scores: {', '.join(f'{c / 100:.1f}' for c in cut)}. {len(RESTARTS)} restarts over this one table: tests are conditional on it.",
        ]
        found = replay(table, methods=METHODS, restarts=RESTARTS, budget=BUDGETS[-1])
        for budget in BUDGETS:
            c = searched(found, thresholds=cut, budget=budget)
            lead = max(c.methods, key=lambda m: m.best.mean)
            hit = max(c.methods, key=lambda m: m.top[5].hit)
            rows = [
                f"| {m.name} | {m.best.mean:.1f} ± {m.best.sem.value:.1f} | "
                + " | ".join(f"{m.hit_rates[t]:.2f}" for t in cut)
                + f" | {m.first_hit[cut[0]].mean:.1f} | {m.top[5].hit:.2f} | {m.top[5].coverage.mean:.2f} |"
                for m in c.methods
            ]
            tests = "; ".join(
                f"BasinLens against {p.comparator}: best p = {p.best.p:.2g}, "
                f"{p.win_loss_tie.wins}/{p.win_loss_tie.losses}/{p.win_loss_tie.ties}"
                for p in c.pairs
                if p.comparator in SEARCHES
            )
            head = " | ".join(f"hit ≥ {t / 100:.1f}" for t in cut)
            lines.append(
                f"Budget {budget}. Leads on mean best: **{lead.name}**; on hitting the top 5 %: "
                f"**{hit.name}**. {tests}.\n\n| method | best score | {head} | first hit ≥ "
                f"{cut[0] / 100:.1f} | top-5 % hit | coverage |\n|{'---|' * (len(cut) + 5)}\n"
                + "\n".join(rows)
            )
        out.append("\n\n".join(lines))
    return "\n\n".join(out)


def heldout_part(store: Store) -> str:
    rows: list[Validation] = [
        entry_of(r) for r in store.records("validation", partition="validation")
    ]
    findings = [r.payload for r in store.records("finding")]
    lines = ["## Held-out point risk (structure of table H.1)"]
    table = []
    for mode, statistic in MODES.items():
        for group in ("shortlist", "random-shortlist", "reference", "default-reset"):
            risks = [
                risk_of([float(x) for x in v.losses if x is not None], statistic.model_dump())
                for v in rows
                if v.group == group and None not in v.losses
            ]
            if risks:
                m = mean_sem(risks) if len(risks) > 1 else None
                spread = f" ± {m.sem.value:.1f}" if m else ""
                table.append(f"| {mode} | {group} | {len(risks)} | {np.mean(risks):.1f}{spread} |")
    lines.append(
        "| mode | group | inputs | CVaR on held-out seeds |\n|---|---|---|---|\n" + "\n".join(table)
    )
    for group in ("shortlist", "random-shortlist"):
        words = [f["verdict"] for f in findings if f["group"] == group]
        told = ", ".join(f"{words.count(w)} {w}" for w in dict.fromkeys(words))
        lines.append(f"Default-mode verdicts on the {group}: {told or 'none'}.")
    headlines = sum(bool(f["headline"]) for f in findings)
    own = sum(bool(f["own_failure"]) for f in findings)
    why = sorted({f["readout_reason"] for f in findings if not f["readout_trusted"]})
    lines.append(
        f"{own} confirmed finding(s) stand out beyond difficulty, {headlines} reach a headline."
        + (f" The readout abstains on some: {why[0]}." if why else "")
    )
    return "\n\n".join(lines)


def local_part(store: Store) -> str:
    found = last(store, "persistence")
    if found is None:
        return "## Fresh neighbourhoods (structure of table E.6)\n\nNot measured."
    raw = {k: [v for v in vs if v is not None] for k, vs in found["raw_means"].items()}
    means = " | ".join(f"{np.mean(raw[k]):.1f} ({len(raw[k])})" for k in ("random", "mid", "top"))
    paper = []
    for other in ("random", "mid"):
        test = found["paper"][f"top_vs_{other}"]
        told = test["reason"] if test["test"] is None else f"p = {test['test']['p']:.2g}"
        paper.append(f"top against {other}: {told}")
    own = found["default"]
    test = own.get("test")
    mine = (
        own["reason"]
        if not test
        else f"difference {test['difference']:.1f} in {own['value']}, p = {test['p']:.2g} "
        f"({len(own['top'])} against {len(own['control'])} units)"
    )
    return (
        "## Fresh neighbourhoods (structure of table E.6)\n\n"
        f"| random (anchors) | mid-score | top |\n|---|---|---|\n| {means} |\n\n"
        f"Mean radius-1 CVaR. Paper's test, raw risk, anchors included: {'; '.join(paper)}.\n\n"
        f"Ours, controls matched on block path, contacts and frozen-world risk, anchors left out: "
        f"{mine}."
    )


def _difficulty(store: Store) -> str:
    rows = [r.payload for r in store.records("evaluation") if r.payload["risk"] is not None]
    risk = np.array([r["risk"] for r in rows])
    frozen = np.array([r["frozen_risk"] for r in rows])
    contact = np.array([r["activity"]["contact"] for r in rows])
    path = np.array([r["activity"]["path"] for r in rows])
    rank = lambda x: np.argsort(np.argsort(x)).astype(float)  # noqa: E731
    corr = {
        name: float(np.corrcoef(rank(risk), rank(x))[0, 1])
        for name, x in (("frozen-world risk", frozen), ("contacts", contact), ("block path", path))
    }
    design = np.column_stack([rank(frozen), rank(contact), rank(path), np.ones(len(risk))])
    fit = design @ np.linalg.lstsq(design, rank(risk), rcond=None)[0]
    share = 1 - float(
        ((rank(risk) - fit) ** 2).sum() / ((rank(risk) - rank(risk).mean()) ** 2).sum()
    )
    goals = _goal_share(rows)
    told = ", ".join(f"{n} {v:.2f}" for n, v in corr.items())
    return (
        "## How much is difficulty\n\n"
        f"Over {len(rows)} evaluated inputs the model's risk is {np.median(risk / frozen):.2f} of a "
        f"frozen world's in the median, and above it on {float((risk > frozen).mean()):.0%} of them. "
        f"Rank correlation of risk with: {told}. The three together explain {share:.0%} of the "
        "variance of its rank.\n\n"
        "The weak policy never reads the goal and the picture does not show it, so inputs that "
        "differ in the goal alone should have one risk: their risks differ by "
        f"{goals[0]:.2g} in the median and {goals[1]:.2g} at most. What remains is the original's "
        "reset, which runs one physics step at the goal: where bodies overlap there, the block "
        "starts a little displaced, and contact amplifies it."
    )


def _goal_share(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Median and largest spread of risk among inputs that differ in the goal alone."""
    spec = get_specification("pusht-576")
    library = Library.build(spec, task_rules={})
    names = [n for n in library.names if not n.startswith("goal")]
    groups: dict[tuple[Any, ...], list[float]] = {}
    for r in rows:
        values = library.values(library.index(r["input"]))
        groups.setdefault(tuple(values[n] for n in names), []).append(r["risk"])
    spreads = [max(g) - min(g) for g in groups.values() if len(g) > 1]
    return (float(np.median(spreads)), max(spreads)) if spreads else (0.0, 0.0)


def mpc_part(store: Store) -> str:
    rows = [r.payload for r in store.records("consequence")]
    lines = ["## Consequence: seed-matched MPC (structure of tables H.2 and H.3)"]
    if not rows:
        return "\n\n".join([*lines, "Not measured."])
    table = []
    for group in dict.fromkeys(r["group"] for r in rows):
        c = consequence_table([r["progress"] for r in rows if r["group"] == group])
        t = c["oracle_against_model"]
        means = " | ".join(f"{c['mean_progress'][k]:.3f}" for k in CONTROLLERS)
        table.append(
            f"| {group} | {c['cases']} | {means} | {c['gap']:+.3f} | "
            f"{t['wins']}/{t['losses']}/{t['ties']} | {t['p']:.2g} | {c['sign_reversals']} |"
        )
    lines.append(
        "| cases | n | model-ranked | oracle-ranked | random | gap | W/L/T | p | sign reversals |\n"
        f"|{'---|' * 9}\n" + "\n".join(table)
    )
    lines.append(
        "Realised block-goal progress over 40 control steps, 16 proposals of the weak policy on "
        "proposal seeds 100-115, horizon 30, replanned every 10. p is the one-sided exact sign "
        "test of oracle over model; cases of one input on several seeds are not independent."
    )
    return "\n\n".join(lines)


def _agreement(store: Store) -> str:
    """What agrees with the paper's claims and what does not, each from its own records."""
    rows = []
    for mode, (table, _) in score_tables(store).items():
        found = replay(table, methods=SEARCHES, restarts=RESTARTS, budget=BUDGETS[-1])
        same, p, why = leads("basinlens", {m: found.runs[m].best.tolist() for m in SEARCHES})
        rows.append(
            says(
                f"BasinLens finds the worst inputs of the three searches ({mode} mode, budget "
                f"{BUDGETS[-1]})",
                same,
                why,
                p=p,
            )
        )
    return agreement_table(rows + agreement_rows(store))


def says(claim: str, same: bool | None, why: str, *, p: float | None) -> str:
    """One row of the agreement's table.

    Args:
        same: whether the numbers point the claim's way; None is "not testable".
        p: of the one-sided test of that direction; without one nothing agrees by itself.
    """
    if same is None:
        return f"| {claim} | not testable | {why} |"
    word = "does not agree"
    if same:
        word = "agrees" if p is not None and p <= 0.05 else "same direction, not significant"
    told = "" if p is None else f", p = {p:.2g}"
    return f"| {claim} | {word} | {why}{told} |"


def leads(name: str, best: Mapping[str, Sequence[float]]) -> tuple[bool, float, str]:
    """Whether a method's mean best leads, the larger p of its paired sign tests, and the means.

    Args:
        best: best score per restart, by method, in the order of the restarts.
    """
    means = {m: float(np.mean(v)) for m, v in best.items()}
    mine = np.asarray(best[name], float)
    p = max(
        sign_test(mine - np.asarray(v, float), alternative="greater").p
        for m, v in best.items()
        if m != name
    )
    told = ", ".join(f"{m} {v:.0f}" for m, v in means.items())
    return max(means, key=lambda m: means[m]) == name, p, f"mean best {told}"


def agreement_rows(store: Store) -> list[str]:
    """The claims on held-out seeds, on neighbourhoods and on the consequence."""
    rows = []
    risk: dict[str, list[float]] = {}
    for r in store.records("validation", partition="validation"):
        if r.payload["risk"] is not None:
            risk.setdefault(r.payload["group"], []).append(r.payload["risk"])
    if {"shortlist", "default-reset", "random-shortlist"} <= set(risk):
        own, reset, chance = (
            np.asarray(risk[g]) for g in ("shortlist", "default-reset", "random-shortlist")
        )
        rows.append(says("Found inputs stay riskier than the default reset on held-out seeds",
                         own.mean() > reset[0], f"{own.mean():.0f} against {reset[0]:.0f}",
                         p=sign_test(own - reset[0], alternative="greater").p))  # fmt: skip
        rows.append(says("(ours) and riskier than a random shortlist", own.mean() > chance.mean(),
                         f"{own.mean():.0f} against {chance.mean():.0f}",
                         p=_higher(own, chance)))  # fmt: skip
    found_local = last(store, "persistence")
    if found_local is not None:
        test = found_local["paper"]["top_vs_random"]["test"]
        mine = found_local["default"].get("test")
        for claim, t, why in (
            ("Neighbourhoods of found inputs are riskier than random ones (raw risk)", test,
             "too few anchors"),
            ("(ours) and than matched controls' neighbourhoods", mine,
             found_local["default"].get("reason", "")),
        ):  # fmt: skip
            if t is None:
                rows.append(says(claim, None, why, p=None))
            else:
                gap = t["difference"]
                rows.append(says(claim, gap > 0, f"difference {gap:.0f}", p=t["p"]))
    mpc = [r.payload["progress"] for r in store.records("consequence", group="selected")]
    if mpc:
        c2 = consequence_table(mpc)
        rows.append(says("On found inputs the oracle's ranking beats the model's", c2["gap"] > 0,
                         f"gap {c2['gap']:+.2f} over {c2['cases']} cases",
                         p=c2["oracle_against_model"]["p"]))  # fmt: skip
    return rows


def _higher(first: np.ndarray, second: np.ndarray) -> float | None:
    """p of the exact permutation test that the first group's mean is higher; None below four."""
    try:
        return permutation_test(first, second, alternative="greater").p
    except NotTestable:
        return None


def agreement_table(rows: Sequence[str]) -> str:
    """The rows with their head."""
    return (
        "## What agrees with the paper and what does not\n\n"
        '"agrees" needs the claim\'s direction and a one-sided p of at most 0.05. Inputs share '
        "their seeds, so the p-values of held-out risk are conditional on those seeds.\n\n"
        "| claim | here | from |\n|---|---|---|\n" + "\n".join(rows)
    )


def _whole_cost(store: Store) -> str:
    """What measuring the larger libraries whole would take at the measured unit cost."""
    cost = list(store.records("unit-cost"))
    if not cost:
        return ""
    unit = sum(r.meta["wall_s"] for r in cost) / sum(r.payload["measurements"] for r in cost)
    told = " and ".join(f"{n:,}: {n * 8 * unit / 60:.0f} min" for n in (3510, 12016))
    return (
        "- The larger libraries were searched, not measured whole: on eight seeds and at the unit "
        f"cost above that would take ({told}).\n"
    )


def reductions(store: Store, library: str) -> str:
    """What the records of one library lack of its shipped protocol, and that of the paper's."""
    shipped = load_study(f"pusht-{library}")
    paper = {"576": 96, "3510": 64, "12016": 64}[library]
    restarts = len({r.payload["restart_seed"] for r in store.records("trace")})
    told = [f"{restarts} online restarts (paper: {paper})"]
    for name, part in store.seeds.items():
        whole = len(shipped.seeds.get(name, ()))
        if name in shipped.seeds and len(part) < whole:
            told.append(f"{len(part)} {name} seeds instead of {whole}")
    references = int(store.protocol["checks"]["references"])
    if references < shipped.checks.references:
        told.append(f"{references} random references instead of {shipped.checks.references}")
    cases = {r.payload["group"]: 0 for r in store.records("consequence")}
    for r in store.records("consequence"):
        cases[r.payload["group"]] += 1
    if cases:
        told.append(f"{max(cases.values())} consequence cases a group instead of 32")
    return ", ".join(told)


def _not_run(store: Store) -> str:
    return (
        "# What was not run\n\n"
        f"{_whole_cost(store)}"
        f"- On 576: {reductions(store, '576')}; {len(RESTARTS)} replayed restarts.\n"
        "- Table J.1's own 431 grid, whose coordinates are unpublished.\n"
        "- The paper's rollout is 40 steps; ours ends with the last forecast frame (25), and "
        "activity is summed over the forecast part.\n"
        "- No sensitivity floor: PushT branches by seed and prefix only, so a moved start cannot "
        "be replayed exactly.\n"
        "- One training run of one recipe: nothing here is a claim about LeWM on PushT."
    )
