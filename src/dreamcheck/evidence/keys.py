"""What a measurement is called: the digest of everything that could change its value (law 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any

from dreamcheck.digest import Value, canonical_json, digest, sha256_bytes
from dreamcheck.evidence.record import Record

DEFAULT_RESET = "default-reset"
"""The input id of the control: ``env.reset(seed)`` without options, indexed by its seed."""


def values_text(values: Mapping[str, Any] | None) -> str:
    """An input's typed values in one line; None is the default reset."""
    if values is None:
        return "default reset"
    return ", ".join(
        f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in values.items()
    )


@dataclass(frozen=True, slots=True)
class Interface:
    """One prediction interface: risks are comparable inside it and nowhere else (law 7).

    model: identity digest of the world model.
    task, task_version, package_version: the simulator.
    policy: digest of the policy that continues the rollout.
    rollout_steps, history, horizon: T, H and K of the spec.
    target: what is compared ("position-probe", "pixels", ...); probe: its digest, if it has one.
    discrepancy: how it is compared ("mae-px", "mse", ...).
    model_samples: futures drawn per rollout from a stochastic model; 1 for a deterministic one.
    dtype: of the model's arithmetic.
    algorithm_version: of the measuring code; changes when results change.

    Source: design.md, law 4. Aggregation and penalties are derived, so they are not part of it.
    """

    model: str
    task: str
    task_version: str
    package_version: str
    policy: str
    rollout_steps: int
    history: int
    horizon: int
    target: str
    discrepancy: str
    algorithm_version: str
    probe: str | None = None
    model_samples: int = 1
    dtype: str = "float32"

    @property
    def payload(self) -> dict[str, Any]:
        """The fields as a plain mapping."""
        return asdict(self)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON of the fields; also the record's key."""
        return _interface_digest(self)

    def record(self) -> Record:
        """The interface as a record of kind "interface", which measurements refer to."""
        return Record.make("interface", self.digest, self.payload)

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Interface:
        """The interface a record's payload holds; stamps and other additions are left aside."""
        names = {f.name for f in fields(cls)}
        return cls(**{k: v for k, v in payload.items() if k in names})


@lru_cache(maxsize=256)
def _interface_digest(interface: Interface) -> str:
    return digest(interface.payload)


@lru_cache(maxsize=256)
def _interface_head(interface: Interface) -> str:
    # Canonical JSON sorts names, and "seed" and "values" come apart from the interface's own
    # fields; nesting the interface under one name lets its text be made once.
    return '{"interface":' + canonical_json(interface.payload) + ',"seed":'


def measurement_key(interface: Interface, values: Mapping[str, Value] | None, seed: int) -> str:
    """The key of one input on one environment seed under one interface.

    SHA-256 of the canonical JSON of ``{"interface": {...}, "seed": seed, "values": {...}}``.
    Values keep their types: 1, 1.0 and "1" are three inputs.

    Args:
        interface: where the risk is comparable.
        values: coordinate name -> typed value; None for the default reset.
        seed: environment seed.
    """
    text = f'{_interface_head(interface)}{int(seed)},"values":{canonical_json(values)}}}'
    return sha256_bytes(text.encode("ascii"))
