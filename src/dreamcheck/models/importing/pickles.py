"""Pickle streams read as data: an interpreter that builds containers and imports nothing (law 10).

No module of the standard library's pickle is involved. A name stays a name, a call is one of
``records.CALLS`` or inert, and every instruction does a bounded amount of work.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dreamcheck.errors import CheckpointError
from dreamcheck.models.importing.records import (
    CALLS,
    WAY_OUT,
    Name,
    Record,
    Refused,
    TensorSpec,
    call,
    checked_name,
    plain_key,
)

MAX_OPERATIONS = 20_000_000


class _Mark:
    __slots__ = ()


_MARK = _Mark()


class Interpreter:
    """One run over a stream. ``run`` returns the object; ``position`` is where the stream ended."""

    def __init__(self, data: bytes, *, persistent: Callable[[Any], Any], start: int = 0) -> None:
        self.data = data
        self.copied = 0
        self.position = start
        self.persistent = persistent
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.names: set[str] = set()

    def _take(self, n: int) -> bytes:
        end = self.position + n
        if n < 0 or end > len(self.data):
            raise Refused("more bytes than the file has (it is truncated or damaged)")
        out = self.data[self.position : end]
        self.position = end
        return out

    def _number(self, layout: str) -> Any:
        return struct.unpack(layout, self._take(struct.calcsize(layout)))[0]

    def _line_bytes(self) -> bytes:
        end = self.data.find(b"\n", self.position, self.position + 10_000)
        if end < 0:
            raise Refused("a text line without an end")
        line = self.data[self.position : end]
        self.position = end + 1
        return line

    def _line(self) -> str:
        return self._line_bytes().decode("utf-8")

    def _since_mark(self) -> list[Any]:
        for i in range(len(self.stack) - 1, -1, -1):
            if self.stack[i] is _MARK:
                items = self.stack[i + 1 :]
                del self.stack[i:]
                return items
        raise Refused("a list without a beginning")

    def _pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise Refused("a value that was never given")
        return self.stack.pop()

    def _top(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise Refused("a value that was never given")
        return self.stack[-1]

    def _set_items(self, target: Any, items: list[Any]) -> None:
        if len(items) % 2:
            raise Refused("a dictionary entry without a value")
        if isinstance(target, dict):
            for i in range(0, len(items), 2):
                target[plain_key(items[i])] = items[i + 1]
        elif isinstance(target, Record):
            target.items.extend((items[i], items[i + 1]) for i in range(0, len(items), 2))
        else:
            raise Refused(f"to set entries of a {type(target).__name__}")

    def _extend(self, target: Any, items: list[Any]) -> None:
        if isinstance(target, list):
            target.extend(items)
        elif isinstance(target, Record):
            target.items.extend(items)
        else:
            raise Refused(f"to extend a {type(target).__name__}")

    def _global(self, module: Any, name: Any) -> Name:
        found = checked_name(module, name)
        self.names.add(str(found))
        return found

    def _reduce(self) -> None:
        args, function = self._pop(), self._pop()
        if not isinstance(function, Name) or not isinstance(args, tuple):
            raise Refused(f"to call a {type(function).__name__}")
        result = call(function, args)
        if isinstance(result, bytes):
            self.copied += len(result)
            if self.copied > 2 * len(self.data):
                raise Refused("the same bytes over and over")
        self.stack.append(result)

    def _new(self, cls: Any, args: Any) -> None:
        if not isinstance(cls, Name) or not isinstance(args, tuple):
            raise Refused("an object without a class")
        plain = CALLS.get(str(cls))
        self.stack.append(plain(args) if plain else Record(str(cls), args))

    def _build(self) -> None:
        state, target = self._pop(), self._top()
        if isinstance(target, Record):
            target.state = state
        elif not isinstance(target, (dict, list, TensorSpec)):
            raise Refused(f"to set the state of a {type(target).__name__}")
        # A plain container's state (state_dict's _metadata) holds no tensor; it is left out.

    def run(self) -> Any:
        """The object the stream describes."""
        for _ in range(MAX_OPERATIONS):
            op = self._take(1)
            if op == b".":
                return self._pop()
            handler = _HANDLERS.get(op)
            if handler is None:
                raise Refused(f"the pickle instruction {op!r}, which is not read")
            handler(self)
        raise Refused(f"more than {MAX_OPERATIONS} instructions")

    def _get(self, index: int) -> None:
        if index not in self.memo:
            raise Refused(f"memory cell {index}, which was never filled")
        self.stack.append(self.memo[index])

    def _put(self, index: int) -> None:
        if index < 0:
            raise Refused("a negative memory cell")
        self.memo[index] = self._top()

    def _string(self, raw: bytes) -> None:
        # Python 2 strings: latin1 maps every byte to one character.
        self.stack.append(raw.decode("latin1"))

    def _quoted(self) -> None:
        line = self._line()
        if len(line) < 2 or line[0] not in "'\"" or line[0] != line[-1] or "\\" in line:
            raise Refused("a malformed string")
        self.stack.append(line[1:-1])

    def _integer(self) -> None:
        line = self._line().rstrip("L")
        if len(line) > 400:
            raise Refused("an absurdly long number")
        self.stack.append({"00": False, "01": True}[line] if line in ("00", "01") else int(line))

    def _long(self, size: int) -> None:
        if size > 64:
            raise Refused(f"a whole number of {size} bytes")
        self.stack.append(int.from_bytes(self._take(size), "little", signed=True))

    def _tuple(self, n: int) -> None:
        items = [self._pop() for _ in range(n)][::-1]
        self.stack.append(tuple(items))


def _push(value: Callable[[], Any]) -> Callable[[Interpreter], None]:
    return lambda m: m.stack.append(value())


def _two(m: Interpreter) -> list[Any]:
    value, key = m._pop(), m._pop()
    return [key, value]


def _setitem(m: Interpreter) -> None:
    pair = _two(m)
    m._set_items(m._top(), pair)


def _setitems(m: Interpreter) -> None:
    items = m._since_mark()
    m._set_items(m._top(), items)


def _append(m: Interpreter) -> None:
    item = m._pop()
    m._extend(m._top(), [item])


def _appends(m: Interpreter) -> None:
    items = m._since_mark()
    m._extend(m._top(), items)


def _dict(m: Interpreter) -> None:
    target: dict[Any, Any] = {}
    m._set_items(target, m._since_mark())
    m.stack.append(target)


def _stack_global(m: Interpreter) -> None:
    name, module = m._pop(), m._pop()
    m.stack.append(m._global(module, name))


def _inst(m: Interpreter) -> None:
    module, name = m._line(), m._line()
    m._new(m._global(module, name), tuple(m._since_mark()))


def _obj(m: Interpreter) -> None:
    items = m._since_mark()
    if not items:
        raise Refused("an object without a class")
    m._new(items[0], tuple(items[1:]))


def _newobj(m: Interpreter) -> None:
    args, cls = m._pop(), m._pop()
    m._new(cls, args)


def _newobj_ex(m: Interpreter) -> None:
    kwargs, args, cls = m._pop(), m._pop(), m._pop()
    if not isinstance(kwargs, dict):
        raise Refused("a malformed object")
    m._new(cls, args)


def _binpersid(m: Interpreter) -> None:
    m.stack.append(m.persistent(m._pop()))


def _pop_any(m: Interpreter) -> None:
    if not m.stack:
        raise Refused("a value that was never given")
    m.stack.pop()


_HANDLERS: Mapping[bytes, Callable[[Interpreter], Any]] = {
    b"\x80": lambda m: m._take(1),  # PROTO
    b"\x95": lambda m: m._take(8),  # FRAME: a hint about reading ahead
    b"(": lambda m: m.stack.append(_MARK),
    b"0": _pop_any,
    b"1": lambda m: m._since_mark() and None,
    b"2": lambda m: m.stack.append(m._top()),
    b"N": _push(lambda: None),
    b"\x88": _push(lambda: True),
    b"\x89": _push(lambda: False),
    b"I": Interpreter._integer,
    b"L": Interpreter._integer,
    b"J": lambda m: m.stack.append(m._number("<i")),
    b"K": lambda m: m.stack.append(m._number("<B")),
    b"M": lambda m: m.stack.append(m._number("<H")),
    b"\x8a": lambda m: m._long(m._number("<B")),
    b"\x8b": lambda m: m._long(m._number("<i")),
    b"F": lambda m: m.stack.append(float(m._line())),
    b"G": lambda m: m.stack.append(m._number(">d")),
    b"S": Interpreter._quoted,
    b"T": lambda m: m._string(m._take(m._number("<i"))),
    b"U": lambda m: m._string(m._take(m._number("<B"))),
    b"V": lambda m: m.stack.append(m._line_bytes().decode("raw-unicode-escape")),
    b"X": lambda m: m.stack.append(m._take(m._number("<I")).decode("utf-8", "surrogatepass")),
    b"\x8c": lambda m: m.stack.append(m._take(m._number("<B")).decode("utf-8", "surrogatepass")),
    b"\x8d": lambda m: m.stack.append(m._take(m._number("<Q")).decode("utf-8", "surrogatepass")),
    b"B": lambda m: m.stack.append(m._take(m._number("<I"))),
    b"C": lambda m: m.stack.append(m._take(m._number("<B"))),
    b"\x8e": lambda m: m.stack.append(m._take(m._number("<Q"))),
    b"\x96": lambda m: m.stack.append(m._take(m._number("<Q"))),
    b"]": _push(list),
    b"a": _append,
    b"e": _appends,
    b"l": lambda m: m.stack.append(m._since_mark()),
    b")": _push(tuple),
    b"t": lambda m: m.stack.append(tuple(m._since_mark())),
    b"\x85": lambda m: m._tuple(1),
    b"\x86": lambda m: m._tuple(2),
    b"\x87": lambda m: m._tuple(3),
    b"}": _push(dict),
    b"d": _dict,
    b"s": _setitem,
    b"u": _setitems,
    b"\x8f": _push(list),  # EMPTY_SET, kept as a list
    b"\x90": _appends,  # ADDITEMS
    b"\x91": lambda m: m.stack.append(m._since_mark()),  # FROZENSET
    b"g": lambda m: m._get(int(m._line())),
    b"h": lambda m: m._get(m._number("<B")),
    b"j": lambda m: m._get(m._number("<I")),
    b"p": lambda m: m._put(int(m._line())),
    b"q": lambda m: m._put(m._number("<B")),
    b"r": lambda m: m._put(m._number("<I")),
    b"\x94": lambda m: m._put(len(m.memo)),
    b"c": lambda m: m.stack.append(m._global(m._line(), m._line())),
    b"\x93": _stack_global,
    b"R": Interpreter._reduce,
    b"b": Interpreter._build,
    b"i": _inst,
    b"o": _obj,
    b"\x81": _newobj,
    b"\x92": _newobj_ex,
    b"P": lambda m: m.stack.append(m.persistent(m._line())),
    b"Q": _binpersid,
}


@dataclass(frozen=True, slots=True)
class Parsed:
    """A stream's object, where it ended, and every name it mentioned."""

    value: Any
    end: int
    names: tuple[str, ...]


def parse(
    data: bytes,
    *,
    source: str,
    persistent: Callable[[Any], Any] | None = None,
    start: int = 0,
) -> Parsed:
    """The object of one pickle stream as plain containers, ``Record`` and ``TensorSpec``.

    Args:
        source: file name for messages.
        persistent: what a persistent id stands for; none are expected by default.
        start: first byte of the stream.

    Raises:
        CheckpointError: the stream is damaged, or asks for something that is not read; named.
    """

    def none(pid: Any) -> Any:
        raise Refused("data outside the stream")

    machine = Interpreter(data, persistent=persistent or none, start=start)
    try:
        value = machine.run()
    except Refused as reason:
        raise CheckpointError(
            f"{source} asks {reason} (at byte {machine.position} of its pickle). "
            f"Nothing was run. {WAY_OUT}"
        ) from None
    except (ValueError, UnicodeDecodeError, OverflowError, struct.error, KeyError) as error:
        raise CheckpointError(
            f"{source} is not a readable pickle: {type(error).__name__} at byte "
            f"{machine.position}. It is damaged, or no torch file. {WAY_OUT}"
        ) from None
    return Parsed(value, machine.position, tuple(sorted(machine.names)))
