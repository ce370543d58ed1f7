"""Types and constants as a dump writes them: `<Tensor[Float32], (2, 3)>`, `I64(30)`, `Tensor(shape=[], dtype=Int32, value=1)`."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

from deepx_graph.text.common.numbers import whole
from deepx_graph.text.mindir.schema import Attribute, TensorData
from deepx_graph.text.mindir.values import BOOLEAN, DOUBLE, FLOAT, INT32, INT64, IOMONAD, NONE, STRING, TENSORS, TUPLE, UMONAD

ELIDED = object()
"""What stands for a constant whose value the dump does not show."""

_NAMES = {"Bool": 9, "Int8": 3, "Int16": 5, "Int32": 6, "Int64": 7, "UInt8": 2, "UInt16": 4, "UInt32": 12, "UInt64": 13,
          "Float16": 10, "Float32": 1, "Float64": 11, "BFloat16": 16, "Complex64": 14, "Complex128": 15}  # fmt: skip
_CODES = {9: "?", 3: "b", 5: "h", 6: "i", 7: "q", 2: "B", 4: "H", 12: "I", 13: "Q", 10: "e", 1: "f", 11: "d"}
_SCALARS = {"I64": INT64, "I32": INT32, "F32": FLOAT, "F64": DOUBLE, "Bool": BOOLEAN,
            "Int64": INT64, "Int32": INT32, "Float32": FLOAT, "Float64": DOUBLE}  # fmt: skip
_OLD = re.compile(r"((?:Ref\[)?Tensor\[\w+\]+)x(?:\[const vector\])?\[([\d, -]*)\]")
"""A type as versions before 2.0 write it: `Tensor[Float32]x[const vector][2, 3]`."""
_TENSOR = re.compile(r"Tensor\(shape=\[([\d, ]*)\], dtype=(\w+), value=(.*)\)\Z", re.DOTALL)
_SCALAR = re.compile(r"(\w+)\(([-+\w.]+)\)\Z")


def _unquoted(text: str, at: int, end: int) -> Iterator[tuple[int, str]]:
    """The characters with their places, those in quotes left out; a quote that no other closes is a character."""
    while at < end:
        if text[at] == '"' and (close := text.find('"', at + 1, end)) > 0:
            at = close
        else:
            yield at, text[at]
        at += 1


def closing(text: str, at: int, end: int) -> int:
    """The place of the bracket that closes the one at `at`; -1 where none does before `end`."""
    pairs = {"(": 1, "[": 1, ")": -1, "]": -1} if text[at] != "<" else {"<": 1, ">": -1}
    depth = 0
    for k, c in _unquoted(text, at, end):
        depth += pairs.get(c, 0)
        if depth == 0:
            return k
    return -1


def pieces(text: str) -> list[str]:
    """The parts between the commas that stand in no bracket and no quotes."""
    found, depth, start = [], 0, 0
    for k, c in _unquoted(text, 0, len(text)):
        depth = max(0, depth + (1 if c in "([<{" else -1 if c in ")]>}" else 0))
        if c == "," and depth == 0:
            found.append(text[start:k].strip())
            start = k + 1
    last = text[start:].strip()
    return [*found, last] if last else found


def type_of(text: str) -> Attribute:
    """The type that `<element type, shape>` names; an unknown one for functions and whatever else."""
    parts = pieces(text.strip()[1:-1]) if text.strip().startswith("<") else []
    if parts and (old := _OLD.fullmatch(", ".join(parts))):
        parts = [old[1], f"({old[2]})"]
    if len(parts) < 2:
        return Attribute()
    return _type(parts[0], parts[1])


def _type(kind: str, shape: str) -> Attribute:
    if kind in ("UMonad", "IOMonad"):
        return Attribute(type=UMONAD if kind == "UMonad" else IOMONAD)
    if kind.startswith("Tuple[") and shape.startswith("TupleShape("):
        kinds = chain.from_iterable(map(_repeated, pieces(kind[6:-1])))
        return Attribute(type=TUPLE, values=[_type(k, s) for k, s in zip(kinds, pieces(shape[11:-1]), strict=False)])
    kind = kind[4:-1] if kind.startswith("Ref[") else kind
    number = _NAMES.get(kind.removeprefix("Tensor[").removesuffix("]"))
    if number is None:
        return Attribute()
    dims = [-1 if (size := whole(d.strip())) is None else size for d in pieces(shape.strip("()"))] if shape.startswith("(") else []
    return Attribute(type=TENSORS, tensors=[TensorData(dims, number)])


def _repeated(item: str) -> Iterator[str]:
    """The items that `kind*3` stands for, made as they are taken."""
    kind, _, times = item.rpartition("*")
    count = whole(times)
    return repeat(item, 1) if not kind or count is None else repeat(kind, count)


def value_of(text: str) -> Any:
    """The constant as an attribute; ELIDED where its value is not shown."""
    if text in ("UMonad[U]", "IOMonad[IO]", "U", "IO"):
        return Attribute(type=IOMONAD if "IO" in text else UMONAD)
    if text.startswith("(") and text.endswith(")"):
        values = [value_of(p) for p in pieces(text[1:-1])]
        return ELIDED if ELIDED in values else Attribute(type=TUPLE, values=values)
    if text.startswith('"'):
        return Attribute(type=STRING, s=text.strip('"'))
    if text == "None" or text.startswith("ValueProblem"):
        return Attribute(type=NONE)
    tensor = _TENSOR.match(text)
    if tensor is not None:
        return _tensor(tensor[1], tensor[2], tensor[3])
    scalar = _SCALAR.match(text)
    return _scalar(scalar[1], scalar[2]) if scalar is not None else ELIDED


def _scalar(kind: str, text: str) -> Any:
    type = _SCALARS.get(kind)
    try:
        value = float(text) if type in (FLOAT, DOUBLE) else int(text)
        real = float(value)
    except (ValueError, OverflowError):
        return ELIDED
    if type is None:
        return ELIDED
    return Attribute(type=type, f=real, d=real, i=int(value) if type not in (FLOAT, DOUBLE) else 0)


def _tensor(dims: str, kind: str, text: str) -> Any:
    number = _NAMES.get(kind)
    shape = [whole(d.strip()) or 0 for d in dims.split(",") if d.strip()]
    code = _CODES.get(number or 0)
    words = text.replace("[", " ").replace("]", " ").replace(",", " ").split()
    size = 1
    for d in shape:
        size *= d
    if number is None or code is None or len(words) != size:
        return ELIDED
    try:
        values = [float(w) if code in "efd" else w == "true" or w == "True" if code == "?" else int(w) for w in words]
        raw = struct.pack(f"<{size}{code}", *values)
    except (ValueError, OverflowError, struct.error):
        return ELIDED
    return Attribute(type=TENSORS, tensors=[TensorData(shape, number, raw=raw)])
