"""Pickle streams read as data: an interpreter that builds containers and imports nothing (law 10).

A pickle is a program for a small stack machine. Two of its instructions are dangerous, looking a
name up and calling it. Here a looked-up name stays a name (``Name``), an object of a foreign class
becomes a ``Record`` of its class name and contents, and the only calls that are carried out are the
handful below, written in this file: they describe tensors and build plain containers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dreamcheck.errors import CheckpointError

MAX_OPERATIONS = 20_000_000
MAX_DIMENSIONS = 16

WAY_OUT = (
    "Save the weights alone, torch.save(model.state_dict(), 'weights.pt') or safetensors, "
    "and import that file."
)

# Families of names with no business in weights. Nothing would run anyway; refusing by name tells
# the user what the file tried.
FORBIDDEN_ROOTS = frozenset(
    "os posix nt posixpath ntpath subprocess sys shutil socket importlib runpy ctypes cffi pty "
    "webbrowser code codeop pickle _pickle marshal shelve asyncio multiprocessing threading "
    "_thread signal pdb bdb timeit pip setuptools ensurepip venv tempfile glob io _io fcntl "
    "resource site platform commands cProfile profile trace doctest unittest http urllib requests "
    "ftplib smtplib telnetlib aiohttp httpx zipimport pkgutil gc atexit".split()
)
FORBIDDEN_BUILTINS = frozenset(
    "eval exec execfile compile open __import__ input breakpoint globals locals vars setattr "
    "delattr apply help exit quit memoryview print map filter".split()
)


@dataclass(frozen=True, slots=True)
class Name:
    """A module-level name the stream asked for; it was not looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(slots=True, eq=False, repr=False)
class Record:
    """An object of a foreign class: its class, constructor arguments, state and items."""

    cls: str
    args: tuple[Any, ...] = ()
    state: Any = None
    items: list[Any] = field(default_factory=list)

    def __repr__(self) -> str:
        # Contents may be cyclic or huge; the class is what a message needs.
        return f"Record({self.cls})"


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """A block of numbers kept outside the stream.

    key: its entry in the file. dtype: torch dtype name, "untyped" for bytes. count: elements.
    """

    key: str
    dtype: str
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class TensorSpec:
    """Where a tensor's numbers lie; nothing is allocated yet. offset and stride in elements."""

    storage: Storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def count(self) -> int:
        """Elements of the tensor."""
        n = 1
        for size in self.shape:
            n *= size
        return n


STORAGE_DTYPES: Mapping[str, str] = {
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "UntypedStorage": "untyped",
}
ITEM_SIZES: Mapping[str, int] = {
    "float32": 4,
    "float64": 8,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "untyped": 1,
}


def storage_dtype(name: Any) -> str | None:
    """The dtype of a storage class's name, or None for one that is not read."""
    if isinstance(name, Name) and name.module in ("torch", "torch.storage", "torch.cuda"):
        return STORAGE_DTYPES.get(name.name)
    return None


class _Mark:
    __slots__ = ()


_MARK = _Mark()
_SCALARS = (str, int, float, bool, bytes, complex, type(None))


class _Refused(Exception):
    """What is wrong with the stream; the reader adds the file's name."""


def _ints(value: Any, what: str) -> tuple[int, ...]:
    if isinstance(value, Record) and value.cls == "torch.Size":
        value = value.args[0] if value.args else ()
    if (
        not isinstance(value, (tuple, list))
        or len(value) > MAX_DIMENSIONS
        or any(type(v) is not int or v < 0 or v >= 1 << 62 for v in value)
    ):
        raise _Refused(f"a tensor whose {what} is not a short list of sizes")
    return tuple(value)


def tensor_spec(storage: Any, dtype: str, offset: Any, shape: Any, stride: Any) -> TensorSpec:
    """A tensor checked against its storage: every element lies inside, and none is invented.

    Raises:
        _Refused: absurd shape, stride outside the storage, more elements than the storage holds.
    """
    if not isinstance(storage, Storage):
        raise _Refused("a tensor without a storage")
    sizes, steps = _ints(shape, "shape"), _ints(stride, "stride")
    if len(sizes) != len(steps):
        raise _Refused(f"a tensor of shape {sizes} with strides {steps}")
    if type(offset) is not int or offset < 0:
        raise _Refused("a tensor at a negative offset")
    spec = TensorSpec(storage, dtype, offset, sizes, steps)
    if dtype not in ITEM_SIZES:
        raise _Refused(f"a tensor of type {dtype}, which is not read")
    held = storage.count * ITEM_SIZES[storage.dtype] // ITEM_SIZES[dtype]
    if spec.count:
        last = offset + sum((n - 1) * s for n, s in zip(sizes, steps, strict=True))
        if last >= held:
            raise _Refused(
                f"a tensor of shape {sizes} and strides {steps} that reaches element {last} of a "
                f"storage of {held}"
            )
        if spec.count > held:
            raise _Refused(f"a tensor of {spec.count} elements over a storage of {held}")
    return spec


def _dtype_name(value: Any) -> str:
    if isinstance(value, Name) and value.module == "torch":
        return value.name
    raise _Refused("a tensor without a type")


def _rebuild_v2(args: tuple[Any, ...]) -> Any:
    if len(args) < 4 or not isinstance(args[0], Storage):
        raise _Refused("a malformed tensor")
    return tensor_spec(args[0], args[0].dtype, args[1], args[2], args[3])


def _rebuild_v3(args: tuple[Any, ...]) -> Any:
    if len(args) < 7:
        raise _Refused("a malformed tensor")
    return tensor_spec(args[0], _dtype_name(args[6]), args[1], args[2], args[3])


def _first(args: tuple[Any, ...]) -> Any:
    if not args:
        raise _Refused("a malformed parameter")
    return args[0]


def _from_type(args: tuple[Any, ...]) -> Any:
    # (function, type, arguments, state): a tensor with Python attributes, which are left out.
    if len(args) >= 3 and isinstance(args[0], Name) and isinstance(args[2], tuple):
        return call(args[0], args[2])
    raise _Refused("a malformed tensor")


def _pairs(args: tuple[Any, ...]) -> dict[Any, Any]:
    # Written entry by entry afterwards; a long list here would be a copy on every call.
    pairs = args[0] if args else ()
    if not isinstance(pairs, (list, tuple)) or len(pairs) > 64:
        raise _Refused("a malformed dictionary")
    out: dict[Any, Any] = {}
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise _Refused("a malformed dictionary")
        out[_key(pair[0])] = pair[1]
    return out


def _sequence(args: tuple[Any, ...]) -> Any:
    # A set stays a list: its members are never hashed, which a hostile file could make endless.
    # The same list, not a copy: a copy per call is how a small file fills the memory.
    value = args[0] if args else []
    if isinstance(value, (list, tuple)):
        return value
    raise _Refused("a malformed collection")


def _encode(args: tuple[Any, ...]) -> bytes:
    if args and isinstance(args[0], str) and args[1:] in ((), ("latin1",), ("latin-1",)):
        return args[0].encode("latin1")
    raise _Refused("malformed bytes")


CALLS: Mapping[str, Callable[[tuple[Any, ...]], Any]] = {
    "torch._utils._rebuild_tensor_v2": _rebuild_v2,
    "torch._utils._rebuild_tensor": _rebuild_v2,
    "torch._utils._rebuild_tensor_v3": _rebuild_v3,
    "torch._utils._rebuild_parameter": _first,
    "torch._utils._rebuild_parameter_with_state": _first,
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "torch._tensor._rebuild_from_type": _from_type,
    "torch.nn.parameter.Parameter": _first,
    "collections.OrderedDict": _pairs,
    "builtins.dict": _pairs,
    "__builtin__.dict": _pairs,
    "builtins.set": _sequence,
    "builtins.frozenset": _sequence,
    "builtins.list": _sequence,
    "__builtin__.set": _sequence,
    "__builtin__.frozenset": _sequence,
    "__builtin__.list": _sequence,
    "_codecs.encode": _encode,
}
"""The only calls carried out. Each describes a tensor or builds a plain container."""

INERT_CALL_ROOTS = frozenset(
    "torch torchvision numpy collections functools copyreg copy_reg enum pathlib datetime "
    "transformers huggingface_hub omegaconf hydra lightning pytorch_lightning lightning_fabric "
    "torchmetrics stable_worldmodel stable_pretraining timm einops builtins __builtin__ typing "
    "argparse uuid fractions decimal operator".split()
)
"""Calls on names below these are kept as inert records, because pickled modules are full of them."""


def call(name: Name, args: tuple[Any, ...]) -> Any:
    """One of our own functions, or an inert record; anything else is refused by name."""
    function = CALLS.get(str(name))
    if function is not None:
        return function(args)
    if str(name) == "collections.defaultdict":
        return {}
    root = name.module.split(".")[0]
    if root in ("copyreg", "copy_reg") and name.name == "_reconstructor" and args:
        cls = args[0]
        return Record(str(cls) if isinstance(cls, Name) else "?", args[2:3])
    if root in INERT_CALL_ROOTS:
        return Record(str(name), args)
    raise _Refused(f"to call {name}")


def _key(value: Any) -> Any:
    """A dictionary key that hashes in constant time and depth."""
    if isinstance(value, _SCALARS) or isinstance(value, (Name, Record)):
        return value
    if isinstance(value, tuple) and len(value) <= 64 and all(isinstance(v, _SCALARS) for v in value):
        return value
    raise _Refused(f"a dictionary key of type {type(value).__name__}")


def _name(module: Any, name: Any) -> Name:
    if not isinstance(module, str) or not isinstance(name, str) or len(module) + len(name) > 1000:
        raise _Refused("a malformed class name")
    root = module.split(".")[0]
    if root in FORBIDDEN_ROOTS or (
        root in ("builtins", "__builtin__", "__builtins__") and name.split(".")[0] in FORBIDDEN_BUILTINS
    ):
        raise _Refused(f"for {module}.{name}")
    return Name(module, name)


class Interpreter:
    """One run over a stream. ``run`` returns the object; ``position`` is where the stream ended."""

    def __init__(
        self, data: bytes, *, persistent: Callable[[Any], Any], start: int = 0
    ) -> None:
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
            raise _Refused("more bytes than the file has (it is truncated or damaged)")
        out = self.data[self.position : end]
        self.position = end
        return out

    def _number(self, layout: str) -> Any:
        return struct.unpack(layout, self._take(struct.calcsize(layout)))[0]

    def _line_bytes(self) -> bytes:
        end = self.data.find(b"\n", self.position, self.position + 10_000)
        if end < 0:
            raise _Refused("a text line without an end")
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
        raise _Refused("a list without a beginning")

    def _pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise _Refused("a value that was never given")
        return self.stack.pop()

    def _top(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise _Refused("a value that was never given")
        return self.stack[-1]

    def _set_items(self, target: Any, items: list[Any]) -> None:
        if len(items) % 2:
            raise _Refused("a dictionary entry without a value")
        if isinstance(target, dict):
            for i in range(0, len(items), 2):
                target[_key(items[i])] = items[i + 1]
        elif isinstance(target, Record):
            target.items.extend((items[i], items[i + 1]) for i in range(0, len(items), 2))
        else:
            raise _Refused(f"to set entries of a {type(target).__name__}")

    def _extend(self, target: Any, items: list[Any]) -> None:
        if isinstance(target, list):
            target.extend(items)
        elif isinstance(target, Record):
            target.items.extend(items)
        else:
            raise _Refused(f"to extend a {type(target).__name__}")

    def _global(self, module: Any, name: Any) -> Name:
        found = _name(module, name)
        self.names.add(str(found))
        return found

    def _reduce(self) -> None:
        args, function = self._pop(), self._pop()
        if not isinstance(function, Name) or not isinstance(args, tuple):
            raise _Refused(f"to call a {type(function).__name__}")
        result = call(function, args)
        if isinstance(result, bytes):
            self.copied += len(result)
            if self.copied > 2 * len(self.data):
                raise _Refused("the same bytes over and over")
        self.stack.append(result)

    def _new(self, cls: Any, args: Any) -> None:
        if not isinstance(cls, Name) or not isinstance(args, tuple):
            raise _Refused("an object without a class")
        plain = CALLS.get(str(cls))
        self.stack.append(plain(args) if plain else Record(str(cls), args))

    def _build(self) -> None:
        state, target = self._pop(), self._top()
        if isinstance(target, Record):
            target.state = state
        elif not isinstance(target, (dict, list, TensorSpec)):
            raise _Refused(f"to set the state of a {type(target).__name__}")
        # A plain container's state (state_dict's _metadata) holds no tensor; it is left out.

    def run(self) -> Any:
        """The object the stream describes."""
        for _ in range(MAX_OPERATIONS):
            op = self._take(1)
            if op == b".":
                return self._pop()
            handler = _HANDLERS.get(op)
            if handler is None:
                raise _Refused(f"the pickle instruction {op!r}, which is not read")
            handler(self)
        raise _Refused(f"more than {MAX_OPERATIONS} instructions")

    def _get(self, index: int) -> None:
        if index not in self.memo:
            raise _Refused(f"memory cell {index}, which was never filled")
        self.stack.append(self.memo[index])

    def _put(self, index: int) -> None:
        if index < 0:
            raise _Refused("a negative memory cell")
        self.memo[index] = self._top()

    def _string(self, raw: bytes) -> None:
        # Python 2 strings: latin1 maps every byte to one character.
        self.stack.append(raw.decode("latin1"))

    def _quoted(self) -> None:
        line = self._line()
        if len(line) < 2 or line[0] not in "'\"" or line[0] != line[-1] or "\\" in line:
            raise _Refused("a malformed string")
        self.stack.append(line[1:-1])

    def _integer(self) -> None:
        line = self._line().rstrip("L")
        if len(line) > 400:
            raise _Refused("an absurdly long number")
        self.stack.append({"00": False, "01": True}[line] if line in ("00", "01") else int(line))

    def _long(self, size: int) -> None:
        if size > 64:
            raise _Refused(f"a whole number of {size} bytes")
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
        raise _Refused("an object without a class")
    m._new(items[0], tuple(items[1:]))


def _newobj(m: Interpreter) -> None:
    args, cls = m._pop(), m._pop()
    m._new(cls, args)


def _newobj_ex(m: Interpreter) -> None:
    kwargs, args, cls = m._pop(), m._pop(), m._pop()
    if not isinstance(kwargs, dict):
        raise _Refused("a malformed object")
    m._new(cls, args)


def _binpersid(m: Interpreter) -> None:
    m.stack.append(m.persistent(m._pop()))


def _pop_any(m: Interpreter) -> None:
    if not m.stack:
        raise _Refused("a value that was never given")
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
        raise _Refused("data outside the stream")

    machine = Interpreter(data, persistent=persistent or none, start=start)
    try:
        value = machine.run()
    except _Refused as reason:
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
