"""study.toml: the frozen protocol of a study, written for people and hashed."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dreamcheck.digest import digest, plain, sha256_bytes
from dreamcheck.errors import UsageError

FILE = "study.toml"
_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")
_HEAD = (
    "# The frozen protocol of this study. Its SHA-256 is stored in evidence.sqlite:\n"
    "# a study whose protocol was edited is refused. To change it, make another study.\n\n"
)


@dataclass(frozen=True)
class Protocol:
    """A protocol as text and as data.

    text: what study.toml holds. entries: the parsed text without [seeds]. seeds: partition name
    -> environment seeds, pairwise disjoint.
    """

    text: str
    entries: dict[str, Any]
    seeds: dict[str, tuple[int, ...]]

    @property
    def sha256(self) -> str:
        """Of the file's bytes."""
        return sha256_bytes(self.text.encode("utf-8"))

    @property
    def digest(self) -> str:
        """Of what the text says: comments and layout aside."""
        return digest({"protocol": self.entries, "seeds": self.seeds})


def make_protocol(entries: Mapping[str, Any], seeds: Mapping[str, Iterable[int]]) -> Protocol:
    """A protocol from data. Entries that are None are left out, as TOML has no null.

    Raises:
        UsageError: an entry named "seeds", a value TOML cannot hold, or seeds that overlap.
    """
    if "seeds" in entries:
        raise UsageError("the protocol has an entry 'seeds': pass partitions as seeds={...}.")
    partitions = {name: [int(s) for s in values] for name, values in seeds.items()}
    check_disjoint(partitions)
    text = _HEAD + toml_text({**plain(entries), "seeds": partitions})
    return parse_protocol(text, place=FILE)


def parse_protocol(text: str, *, place: str) -> Protocol:
    """The protocol that a study.toml holds; ``place`` is named in errors.

    Raises:
        UsageError: not TOML, no integer seeds, or seeds that overlap.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise UsageError(f"{place} is not valid TOML: {e}.") from e
    seeds = data.pop("seeds", {})
    whole = isinstance(seeds, dict) and all(
        isinstance(v, list) and all(type(s) is int for s in v) for v in seeds.values()
    )
    if not whole:
        raise UsageError(f"{place}: [seeds] must give each partition a list of integers.")
    check_disjoint(seeds)
    return Protocol(text, data, {name: tuple(values) for name, values in seeds.items()})


def check_disjoint(seeds: Mapping[str, Iterable[int]]) -> None:
    """Law 3: no seed in two partitions, none twice in one.

    Raises:
        UsageError: names the seed and both partitions.
    """
    owner: dict[int, str] = {}
    for name, values in seeds.items():
        for seed in values:
            if seed in owner:
                both = (
                    f"is listed twice in partition {name!r}"
                    if owner[seed] == name
                    else f"is in partitions {owner[seed]!r} and {name!r}"
                )
                raise UsageError(
                    f"seed {seed} {both}. Search must never see validation (law 3): give every "
                    "partition its own seeds."
                )
            owner[seed] = name


def differences(left: Mapping[str, Any], right: Mapping[str, Any], *, at: str = "") -> list[str]:
    """Dotted names of the entries in which two protocols differ, sorted."""
    found: list[str] = []
    for name in sorted({*left, *right}):
        a, b = left.get(name), right.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += differences(a, b, at=f"{at}{name}.")
        elif plain(a) != plain(b) or (name in left) != (name in right):
            found.append(f"{at}{name}")
    return found


def toml_text(table: Mapping[str, Any], *, path: tuple[str, ...] = ()) -> str:
    """Plain data as TOML: scalars and lists first, then one section per mapping.

    Raises:
        UsageError: a None inside a list.
    """
    lines = [
        f"{_key(name)} = {_value(value, name)}"
        for name, value in table.items()
        if value is not None and not isinstance(value, Mapping)
    ]
    own = "\n".join(lines) + "\n" if lines else ""
    if path and (lines or not table):
        own = f"[{'.'.join(_key(p) for p in path)}]\n" + own
    sections = [
        toml_text(value, path=(*path, name))
        for name, value in table.items()
        if isinstance(value, Mapping)
    ]
    return "\n".join(part for part in (own, *sections) if part)


def _key(name: str) -> str:
    return name if _BARE.match(name) else _string(name)


def _string(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any, name: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, list):
        return "[" + ", ".join(_value(item, name) for item in value) + "]"
    if isinstance(value, Mapping):
        items = ((k, v) for k, v in value.items() if v is not None)
        return "{" + ", ".join(f"{_key(k)} = {_value(v, k)}" for k, v in items) + "}"
    raise UsageError(f"protocol entry {name!r} holds {value!r}, which TOML cannot: leave it out.")


def protocol_problem(directory: Path, frozen: Protocol) -> str | None:
    """What is wrong with the directory's study.toml against the frozen protocol, or None."""
    path = directory / FILE
    if not path.exists():
        return f"{path} is missing. The frozen text is in evidence.sqlite, table study."
    data = path.read_bytes()
    if sha256_bytes(data) == frozen.sha256:
        return None
    try:
        now = parse_protocol(data.decode("utf-8"), place=str(path))
        names = differences(
            {**frozen.entries, "seeds": frozen.seeds}, {**now.entries, "seeds": now.seeds}
        )
    except (UsageError, UnicodeDecodeError):
        names = []
    told = f"entries {', '.join(names)} differ" if names else "its text differs"
    return (
        f"{path} was changed after the study was made ({told}). A protocol is frozen: restore the "
        "file (its text is in evidence.sqlite, table study), or make another study."
    )
