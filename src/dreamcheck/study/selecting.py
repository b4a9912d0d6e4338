"""Which inputs go to the checks after a search: shortlists, controls, anchors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dreamcheck.discovery.graph import Graph
from dreamcheck.discovery.library import Library
from dreamcheck.evidence import Evaluation, SearchTrace, entry_of
from dreamcheck.streams import stream
from dreamcheck.study.config import Search
from dreamcheck.study.study import Study

PAPER_RANDOM_SEED = 20260601
"""Seed of the paper's random anchors. Source: spec/discovery.md section 4."""


@dataclass(frozen=True)
class Anchors:
    """Anchors of the neighbourhood test, by group; ids."""

    top: tuple[str, ...]
    mid: tuple[str, ...]
    random: tuple[str, ...]


def traces_of(study: Study, search: Search) -> list[SearchTrace]:
    """The finished traces of a search, in the order of commitment."""
    return [
        entry_of(r)
        for r in study.store.records("trace", spec=search.specification, interface=study.interface)
    ]


def evaluations_of(study: Study, search: Search) -> dict[str, Evaluation]:
    """Every evaluated input of a search, by id, in the order of commitment."""
    return {
        e.input: e
        for r in study.store.records(
            "evaluation", spec=search.specification, interface=study.interface
        )
        for e in [entry_of(r)]
    }


def shortlist(traces: Iterable[SearchTrace], *, method: str, size: int) -> list[tuple[str, float]]:
    """The best unique inputs over a method's restarts: (id, largest score), score downwards.

    Repeated ids are merged keeping the largest score; ties by id.
    Source: spec/discovery.md section 4.
    """
    best: dict[str, float] = {}
    for trace in traces:
        if trace.method != method:
            continue
        scores = dict(zip(trace.queries, trace.outcomes, strict=True))
        for i in trace.top:
            score = scores[i]
            if score is not None:
                best[i] = max(score, best.get(i, score))
    return sorted(best.items(), key=lambda item: (-item[1], item[0]))[:size]


def best_of_restarts(
    traces: Iterable[SearchTrace], *, method: str, size: int
) -> list[tuple[str, float]]:
    """The best input of each of a method's restarts: (id, largest score), score downwards.

    Repeated ids are merged keeping the largest score; ties by id. Fewer than ``size`` where the
    restarts found fewer: a group of anchors is never padded.
    Source: spec/discovery.md section 4; the paper's Appendix D.
    """
    return shortlist(capped(traces, 1), method=method, size=size)


def capped(traces: Iterable[SearchTrace], per_restart: int | None) -> list[SearchTrace]:
    """The traces with at most so many inputs of each shortlist; all of them for None."""
    return [t.model_copy(update={"top": t.top[:per_restart]}) for t in traces]


def diverse_shortlist(
    traces: Iterable[SearchTrace], *, method: str, size: int, graph: Graph, library: Library
) -> list[tuple[str, float]]:
    """As ``shortlist``, but one input per basin: (id, largest score), score downwards.

    An input that is one valid replacement away from a better one already listed is the same
    failure seen twice: validating both spends seeds to learn one thing, and their neighbourhoods
    would be one unit. Where too few basins were found, the best passed-over inputs fill up.

    Source: spec/evidence.md sections 3 and 4 (ours; the paper's list is ``shortlist``).
    """
    ranked = shortlist(traces, method=method, size=len(library))
    chosen: list[tuple[str, float]] = []
    covered: set[int] = set()
    passed: list[tuple[str, float]] = []
    for i, score in ranked:
        index = library.index(i)
        if index in covered:
            passed.append((i, score))
            continue
        chosen.append((i, score))
        covered |= {index, *(int(j) for j in graph.replacements(index))}
    chosen = chosen[:size]
    return sorted([*chosen, *passed[: size - len(chosen)]], key=lambda item: (-item[1], item[0]))


def shortlisted(study: Study, search: Search, *, size: int) -> list[tuple[str, float]]:
    """What a search hands to the checks: the paper's list in paper mode, else one per basin.

    No restart hands on more than the protocol's cap.
    """
    traces = capped(traces_of(study, search), study.config.checks.per_restart)
    if study.config.mode == "paper":
        return shortlist(traces, method=search.primary, size=size)
    return diverse_shortlist(
        traces,
        method=search.primary,
        size=size,
        graph=study.graph(search),
        library=study.library(search),
    )


def random_inputs(
    library: Library, *, size: int, root_seed: int, role: str, without: Iterable[str] = ()
) -> list[str]:
    """Inputs drawn uniformly without replacement, none of them in ``without``."""
    excluded = {library.index(i) for i in without}
    order = stream(root_seed, role, library.specification.identity).permutation(len(library))
    chosen = [int(i) for i in order if int(i) not in excluded][:size]
    return library.ids(chosen)


def anchors_of(study: Study, search: Search) -> Anchors:
    """The anchor groups of the neighbourhood test.

    top: in paper mode the best input of each restart of the primary method; in default mode its
        shortlist, one input per basin.
    mid: the central task-active inputs that the search evaluated; a top anchor among them is left
        out, and nobody takes its place.
    random: from the library without the top anchors, the top sets of BasinLens and GP-UCB, and mid.

    Source: spec/discovery.md section 4; the paper's Appendix D.
    """
    size = study.config.checks.anchors
    traces = traces_of(study, search)
    if study.config.mode == "paper":
        top = [i for i, _ in best_of_restarts(traces, method=search.primary, size=size)]
    else:
        top = [i for i, _ in shortlisted(study, search, size=size)]
    evaluated = evaluations_of(study, search)
    asked = dict.fromkeys(i for t in traces for i in t.queries)
    mid = [i for i in central((evaluated[i] for i in asked), size=size) if i not in top]
    tops = [
        i
        for method in ("basinlens", "gp-ucb")
        for i, _ in best_of_restarts(traces, method=method, size=size)
    ]
    drawn = random_anchors(study.library(search), size=size, without=(*top, *tops, *mid))
    return Anchors(top=tuple(top), mid=tuple(mid), random=tuple(drawn))


def central(evaluations: Iterable[Evaluation], *, size: int) -> list[str]:
    """The ``size`` central task-active inputs by score, downwards; equal scores in source order.

    Of an uneven rest the longer half lies below. An input evaluated again counts once, with its
    last score.
    Source: spec/discovery.md section 4; the paper's Appendix D.
    """
    scores = {e.input: e.score for e in evaluations if e.task_active and e.score is not None}
    ranked = sorted(scores, key=lambda i: -scores[i])
    start = max(0, (len(ranked) - size) // 2)
    return ranked[start : start + size]


def random_anchors(library: Library, *, size: int, without: Iterable[str]) -> list[str]:
    """Inputs drawn with the paper's seed without replacement, none of them in ``without``."""
    excluded = {library.index(i) for i in without}
    order = np.random.default_rng(PAPER_RANDOM_SEED).permutation(len(library))
    return library.ids([int(i) for i in order if int(i) not in excluded][:size])


def hardness(e: Evaluation) -> np.ndarray:
    """What makes an input hard for any model, [3]: path and contacts of the real future, and the
    risk of a forecast in which nothing moves.

    Source: spec/evidence.md section 4.
    """
    return np.array(
        [e.activity.get("path", 0.0), e.activity.get("contact", 0.0), e.frozen_risk or 0.0]
    )
