"""The protocol of a discovery study, as data: what study.toml freezes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dreamcheck import presets
from dreamcheck.errors import UsageError
from dreamcheck.evidence import Statistic
from dreamcheck.evidence.protocol import check_disjoint
from dreamcheck.stats.decision import MINIMUM_SEEDS

PRESETS = "dreamcheck.study.presets"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Search(_Part):
    """Searches over one input specification.

    role: "inside" searches the training distribution; "outside" deliberately leaves it, and its
        findings never make a headline.
    methods: run side by side on the same scouts and stored measurements.
    primary: the method whose shortlist is validated.
    restart_seeds: one search per seed and method.
    parameters: method -> {"preset": a named column, or single fields}.
    neighbourhoods: whether findings are tested for persistence.
    protocol: the search protocol that methods, budget and restarts were taken from, if any.
    """

    specification: str
    role: Literal["inside", "outside"] = "inside"
    methods: tuple[str, ...] = ("random", "gp-ucb", "basinlens")
    primary: str = "basinlens"
    budget: int = Field(gt=0)
    restart_seeds: tuple[int, ...] = Field(min_length=1)
    parameters: dict[str, dict[str, Any]] = Field(default_factory=dict)
    neighbourhoods: bool = True
    protocol: str | None = None

    @model_validator(mode="after")
    def _primary_runs(self) -> Search:
        if self.primary not in self.methods:
            raise ValueError(f"primary = {self.primary!r} is not among methods {self.methods}")
        if len(set(self.restart_seeds)) != len(self.restart_seeds):
            raise ValueError(f"restart_seeds repeat: {list(self.restart_seeds)}")
        return self


class Checks(_Part):
    """What happens after the search.

    top_k: shortlisted inputs, and as many random ones beside them.
    per_restart: the most inputs that one restart hands on for validation (the paper's per-run
        cap); all that its trace keeps where it is not given.
    references: random inputs that a finding must stand out from.
    validation_steps: seeds used for a first verdict, then for inconclusive ones, growing; the
        last is the declared cap.
    anchors: per group of the neighbourhood test; 0 leaves it out.
    strips: inputs of each specification that get a film strip.
    shell_radius, shell_size: graph distance up to which a basin is measured, and inputs drawn at
        each distance (default 4 and 8); shell_size 0 leaves basins out.
    edit_budget: inputs evaluated to find the smallest change that makes the nominal input fail
        (default 128); 0 leaves it out.
    """

    top_k: int = Field(default=8, gt=0)
    references: int = Field(default=64, gt=0)
    validation_steps: tuple[int, ...] = (16,)
    anchors: int = Field(default=8, ge=0)
    strips: int = Field(default=3, ge=0)
    # None, not the default itself: a protocol that was frozen before these existed stays equal.
    per_restart: int | None = Field(default=None, ge=1)
    shell_radius: int | None = Field(default=None, ge=1)
    shell_size: int | None = Field(default=None, ge=0)
    edit_budget: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _steps_grow(self) -> Checks:
        steps = self.validation_steps
        if not steps or list(steps) != sorted(set(steps)):
            raise ValueError(f"validation_steps = {list(steps)} must be strictly increasing")
        return self


class Policy(_Part):
    """The fixed rollout policy: a name the task knows, and its parameters."""

    name: str
    parameters: dict[str, float] = Field(default_factory=dict)


Choice = Literal["exhaustive", "sample-and-search", "search-with-random-arm"]


class SearchPlan(_Part):
    """What the allowed time buys for one search.

    inputs: size of the library. sample: inputs evaluated in a random order, all of them when
        ``choice`` is "exhaustive". budget: queries of each method. expected_s: what that takes.
    """

    specification: str
    inputs: int = Field(ge=1)
    choice: Choice
    reason: str
    sample: int = Field(ge=1)
    budget: int = Field(ge=1)
    expected_s: float = Field(ge=0)


class TimePlan(_Part):
    """How ``--time`` was spent, decided once from measured costs and frozen with the study.

    allowed_s: what the user allowed for everything. checks_s: set aside for what follows the
        searches. batched_s, single_s: wall seconds to evaluate one input on the search seeds, in
        full batches and alone; measured on ``timed_inputs`` inputs.
    """

    allowed_s: float = Field(gt=0)
    checks_s: float = Field(ge=0)
    batched_s: float = Field(gt=0)
    single_s: float = Field(gt=0)
    timed_inputs: int = Field(ge=1)
    searches: tuple[SearchPlan, ...]


class StudyConfig(_Part):
    """Everything a discovery study fixes before it runs.

    model: a checkpoint folder, a shipped name, or package.module:factory.
    history, forecast: H observed and K predicted model frames; history 0 takes the model's own.
    seeds: partition -> environment seeds; "search", "validation", "neighbourhood", and where
        what was selected again among validated inputs is measured afresh, "reselection".
    siblings: other checkpoints of the family, measured on the same validation seeds.
    mode: "default", or "paper" for the paper's own estimators and tests.
    activity: "pusht" subtracts 20 x the activity violation from search scores, with floors from
        the default reset on the search seeds; "dino-pusht" subtracts 2 below fixed floors; None (or
        "none") scores the risk itself.
    time: how an allowed time was shared out; None where budgets were given as numbers.
    """

    title: str
    model: str
    task: str
    policy: Policy
    target: Literal["state_probe", "latent", "pixels"] = "state_probe"
    discrepancy: Literal["mae", "mse"] = "mae"
    step_rule: Literal["mean", "final"] = "mean"
    history: int = Field(default=0, ge=0)
    forecast: int = Field(gt=0)
    statistic: Statistic = Statistic(name="cvar", alpha=0.4, estimator="fractional")
    floor_samples: int = Field(default=4, ge=0)
    root_seed: int = Field(default=0, ge=0)
    mode: Literal["default", "paper"] = "default"
    activity: Literal["none", "pusht", "dino-pusht"] | None = None
    searches: tuple[Search, ...] = Field(min_length=1)
    checks: Checks = Checks()
    seeds: dict[str, tuple[int, ...]]
    siblings: tuple[str, ...] | None = None
    time: TimePlan | None = None

    @model_validator(mode="after")
    def _siblings_differ(self) -> StudyConfig:
        names = [self.model, *(self.siblings or ())]
        repeated = next((n for n in names if names.count(n) > 1), None)
        if repeated is not None:
            raise ValueError(
                f"checkpoint {repeated!r} is named twice: siblings are other checkpoints than the "
                "tested one, each once"
            )
        return self

    @model_validator(mode="after")
    def _seeds_suffice(self) -> StudyConfig:
        for name in ("search", "validation", "neighbourhood"):
            if not self.seeds.get(name):
                raise ValueError(f"seeds.{name} is missing or empty")
        cap = self.checks.validation_steps[-1]
        if len(self.seeds["validation"]) < cap:
            raise ValueError(
                f"validation_steps end at {cap} but seeds.validation holds only "
                f"{len(self.seeds['validation'])} seeds"
            )
        fresh = self.seeds.get("reselection")
        if fresh is not None and len(fresh) < MINIMUM_SEEDS:
            raise ValueError(
                f"seeds.reselection holds {len(fresh)} seeds; a verdict needs {MINIMUM_SEEDS}"
            )
        try:
            check_disjoint(self.seeds)
        except UsageError as e:
            raise ValueError(f"seeds: {str(e).removesuffix('.')}") from e
        names = [s.specification for s in self.searches]
        if len(set(names)) != len(names):
            raise ValueError(f"a specification is searched twice: {names}")
        return self

    def entries(self) -> dict[str, Any]:
        """The protocol without its seeds, as study.toml holds it."""
        return self.model_dump(mode="json", exclude={"seeds"}, exclude_none=True)


def study_from(data: Mapping[str, Any], *, origin: str = "the study") -> StudyConfig:
    """A study's protocol from plain data, with errors that name the field.

    Raises:
        UsageError: a field is missing, unknown or out of its domain.
    """
    return presets.model_from(StudyConfig, data, origin=origin, whole="protocol")


def preset_names() -> tuple[str, ...]:
    """Names of the study protocols that ship."""
    return presets.preset_names(PRESETS)


def load_study(name: str, **overrides: Any) -> StudyConfig:
    """A shipped protocol, or the one in a TOML file; ``overrides`` replace top-level fields.

    Raises:
        UsageError: no such name or file, or a bad field.
    """
    text, origin = presets.preset_text(PRESETS, name, kind="study protocol")
    data = presets.parse_toml(text, origin=origin)
    return study_from(
        {**data, **{k: v for k, v in overrides.items() if v is not None}}, origin=name
    )


def narrowed(
    config: StudyConfig,
    *,
    specifications: Sequence[str] | None = None,
    budget: int | None = None,
) -> StudyConfig:
    """The protocol with fewer searches, or another budget for each.

    Raises:
        UsageError: a specification that the protocol does not search.
    """
    searches = config.searches
    if specifications:
        known = [s.specification for s in searches]
        for name in specifications:
            if name not in known:
                raise UsageError(
                    f"the protocol does not search {name!r}; it searches {', '.join(known)}. "
                    "Write a protocol of your own as a TOML file to search another one."
                )
        searches = tuple(s for s in searches if s.specification in specifications)
    if budget is not None:
        searches = tuple(s.model_copy(update={"budget": budget}) for s in searches)
    return config.model_copy(update={"searches": searches})
