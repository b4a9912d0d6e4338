"""The parts of the PushT page that come from searches alone, and from the menu's explanation."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from dreamcheck.evidence import Evaluation, Store, entry_of, risk_of
from dreamcheck.evidence.diagnoses import KIND
from dreamcheck.reproduce.pusht import (
    MODES,
    SEARCHES,
    agreement_rows,
    agreement_table,
    heldout_part,
    last,
    leads,
    local_part,
    mpc_part,
    paper_folder,
    reductions,
    says,
)
from dreamcheck.stats import first_hit_step, mean_sem, sign_test, win_loss_tie
from dreamcheck.study.activity import ActivityFloors

TOP_SHARE = 0.05
"""The top set of a search: this share of the distinct inputs that any method evaluated."""


def larger_parts(directory: Path, library: str) -> list[str]:
    """The sections of one searched library; a sentence where it was not run."""
    title = f"# The {int(library):,} library, searched"
    if not (directory / "evidence.sqlite").exists():
        return [f"{title}\n\nNot run."]
    with ExitStack() as opened:
        store = opened.enter_context(Store.read(directory))
        if not store.count("trace"):
            return [f"{title}\n\nNot finished."]
        stores = {"paper": store, "default": store}
        own = paper_folder(directory)
        if (own / "evidence.sqlite").exists():
            paper = opened.enter_context(Store.read(own))
            if paper.count("trace") == store.count("trace"):  # finished
                stores["paper"] = paper
        rows = []
        for mode, source in stores.items():
            scores = mode_scores(source)[mode]
            same, p, why = leads(
                "basinlens", {m: _best(source, m, scores).tolist() for m in SEARCHES}
            )
            rows.append(
                says(
                    f"BasinLens finds the worst inputs of the three searches ({mode} mode)",
                    same,
                    why,
                    p=p,
                )
            )
        return [
            f"{title}\n\nReduced: {reductions(store, library)}.",
            _searches(stores),
            heldout_part(store),
            local_part(store),
            mpc_part(store),
            agreement_table(rows + agreement_rows(store)),
        ]


def mode_scores(store: Store) -> dict[str, dict[str, float]]:
    """Per mode, the search score of every input that a study's searches evaluated."""
    found = last(store, "activity-floors")
    assert found is not None
    floors = ActivityFloors(**found["floors"])
    out: dict[str, dict[str, float]] = {mode: {} for mode in MODES}
    for r in store.records("evaluation"):
        e = entry_of(r)
        assert isinstance(e, Evaluation)
        losses = [x for x in e.losses if x is not None]
        if len(losses) < len(e.losses):
            continue
        for mode, statistic in MODES.items():
            risk = risk_of([float(x) for x in losses], statistic.model_dump())
            out[mode][e.input] = risk - floors.penalty(e.activity)
    return out


def _queries(store: Store, method: str) -> list[tuple[str, ...]]:
    rows = [r.payload for r in store.records("trace") if r.payload["method"] == method]
    return [tuple(r["queries"]) for r in sorted(rows, key=lambda r: r["restart_seed"])]


def _best(store: Store, method: str, scores: Mapping[str, float]) -> np.ndarray:
    """Best score of every restart, in the order of their seeds."""
    return np.array(
        [max(scores[i] for i in q if i in scores) for q in _queries(store, method)], float
    )


def _searches(stores: Mapping[str, Store]) -> str:
    """Each mode's table; where both have one store, the queries were chosen in default mode."""
    reread = stores["paper"] is stores["default"]
    out = [
        "## Search (structure of tables E.1-E.5 and F.1)\n\n"
        + (
            "**The queries of both tables are those of default mode's searches: paper mode re-reads "
            "their losses.**"
            if reread
            else "Each mode's searches were steered by its own score."
        )
    ]
    for mode, store in stores.items():
        scores = mode_scores(store)[mode]
        ranked = sorted(scores.values(), reverse=True)
        hundredths = int(np.floor(100 * ranked[max(0, int(len(ranked) * TOP_SHARE) - 1)]))
        cut = hundredths / 100
        rows, best = [], {}
        for method in SEARCHES:
            queries = _queries(store, method)
            best[method] = _best(store, method, scores)
            table = np.array([[scores.get(i, -np.inf) for i in q] for q in queries])
            first = [first_hit_step(q, hundredths, budget=len(q)) for q in table]
            m = mean_sem(best[method])
            spread = f" ± {m.sem.value:.1f}" if len(queries) > 1 else ""
            rows.append(
                f"| {method} | {m.mean:.1f}{spread} | {(table >= cut).any(axis=1).mean():.2f} | "
                f"{np.mean(first):.1f} | {(table >= cut).sum(axis=1).mean():.1f} |"
            )
        tests = []
        for other in ("random", "gp-ucb"):
            gaps = best["basinlens"] - best[other]
            w = win_loss_tie(best["basinlens"], best[other])
            tests.append(
                f"BasinLens against {other}: best p = {sign_test(gaps, alternative='greater').p:.2g}, "
                f"{w.wins}/{w.losses}/{w.ties}"
            )
        lead = max(best, key=lambda n: float(best[n].mean()))
        budget = len(_queries(store, "basinlens")[0])
        out.append(
            f"### {mode} mode\n\n{len(scores)} distinct inputs were evaluated; the top set is the "
            f"best {TOP_SHARE:.0%} of them, at or above {cut:.1f}. Budget {budget}, "
            f"{len(best['basinlens'])} restarts. Leads on mean best: **{lead}**. "
            f"{'; '.join(tests)}.\n\n"
            "| method | best score | hit of the top set | first hit | top inputs found |\n"
            "|---|---|---|---|---|\n" + "\n".join(rows)
        )
    return "\n\n".join(out)


def menu_part(directory: Path) -> str:
    """What `explain` said over the fixed menu, from its record."""
    title = "# Where planning success goes (`explain`, a fixed menu of plans)"
    if not (directory / "evidence.sqlite").exists():
        return f"{title}\n\nNot run."
    with Store.read(directory) as store:
        held: list[dict[str, Any]] = [
            r.payload["result"] for r in store.records(KIND) if r.payload["name"] == "explain"
        ]
    out = [title]
    for r in held:
        rows = [
            f"| {name} | {arm['success']['successes']:g} of {arm['success']['num_cases']} | "
            f"{arm['mean_final_distance']:.1f} |"
            for name, arm in {**r["cells"], **r["controls"]}.items()
        ]
        swaps = ", ".join(f"{s['swap']} +{s['won']}/−{s['lost']}" for s in r["swaps"])
        labels = ", ".join(f"{n} {k}" for k, n in r["label_counts"].items() if n)
        out.append(
            f"{r['label']}, success rule {r['protocol']['success']}; {r['menu']} plans of the weak "
            f"policy an episode, {r['search_factor']} times as many for the larger search; "
            f"{r['num_trivial']} starts were already solved and are left out.\n\n"
            "| planner | goals reached | mean final distance, px |\n|---|---|---|\n"
            + "\n".join(rows)
            + f"\n\nSingle swaps, episodes won and lost: {swaps}. Failed episodes: {labels}. The "
            "oracle is the best plan of the larger menu, random a plan of the menu."
        )
    return "\n\n".join(out)
