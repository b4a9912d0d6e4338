"""A study's searches taken from a search protocol: methods, budget, restarts and seeds by name."""

from __future__ import annotations

from dreamcheck.discovery.protocol import SearchProtocol
from dreamcheck.discovery.specification import get_specification
from dreamcheck.errors import UsageError
from dreamcheck.evidence.protocol import check_disjoint
from dreamcheck.study.config import StudyConfig, study_from


def searched_by(config: StudyConfig, protocol: SearchProtocol) -> StudyConfig:
    """The study with the protocol's searches of its library, and the protocol's seeds.

    Methods, primary method, restart seeds, parameters and the largest budget come from the search
    protocol, and so does every partition of environment seeds and the activity rule that it
    declares; model, task, statistic and checks stay the study's. Searches of other libraries are dropped; a protocol for
    any library keeps them all.

    Raises:
        UsageError: the study searches no such library; restarts with parameters of their own,
            which a study cannot hold; or partitions that overlap, the first seed named.
    """
    if protocol.exceptions:
        raise UsageError(
            f"search protocol {protocol.name!r} gives some restarts other parameters, which one "
            "study cannot hold: run those restarts as a protocol of their own."
        )
    searches = [
        s
        for s in config.searches
        if protocol.specification in (None, get_specification(s.specification).name)
    ]
    if not searches:
        raise UsageError(
            f"search protocol {protocol.name!r} is for the library {protocol.specification!r}; the "
            f"study searches {', '.join(s.specification for s in config.searches)}."
        )
    seeds = {**config.seeds, **protocol.seeds.environment}
    try:
        check_disjoint(seeds)
    except UsageError as e:
        raise UsageError(
            f"the seeds of search protocol {protocol.name!r} meet the study's own: {e}"
        ) from e
    data = config.entries()
    data["searches"] = [
        {
            **s.model_dump(exclude_none=True),
            "methods": protocol.methods,
            "primary": protocol.primary,
            "budget": protocol.budgets[-1],
            "restart_seeds": protocol.seeds.restart,
            "parameters": {m: dict(protocol.parameters) for m in protocol.methods},
            "protocol": protocol.name,
        }
        for s in searches
    ]
    if protocol.activity is not None:
        data["activity"] = protocol.activity
    return study_from({**data, "seeds": seeds}, origin=f"search protocol {protocol.name}")
