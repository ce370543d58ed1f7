"""The outside world as effects see it: a stream to print on and a folder of tensors, both bounded; what is fed and sent.

At run time the value of a `state` is a `Host`. Files are touched only under `data_root`; a path that leaves it, by `..`, by
being absolute or through a link, is refused. A tensor is two files: `<path>.shape` (YAML) and `<path>.data` (raw,
little-endian, row-major). Its `Channels` lead out of the program and between the devices that run it: infeed, outfeed, channels
and probes. They belong to one device of one compiled program; devices that run side by side share what is sent. `Waiting` is
not an error but says that an operation cannot proceed before another device has: the operation is tried again.
"""

from __future__ import annotations

import math
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from deepx_graph.errors import Diagnostic, LimitError, RunError, an, printable
from deepx_graph.files import write_file
from deepx_graph.ir.collective import Grid
from deepx_graph.literal import Array
from deepx_graph.types import (
    BF16,
    BOOL,
    F8E4M3FN,
    F8E5M2,
    F16,
    F32,
    F64,
    I4,
    I8,
    I16,
    I32,
    I64,
    DType,
    TensorType,
    dtype_of,
    tensor,
    type_of_array,
)  # fmt: skip

Pairs = tuple[tuple[int, ...], ...]


class Waiting(Exception):
    """What an operation waits for, in words."""


class Feed:
    """What an infeed reads: arrays, or tuples of arrays, one after the other. `taken` counts arrays."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._rest = _arrays(items)
        self.taken = 0

    def take(self, type: TensorType) -> Array:
        """The next array. Raises RunError when there is none, or it is not of the type."""
        value = next(self._rest, None)
        if value is None:
            raise RunError(Diagnostic(f"the infeed has ended after {self.taken} arrays", expected=str(type),
                                      hint="give more with infeed= or --infeed"))
        self.taken += 1
        try:
            found = type_of_array(value)
        except KeyError:
            raise RunError(Diagnostic(f"array {self.taken - 1} of the infeed is of {value.dtype}", expected=str(type))) from None
        if found != type:
            raise RunError(Diagnostic(f"array {self.taken - 1} of the infeed is {an(found)}", expected=str(type)))
        return np.array(value, order="C")


def _arrays(items: Iterable[Any]) -> Iterator[Array]:
    for item in items:
        if isinstance(item, (tuple, list)):
            yield from _arrays(item)
        else:
            yield np.asarray(item)


@dataclass(eq=False)
class Channels:
    """`infeed` is None when nothing feeds the program. `channels` holds what was sent and not received yet."""

    infeed: Feed | None = None
    outfeed: list[tuple[Array, ...]] = field(default_factory=list)
    channels: dict[tuple[int, int], deque[tuple[Array, ...]]] = field(default_factory=dict)
    probes: dict[str, list[Array]] = field(default_factory=dict)
    device: int = 0
    grid: Grid | None = None
    """The grid that the device is one of, inside `run_parallel`."""
    counters: dict[int, int] = field(default_factory=dict)
    """How far each rng_get_and_update_state has counted."""

    def count(self, index: int, start: int, delta: int) -> int:
        """The value of a 128-bit counter, which advances by `delta`."""
        value = self.counters.get(index, start)
        self.counters[index] = (value + delta) % (1 << 128)
        return value

    def feed(self, types: Sequence[TensorType]) -> tuple[Array, ...]:
        """The next arrays of the infeed. Raises RunError."""
        if self.infeed is None:
            raise RunError(NO_INFEED)
        return tuple(self.infeed.take(t) for t in types)

    def send(self, channel: int, values: Sequence[Array], pairs: Pairs) -> None:
        """Puts values on a channel: for whoever receives, or for the devices that `pairs` (source, target) name."""
        copies = tuple(np.array(v) for v in values)
        for target in [t for s, t in pairs if s == self.device] if pairs else [-1]:
            self.channels.setdefault((channel, target), deque()).append(copies)

    def receive(self, channel: int, types: Sequence[TensorType], pairs: Pairs) -> tuple[Array, ...]:
        """What was sent first; zeros for a device that `pairs` do not name. Raises Waiting, and RunError for another type."""
        if pairs and all(t != self.device for _, t in pairs):
            return tuple(np.zeros(t.shape, t.dtype.np) for t in types)
        queue = self.channels.get((channel, self.device if pairs else -1))
        if not queue:
            raise Waiting(f"something on channel {channel}")
        values = queue.popleft()
        found = [type_of_array(v) for v in values]
        if found != list(types):
            raise RunError(Diagnostic(f"channel {channel} brings {_listed(found)}", expected=_listed(types)))
        return values


def _listed(types: Sequence[TensorType]) -> str:
    return ", ".join(map(str, types)) or "nothing"


NO_INFEED = "the program reads an infeed, and none is given"
"""What keeps a program with an infeed from starting."""


DEEPX_DTYPES: dict[str, DType] = {
    "bool": BOOL, "int4": I4, "int8": I8, "int16": I16, "int32": I32, "int64": I64, "float8e5m2": F8E5M2, "float8e4m3": F8E4M3FN,
    "float16": F16, "bfloat16": BF16, "float32": F32, "float64": F64,
}  # fmt: skip
"""What deepx calls the element types."""

SHAPE_FILE_LIMIT = 65536
"""Bytes of a .shape file that are read."""

_FORMAT = re.compile(r"([^%]|%%)*%[-+ 0#]*(\d{0,3})(?:\.(\d{1,2}))?(?:l|ll|h)?([dfFeEgGiuxXs])([^%]|%%)*")


@dataclass(frozen=True)
class Host:
    """Where effects act: `data_root=None` means no file access; `out=None` is the process's standard output."""

    data_root: Path | None = None
    out: TextIO | None = None
    max_bytes: int | None = None
    wires: Channels = field(default_factory=Channels, compare=False, repr=False)

    def wired(self, wires: Channels) -> Host:
        """The same world with other feeds and channels."""
        return replace(self, wires=wires)

    def print(self, array: Array, format: str) -> None:
        """Write a tensor as deepx does, each element by the printf `format` (empty: %d or %.4f). Raises RunError for a bad one."""
        print("\n".join(_lines(array, _formatter(array, format))), file=self.out or sys.stdout)

    def save(self, array: Array, path: str) -> None:
        """Write `<path>.shape` and `<path>.data`. Raises RunError outside the data root or for a dtype deepx has no name for."""
        _, data, shape = (self.resolve(path + suffix) for suffix in ("", ".data", ".shape"))
        names = [n for n, d in DEEPX_DTYPES.items() if d is dtype_of(array.dtype)]
        if not names:
            raise RunError(f"save '{path}': deepx has no name for the element type {array.dtype}")
        strides = [math.prod(array.shape[k + 1 :]) for k in range(array.ndim)]
        text = (f"dtype: {names[0]}\ndim: {array.ndim}\nshape: {list(array.shape)}\nstride: {strides}\nsize: {array.size}\n")
        for target, content in ((data, np.ascontiguousarray(array).tobytes()), (shape, text.encode())):
            if target.exists() and not target.is_file():
                raise RunError(f"save '{path}': {target.name} is there and is no file")
            target.parent.mkdir(parents=True, exist_ok=True)
            write_file(target, content)

    def load(self, path: str, type: TensorType) -> Array:
        """The tensor saved at `path`. Raises RunError when it is missing, damaged or not of `type`."""
        found = self.type_of(path)
        if found != type:
            raise RunError(f"load '{path}': the file holds {an(found)} and the program needs {an(type)}")
        if self.max_bytes is not None and found.nbytes > self.max_bytes:
            raise LimitError(f"load '{path}' needs {found.nbytes} bytes, more than --max-bytes {self.max_bytes}")
        data = self.resolve(path + ".data")
        if not data.is_file() or data.stat().st_size != found.nbytes:
            size = f"{data.stat().st_size} bytes" if data.is_file() else "missing"
            raise RunError(f"load '{path}': the .data file is {size}; {found} needs {found.nbytes} bytes")
        return np.fromfile(data, dtype=found.dtype.np).reshape(found.shape)

    def type_of(self, path: str) -> TensorType:
        """The type that `<path>.shape` states. Raises RunError when it is missing or not consistent."""
        import yaml

        file = self.resolve(path + ".shape")
        if not file.is_file():
            raise RunError(f"load '{path}': there is no file '{path}.shape' under the data root")
        try:
            with file.open("rb") as stream:
                facts: Any = yaml.safe_load(stream.read(SHAPE_FILE_LIMIT))
            dtype, shape = DEEPX_DTYPES[facts["dtype"]], tuple(int(d) for d in facts["shape"])
            strides = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
            consistent = (
                all(d >= 0 for d in shape)
                and facts.get("dim", len(shape)) == len(shape)
                and facts.get("size", math.prod(shape)) == math.prod(shape)
                and tuple(facts.get("stride") or strides) == strides
            )
        except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as e:
            raise RunError(f"load '{path}': the .shape file is damaged ({type(e).__name__})") from None
        if not consistent:
            raise RunError(f"load '{path}': dim, size, shape and stride of the .shape file disagree")
        return tensor(dtype, shape)

    def resolve(self, path: str) -> Path:
        """The file that a program's path means. Raises RunError when it may not be touched."""
        if self.data_root is None:
            hint = "give the folder that the program may use with --data-root DIR"
            raise RunError(Diagnostic(f"the program uses the file '{path}', and no data root is given", hint=hint))
        root = self.data_root.resolve()
        if root.exists() and not root.is_dir():
            raise RunError(f"the data root '{self.data_root}' is no folder")
        relative = Path(path)
        if not path or "\0" in path or relative.is_absolute() or ".." in relative.parts:
            raise RunError(f"'{path}' is not a path inside the data root")
        try:
            target = (root / relative).resolve()
        except (OSError, RuntimeError):
            raise RunError(f"'{path}' is not a path inside the data root") from None
        if not target.is_relative_to(root):
            raise RunError(f"'{path}' leads out of the data root")
        return target


def acting(act: Callable[..., object]) -> Callable[..., Host]:
    """The eval of an operation that acts on the host, its first operand, and gives it on: `act(*values, *attrs)`."""

    def eval(xs: Sequence[Any], *attrs: Any) -> Host:
        act(*xs, *attrs)
        host: Host = xs[0]
        return host

    return eval


def _formatter(array: Array, format: str) -> Any:
    is_float = array.dtype.kind not in "biu" and not array.dtype.name.startswith(("int", "uint"))
    format = format or ("%.4f" if is_float else "%d")
    match = _FORMAT.fullmatch(format)
    if not match or int(match[2] or 0) > 100 or int(match[3] or 0) > 60:
        raise RunError(f"print: '{format}' is not a printf format for one number")
    letter = match[4]
    if letter == "s" or array.dtype.kind == "c":
        return lambda value: printable(str(value))
    plain = re.sub(r"(?:ll|l|h)(?=[diuxX])", "", printable(format)).replace("%u", "%d")
    convert: Any = int if letter in "diuxX" else float
    if letter in "diuxX" and is_float:
        return lambda value: plain % int(value) if np.isfinite(value) else str(value)
    return lambda value: plain % convert(value)


def _lines(array: Array, show: Any) -> list[str]:
    """The deepx layout: the shape, then a block of rows per leading index."""

    def row(values: Array) -> str:
        return "[" + " ".join(map(show, values.tolist() if values.dtype.kind in "biufc" else values)) + "]"

    lines = [f"shape:{list(array.shape)}"]
    if array.ndim < 2:
        return lines + [row(array.reshape(-1))]
    for at in np.ndindex(array.shape[:-2]):
        if at:
            lines.append(f"{list(at)}=")
        lines += ["[", *(f" {row(values)}," for values in array[at]), "]"]
    return lines
