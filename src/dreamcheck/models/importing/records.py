"""What stands for foreign names, objects and tensors, and the few calls that are carried out (law 10).

A pickle is a program for a small stack machine. Two of its instructions are dangerous, looking a
name up and calling it. Here a looked-up name stays a name (``Name``), an object of a foreign class
becomes a ``Record`` of its class name and contents, and the only calls that are carried out are the
handful below, written in this file: they describe tensors and build plain containers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_DIMENSIONS = 16

WAY_OUT = (
    "Save the weights alone, torch.save(model.state_dict(), 'weights.pt') or safetensors, "
    "and import that file."
)

# Families of names with no business in weights. Nothing would run anyway; refusing by name tells
# the user what the file tried.
# fmt: off
FORBIDDEN_ROOTS = frozenset((
    "os", "posix", "nt", "posixpath", "ntpath", "subprocess", "sys", "shutil", "socket",
    "importlib", "runpy", "ctypes", "cffi", "pty", "webbrowser", "code", "codeop", "pickle",
    "_pickle", "marshal", "shelve", "asyncio", "multiprocessing", "threading", "_thread",
    "signal", "pdb", "bdb", "timeit", "pip", "setuptools", "ensurepip", "venv", "tempfile",
    "glob", "io", "_io", "fcntl", "resource", "site", "platform", "commands", "cProfile",
    "profile", "trace", "doctest", "unittest", "http", "urllib", "requests", "ftplib",
    "smtplib", "telnetlib", "aiohttp", "httpx", "zipimport", "pkgutil", "gc", "atexit",
))
# fmt: on
# fmt: off
FORBIDDEN_BUILTINS = frozenset((
    "eval", "exec", "execfile", "compile", "open", "__import__", "input", "breakpoint",
    "globals", "locals", "vars", "setattr", "delattr", "apply", "help", "exit", "quit",
    "memoryview", "print", "map", "filter",
))
# fmt: on


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


_SCALARS = (str, int, float, bool, bytes, complex, type(None))


class Refused(Exception):
    """What is wrong with the stream; the reader adds the file's name."""


def _ints(value: Any, what: str) -> tuple[int, ...]:
    if isinstance(value, Record) and value.cls == "torch.Size":
        value = value.args[0] if value.args else ()
    if (
        not isinstance(value, (tuple, list))
        or len(value) > MAX_DIMENSIONS
        or any(type(v) is not int or v < 0 or v >= 1 << 62 for v in value)
    ):
        raise Refused(f"a tensor whose {what} is not a short list of sizes")
    return tuple(value)


def tensor_spec(storage: Any, dtype: str, offset: Any, shape: Any, stride: Any) -> TensorSpec:
    """A tensor checked against its storage: every element lies inside, and none is invented.

    Raises:
        Refused: absurd shape, stride outside the storage, more elements than the storage holds.
    """
    if not isinstance(storage, Storage):
        raise Refused("a tensor without a storage")
    sizes, steps = _ints(shape, "shape"), _ints(stride, "stride")
    if len(sizes) != len(steps):
        raise Refused(f"a tensor of shape {sizes} with strides {steps}")
    if type(offset) is not int or offset < 0:
        raise Refused("a tensor at a negative offset")
    spec = TensorSpec(storage, dtype, offset, sizes, steps)
    if dtype not in ITEM_SIZES:
        raise Refused(f"a tensor of type {dtype}, which is not read")
    held = storage.count * ITEM_SIZES[storage.dtype] // ITEM_SIZES[dtype]
    if spec.count:
        last = offset + sum((n - 1) * s for n, s in zip(sizes, steps, strict=True))
        if last >= held:
            raise Refused(
                f"a tensor of shape {sizes} and strides {steps} that reaches element {last} of a "
                f"storage of {held}"
            )
        if spec.count > held:
            raise Refused(f"a tensor of {spec.count} elements over a storage of {held}")
    return spec


def _dtype_name(value: Any) -> str:
    if isinstance(value, Name) and value.module == "torch":
        return value.name
    raise Refused("a tensor without a type")


def _rebuild_v2(args: tuple[Any, ...]) -> Any:
    if len(args) < 4 or not isinstance(args[0], Storage):
        raise Refused("a malformed tensor")
    return tensor_spec(args[0], args[0].dtype, args[1], args[2], args[3])


def _rebuild_v3(args: tuple[Any, ...]) -> Any:
    if len(args) < 7:
        raise Refused("a malformed tensor")
    return tensor_spec(args[0], _dtype_name(args[6]), args[1], args[2], args[3])


def _first(args: tuple[Any, ...]) -> Any:
    if not args:
        raise Refused("a malformed parameter")
    return args[0]


def _from_type(args: tuple[Any, ...]) -> Any:
    # (function, type, arguments, state): a tensor with Python attributes, which are left out.
    if len(args) >= 3 and isinstance(args[0], Name) and isinstance(args[2], tuple):
        return call(args[0], args[2])
    raise Refused("a malformed tensor")


def _pairs(args: tuple[Any, ...]) -> dict[Any, Any]:
    # Written entry by entry afterwards; a long list here would be a copy on every call.
    pairs = args[0] if args else ()
    if not isinstance(pairs, (list, tuple)) or len(pairs) > 64:
        raise Refused("a malformed dictionary")
    out: dict[Any, Any] = {}
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise Refused("a malformed dictionary")
        out[plain_key(pair[0])] = pair[1]
    return out


def _sequence(args: tuple[Any, ...]) -> Any:
    # A set stays a list: its members are never hashed, which a hostile file could make endless.
    # The same list, not a copy: a copy per call is how a small file fills the memory.
    value = args[0] if args else []
    if isinstance(value, (list, tuple)):
        return value
    raise Refused("a malformed collection")


def _encode(args: tuple[Any, ...]) -> bytes:
    if args and isinstance(args[0], str) and args[1:] in ((), ("latin1",), ("latin-1",)):
        return args[0].encode("latin1")
    raise Refused("malformed bytes")


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

# fmt: off
INERT_CALL_ROOTS = frozenset((
    "torch", "torchvision", "numpy", "collections", "functools", "copyreg", "copy_reg",
    "enum", "pathlib", "datetime", "transformers", "huggingface_hub", "omegaconf", "hydra",
    "lightning", "pytorch_lightning", "lightning_fabric", "torchmetrics", "stable_worldmodel",
    "stable_pretraining", "timm", "einops", "builtins", "__builtin__", "typing", "argparse",
    "uuid", "fractions", "decimal", "operator",
))
# fmt: on
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
    raise Refused(f"to call {name}")


def plain_key(value: Any) -> Any:
    """A dictionary key that hashes in constant time and depth."""
    if isinstance(value, (*_SCALARS, Name, Record)):
        return value
    if (
        isinstance(value, tuple)
        and len(value) <= 64
        and all(isinstance(v, _SCALARS) for v in value)
    ):
        return value
    raise Refused(f"a dictionary key of type {type(value).__name__}")


def checked_name(module: Any, name: Any) -> Name:
    if not isinstance(module, str) or not isinstance(name, str) or len(module) + len(name) > 1000:
        raise Refused("a malformed class name")
    root = module.split(".")[0]
    if root in FORBIDDEN_ROOTS or (
        root in ("builtins", "__builtin__", "__builtins__")
        and name.split(".")[0] in FORBIDDEN_BUILTINS
    ):
        raise Refused(f"for {module}.{name}")
    return Name(module, name)
