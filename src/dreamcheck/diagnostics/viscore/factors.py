"""Which factors a score is made of, and why two scores may not be compared."""

from __future__ import annotations

from collections.abc import Iterable

from dreamcheck.errors import UsageError

NAMES = ("veracity", "influence", "sobriety")
SATURATION = 1.0 - 1e-6


def _named(given: str | Iterable[str], what: str) -> set[str]:
    items = [given] if isinstance(given, str) else list(given)
    found: set[str] = set()
    for item in items:
        word = item.strip().lower()
        if word in NAMES:
            found.add(word)
        elif word and set(word) <= {n[0] for n in NAMES}:
            found |= {n for n in NAMES if n[0] in word}
        else:
            raise UsageError(
                f"{what} names {item!r}; factors are {', '.join(NAMES)}, their initials v, i, s, "
                "or a string of initials such as 'VS'."
            )
    return found


def factor_set(
    *,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
) -> tuple[str, ...]:
    """The factors kept, always in the order veracity, influence, sobriety.

    Args:
        include, exclude: names, initials, or a string of initials; at most one of the two.

    Raises:
        UsageError: an unknown name, both arguments, or no factor left.

    Source: spec/viscore.md section 7.
    """
    if include is not None and exclude is not None:
        raise UsageError("give either include or exclude, not both.")
    kept = set(NAMES)
    if include is not None:
        kept = _named(include, "include")
    if exclude is not None:
        kept = set(NAMES) - _named(exclude, "exclude")
    if not kept:
        raise UsageError("no factor is left; a score needs at least one of " + ", ".join(NAMES))
    return tuple(n for n in NAMES if n in kept)


def label(factors: Iterable[str]) -> str:
    """Initials of the factors in order, e.g. "VIS" or "VI"."""
    return "".join(n[0].upper() for n in factors)
