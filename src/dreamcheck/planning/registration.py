"""Pre-registration: design, list and decision rules, hashed before anything is evaluated."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dreamcheck.digest import digest
from dreamcheck.errors import EvidenceError, GuardRefused, UsageError
from dreamcheck.planning.protocol import Protocol

OUTCOMES = ("better", "worse", "not_established", "control_shows_the_same", "integrity_failure")


@dataclass(frozen=True)
class Registration:
    """A sealed plan (PR1).

    rules: what each outcome licenses, for all five outcomes. list_digest: of the exact cases.
    seal: SHA-256 over everything else, the time included.
    """

    design: str
    primary_test: str
    secondary: tuple[str, ...]
    rules: Mapping[str, str]
    protocol: Mapping[str, Any]
    list_digest: str
    power: Mapping[str, Any] | None
    sealed_at: str
    seal: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def write(self, path: str | Path) -> None:
        """Write the registration; an existing file is never overwritten.

        Raises:
            UsageError: the file exists.
        """
        try:
            with open(path, "x", encoding="utf-8") as f:
                f.write(json.dumps(self.to_dict(), indent=1, sort_keys=True) + "\n")
        except FileExistsError as e:
            raise UsageError(f"{path} exists: a registration is made once, not replaced.") from e


def register(
    *,
    design: str,
    primary_test: str,
    rules: Mapping[str, str],
    protocol: Protocol,
    list_digest: str,
    secondary: Sequence[str] = (),
    power: Mapping[str, Any] | None = None,
    now: datetime | None = None,
) -> Registration:
    """Seal a design before evaluation.

    Args:
        rules: one text per outcome in OUTCOMES.
        list_digest: ``Selection.list_digest`` of the exact cases.

    Raises:
        UsageError: an outcome without a rule, or a rule for no outcome.
    """
    missing, extra = set(OUTCOMES) - set(rules), set(rules) - set(OUTCOMES)
    if missing or extra:
        raise UsageError(
            f"rules: missing {sorted(missing)}, unknown {sorted(extra)}. Every outcome needs its "
            "decision before it is seen."
        )
    sealed_at = (now or datetime.now(UTC)).astimezone(UTC).isoformat()
    body = {
        "design": design,
        "primary_test": primary_test,
        "secondary": list(secondary),
        "rules": dict(rules),
        "protocol": protocol.model_dump(),
        "list_digest": list_digest,
        "power": power,
        "sealed_at": sealed_at,
    }
    return Registration(
        design=design,
        primary_test=primary_test,
        secondary=tuple(secondary),
        rules=dict(rules),
        protocol=protocol.model_dump(),
        list_digest=list_digest,
        power=power,
        sealed_at=sealed_at,
        seal=digest(body),
    )


def read_rules(path: str | Path) -> dict[str, str]:
    """Decision rules from a TOML file with one text per outcome of OUTCOMES.

    Raises:
        UsageError: unreadable, no TOML, or a rule that is no text.
    """
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as e:
        raise UsageError(f"the rules {path} cannot be read: {e.strerror}.") from e
    except tomllib.TOMLDecodeError as e:
        raise UsageError(f"{path} is not TOML: {e}.") from e
    for name, rule in values.items():
        if not isinstance(rule, str) or not rule.strip():
            raise UsageError(
                f"{path}: {name} = {rule!r} is no text; say what the outcome licenses."
            )
    return values


def read_registration(path: str | Path) -> Registration:
    """A registration from disk, its seal checked.

    Raises:
        UsageError: unreadable. EvidenceError: altered after it was sealed.
    """
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        found = Registration(**{**values, "secondary": tuple(values["secondary"])})
    except (OSError, json.JSONDecodeError, TypeError, KeyError) as e:
        raise UsageError(f"the registration {path} cannot be read: {e}.") from e
    check_seal(found)
    return found


def check_seal(registration: Registration) -> None:
    """Refuse a registration whose content no longer has its seal.

    Raises:
        EvidenceError: it was altered.
    """
    body = {k: v for k, v in registration.to_dict().items() if k != "seal"}
    if digest(body) != registration.seal:
        raise EvidenceError(
            f"the registration sealed at {registration.sealed_at} was altered afterwards: its "
            "content no longer has the digest it was sealed with."
        )


def check_registration(
    registration: Registration | None,
    *,
    list_digest: str,
    protocol: Protocol,
    first_result_at: datetime,
) -> None:
    """Allow a primary analysis, or refuse it.

    Raises:
        GuardRefused: no registration, a seal later than the first result, another list or another
            protocol. EvidenceError: the registration was altered.
    """
    if registration is None:
        raise GuardRefused(
            "no registration was sealed before evaluation: results can be reported as exploratory, "
            "not as a primary analysis."
        )
    check_seal(registration)
    if datetime.fromisoformat(registration.sealed_at) >= first_result_at.astimezone(UTC):
        raise GuardRefused(
            f"the registration was sealed at {registration.sealed_at}, not before the first result "
            f"({first_result_at.astimezone(UTC).isoformat()}): this is not a primary analysis."
        )
    if registration.list_digest != list_digest:
        raise GuardRefused(
            f"the evaluated cases ({list_digest[:12]}) are not the registered ones "
            f"({registration.list_digest[:12]})."
        )
    if digest(dict(registration.protocol)) != digest(protocol.model_dump()):
        changed = sorted(
            k for k, v in protocol.model_dump().items() if registration.protocol.get(k) != v
        )
        raise GuardRefused(f"the protocol differs from the registered one in {', '.join(changed)}.")
