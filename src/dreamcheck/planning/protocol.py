"""A planning protocol is a value: one TOML file, every field named, nothing by default elsewhere.

Source: spec/protocol.md section 2.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dreamcheck import presets
from dreamcheck.digest import digest
from dreamcheck.errors import UsageError
from dreamcheck.imagination.perturbations import On, Perturbation
from dreamcheck.planning.solvers import Solver, make_solver
from dreamcheck.planning.space import Driving

PRESETS = "dreamcheck.planning.presets"
PLANNER_STREAMS = 3

ALIASES = {
    "repo_config": "lewm-repo",
    "appendix_f1": "lewm-paper",
    "reference_script": "reference-script",
}
"""Names of spec/protocol.md P17 for presets."""


class SolverSettings(BaseModel):
    """The solver's name and its settings."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str = "cem"

    def build(self) -> Solver:
        """The solver.

        Raises:
            UsageError: an unknown name or setting, named.
        """
        return make_solver(self.name, **(self.model_extra or {}))


class FreshPolicy(BaseModel):
    """Episodes generated now, by a policy in the simulator: certainly unseen in training.

    policy: one of the task's: "exploratory", "goal-seeking", "random"; on PushT "weak" or
    "random". num_episodes, length: how many, and frames
    of each. Environment seeds are the protocol's seed + 1,000,000 + episode.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    policy: Literal["exploratory", "goal-seeking", "random", "weak"] = "exploratory"
    num_episodes: int = Field(default=200, ge=1)
    length: int = Field(default=101, ge=2)


class Seen(BaseModel):
    """What happens to the images before the planner sees them; see ``Perturbation``.

    name, severity: which perturbation. on: "history" (what is observed; the goal image stays
    clean, as in the paper) or "camera" (the goal image too). draw: which independent draw.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    severity: float
    on: On = "history"
    draw: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _known(self) -> Seen:
        try:
            self.build()
        except UsageError as e:
            raise ValueError(str(e)) from e
        return self

    def build(self) -> Perturbation:
        """The perturbation."""
        return Perturbation(self.name, self.severity, self.on, self.draw)


class Protocol(BaseModel):
    """Everything that decides a success rate beside the checkpoint (P1).

    goal_rule, offset, max_offset_variant: "fixed_offset": the state ``offset`` frames later.
        "recorded_target": the target recorded at the start frame. "max_offset": at most ``offset``
        later, the gap clipped at the episode's end or drawn uniformly.
    start_rule: "frame0"; "sampled" (all legal starts); "sampled_legacy" (never the last, as the
        release); "sampled_rows" (rows of all episodes, as the reference); "fresh_policy" (episodes
        generated now, then sampled).
    rows_population: of sampled_rows: "all", or "all_but_last" (the 2026-03 script).
    episode_filter: on the recorded terminated flag at the last frame.
    episode_list: path of a committed list (JSON); its offset must agree.
    num_eval: episodes drawn (the whole list where one is committed).
    budget_steps: environment steps.
    horizon, receding, block: planned actions per plan, executed before the next plan, and
        environment steps per planned action.
    planner_action_space, driving: what a candidate is and how it reaches the model.
    context_init: "single": the current frame only. "grow": one frame, then those seen. "repeat":
        copies of the start frame with resting actions between. "history": the recorded frames
        before the start.
    rest_start: the start has no velocity, where the task has any; else velocities are restored.
    success: name of a rule of the task's criteria. success_radius: overrides its tolerance.
    stop: "success": an episode ends when the rule is fulfilled; "budget": it always runs on.
    collision: "native", or "swept": the task under legal physics.
    rng_mode: "per_episode", or "shared": one generator draws everything in order, as the release.
    streams: planner streams averaged inside an episode.
    perturbation: of the images that the planner observes, e.g. {name = "gaussian", severity =
        0.05}; none by default. The simulator, its success test and the planner's random numbers
        stay as they are.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    task: str = "tworoom"
    note: str = ""
    goal_rule: Literal["fixed_offset", "recorded_target", "max_offset"] = "fixed_offset"
    offset: int | None = Field(default=None, ge=1)
    max_offset_variant: Literal["clip", "uniform"] = "clip"
    start_rule: Literal["frame0", "sampled", "sampled_legacy", "sampled_rows", "fresh_policy"] = (
        "frame0"
    )
    rows_population: Literal["all", "all_but_last"] = "all"
    episode_filter: Literal["none", "policy_solved", "policy_timeout"] = "none"
    episode_list: str | None = None
    fresh: FreshPolicy = FreshPolicy()
    num_eval: int = Field(default=50, ge=1)
    budget_steps: int = Field(ge=1)
    horizon: int = Field(default=5, ge=1)
    receding: int = Field(default=5, ge=1)
    block: int = Field(default=5, ge=1)
    solver: SolverSettings = SolverSettings()
    planner_action_space: Literal["held", "dense_normalised"] = "dense_normalised"
    driving: Driving = Driving()
    context_init: Literal["single", "repeat", "grow", "history"] = "grow"
    rest_start: bool = False
    success: str = "native"
    success_radius: float | None = Field(default=None, gt=0)
    stop: Literal["success", "budget"] = "success"
    collision: Literal["native", "swept"] = "native"
    seed: int = Field(default=42, ge=0)
    rng_mode: Literal["per_episode", "shared"] = "per_episode"
    streams: int = Field(default=PLANNER_STREAMS, ge=1)
    perturbation: Seen | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Protocol:
        if (self.goal_rule != "recorded_target") != (self.offset is not None):
            raise ValueError(
                "offset: give it for fixed_offset and max_offset, and only for them; goal_rule is "
                f"{self.goal_rule}"
            )
        if self.receding > self.horizon:
            raise ValueError(
                f"receding: {self.receding} planned actions cannot be executed of a plan of "
                f"horizon {self.horizon}"
            )
        if self.episode_list is not None and self.start_rule != "frame0":
            # P6: a committed list fixes the start.
            raise ValueError(
                f"episode_list: a committed list starts at frame 0; start_rule is {self.start_rule}"
            )
        if self.episode_list is not None and self.context_init == "history":
            raise ValueError(
                "episode_list: a committed list starts at frame 0, where no recorded frame lies "
                "before it; context_init = history needs some. Use grow or repeat"
            )
        if self.rng_mode == "shared" and self.streams != 1:
            raise ValueError("streams: rng_mode = shared has one generator, so streams must be 1")
        self.solver.build()
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of every field but the note."""
        left_out = {"note"} if self.perturbation is not None else {"note", "perturbation"}
        return digest(self.model_dump(exclude=left_out))

    @property
    def label(self) -> str:
        """Goal rule, offset, budget and any perturbation: what stands next to every rate (P3)."""
        if self.goal_rule == "recorded_target":
            goal = "recorded target"
        elif self.goal_rule == "fixed_offset":
            goal = f"offset {self.offset}"
        else:
            goal = f"offset up to {self.offset} ({self.max_offset_variant})"
        seen = "" if self.perturbation is None else f", {self.perturbation.build().label}"
        return f"{goal} / budget {self.budget_steps}{seen}"

    def replace(self, **changes: Any) -> Protocol:
        """A copy with fields changed, validated again.

        Raises:
            UsageError: an unknown field or a value out of range, named.
        """
        return protocol_from({**self.model_dump(), **changes}, where=f"protocol {self.name}")


def protocol_from(values: Mapping[str, Any], *, where: str) -> Protocol:
    """A protocol from plain values.

    Raises:
        UsageError: an unknown or missing field or a value out of range, named.
    """
    return presets.model_from(Protocol, values, origin=where, whole="protocol")


def read_protocol(path: str | Path) -> Protocol:
    """A protocol from a TOML file; ``episode_list`` is taken relative to the file.

    Raises:
        UsageError: no such file, no TOML, an unknown or missing field, a value out of range.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as e:
        raise UsageError(f"the protocol {path} cannot be read: {e.strerror}.") from e
    values = presets.parse_toml(text, origin=str(path))
    listed = values.get("episode_list")
    if isinstance(listed, str) and not Path(listed).is_absolute():
        values["episode_list"] = str(path.parent / listed)
    return protocol_from({"name": path.stem, **values}, where=str(path))


def preset_names() -> tuple[str, ...]:
    """Protocols that come with Dreamcheck."""
    return presets.preset_names(PRESETS)


def load_protocol(name: str | Path) -> Protocol:
    """A preset by name, or a protocol file by path.

    Raises:
        UsageError: neither, or a field that cannot be used, named.
    """
    name = ALIASES.get(str(name), str(name))
    if name not in preset_names() and Path(name).exists():
        return read_protocol(name)
    text, origin = presets.preset_text(PRESETS, name, kind="planning protocol")
    values = presets.parse_toml(text, origin=origin)
    return protocol_from({"name": name, **values}, where=origin)


def protocol_text(name: str | Path) -> str:
    """A protocol's TOML as it is written, comments included.

    Raises:
        UsageError: neither a preset nor a readable file, or one that is no protocol.
    """
    load_protocol(name)
    name = ALIASES.get(str(name), str(name))
    if name not in preset_names() and Path(name).exists():
        return Path(name).read_text(encoding="utf-8")
    return presets.preset_text(PRESETS, name, kind="planning protocol")[0]


def changed(protocol: Protocol, changes: Sequence[str]) -> Protocol:
    """The protocol with fields set from texts such as "collision=swept", "solver.iterations=10".

    A value is read as TOML where it is TOML, else as text.

    Raises:
        UsageError: a change without "=", an unknown field, or a value out of range, named.
    """
    if not changes:
        return protocol
    values = protocol.model_dump()
    for change in changes:
        path, equals, text = change.partition("=")
        if not equals or not path.strip():
            raise UsageError(f"--set {change!r} is not FIELD=VALUE, e.g. collision=swept.")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        parts = path.strip().split(".")
        place = values
        for part in parts[:-1]:
            place = place.get(part) if isinstance(place, dict) else None  # type: ignore[assignment]
            if not isinstance(place, dict):
                raise UsageError(f"--set {change!r}: the protocol has no table {part!r}.")
        place[parts[-1]] = value
    return protocol_from(values, where="--set " + ", ".join(changes))
