"""One sealed record: a kind, a key, a canonical payload, and the digests that guard them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dreamcheck.digest import plain, sha256_bytes
from dreamcheck.errors import UsageError

_KIND = re.compile(r"[a-z][a-z0-9-]*\Z")
_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
).encode
_quote = json.encoder.encode_basestring_ascii


@dataclass(frozen=True)
class Record:
    """A record as it lies in the store.

    kind: "measurement", "evaluation", "finding", ...; lower case and hyphens.
    key: unique inside its kind.
    text: canonical JSON of the payload.
    digest: SHA-256 of the canonical JSON of {"key", "kind", "payload"}.
    fields: eight hexadecimal digits of SHA-256 per payload field in order of name, so that an
        altered record can say which field was altered.
    meta: wall time, host, process: kept beside the record, never digested.
    seq, chain: its place in the store, None before it is committed.
    """

    kind: str
    key: str
    text: str
    digest: str
    fields: str
    meta: Mapping[str, Any] = field(default_factory=dict, compare=False)
    seq: int | None = field(default=None, compare=False)
    chain: str | None = field(default=None, compare=False)

    @classmethod
    def make(
        cls,
        kind: str,
        key: str,
        payload: Mapping[str, Any],
        *,
        meta: Mapping[str, Any] | None = None,
    ) -> Record:
        """Seal a payload of JSON-ready values (NumPy scalars and arrays, tuples and None allowed).

        Raises:
            UsageError: a kind that is not lower-case words, an empty key, a value without JSON form.
        """
        if not _KIND.match(kind):
            raise UsageError(f"record kind {kind!r}: use lower-case letters, digits and hyphens.")
        if not key:
            raise UsageError(f"a {kind} record has an empty key.")
        try:
            ready = plain(payload)
        except TypeError as e:
            raise UsageError(
                f"{kind} {key}: {e}. Records hold JSON; put arrays in artifacts."
            ) from e
        text, digest, fields = seal(kind, key, ready)
        made = cls(kind, key, text, digest, fields, dict(meta or {}))
        made.__dict__["payload"] = ready  # what parsing the text would give
        return made

    @classmethod
    def of_builtins(
        cls, kind: str, key: str, payload: Mapping[str, Any], meta: Mapping[str, Any] | None
    ) -> Record:
        """As ``make``, for builtins without -0.0: spares the walk over every value."""
        try:
            text, digest, fields = seal(kind, key, payload)
        except ValueError:  # a NaN or infinity needs its spelling
            return cls.make(kind, key, payload, meta=meta)
        return cls(kind, key, text, digest, fields, dict(meta or {}))

    @cached_property
    def payload(self) -> dict[str, Any]:
        """The payload, parsed once. Non-finite floats are the strings "nan", "inf", "-inf"."""
        return json.loads(self.text)

    def at(self, path: str) -> Any:
        """The value at a dotted path ("activity.contacts", "losses.0"), None where it is absent."""
        return at_path(self.payload, path)


def seal(kind: str, key: str, payload: Mapping[str, Any]) -> tuple[str, str, str]:
    """(canonical payload text, record digest, field digests) of a plain payload."""
    texts = [(name, _value_text(payload[name])) for name in sorted(payload)]
    text = "{" + ",".join(f"{_quote(name)}:{value}" for name, value in texts) + "}"
    fields = "".join(sha256_bytes(value.encode("ascii"))[:8] for _, value in texts)
    return text, digest_of(kind, key, text), fields


def digest_of(kind: str, key: str, text: str) -> str:
    """A record's digest from its canonical payload text."""
    whole = f'{{"key":{_quote(key)},"kind":{_quote(kind)},"payload":{text}}}'
    return sha256_bytes(whole.encode("utf-8"))


def chain_of(previous: str, digest: str) -> str:
    """The chained digest: SHA-256 of the previous record's chain followed by this digest."""
    return sha256_bytes((previous + digest).encode("ascii"))


def altered_fields(payload: Mapping[str, Any], fields: str) -> list[str]:
    """Names of payload fields whose value no longer has its stored digest.

    When fields were added or removed the digests cannot be lined up: the list is empty.
    """
    names = sorted(payload)
    if len(fields) != 8 * len(names):
        return []
    now = seal("x", "x", payload)[2]
    return [n for i, n in enumerate(names) if now[8 * i : 8 * i + 8] != fields[8 * i : 8 * i + 8]]


def at_path(payload: Any, path: str) -> Any:
    """The value at a dotted path of names and list positions; None where it is absent."""
    value = payload
    for part in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, (list, tuple)) and part.lstrip("-").isdigit():
            position = int(part)
            value = value[position] if -len(value) <= position < len(value) else None
        else:
            return None
    return value


def leaves(value: Any) -> Iterator[Any]:
    """The scalars of a nested list, in order; a scalar is its own only leaf."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def _value_text(value: Any) -> str:
    # The plain scalars make up most fields; the encoder object is slow to start for each.
    if value is None:
        return "null"
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("a non-finite float has no JSON form")
        return float.__repr__(value)
    return _encode(value)
