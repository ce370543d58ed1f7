"""ONNX models as protocol buffer messages, written field by field."""

from __future__ import annotations

from typing import Any

import numpy as np

import deepx_graph as dx
from deepx_graph.text import decode_source, read
from deepx_graph.verify import verify
from tests.support.mindir_messages import field, many

FLOAT, INT8, INT64, BOOL = 1, 3, 7, 9
NUMBERS = {np.dtype(np.float32): FLOAT, np.dtype(np.int8): INT8, np.dtype(np.int64): INT64, np.dtype(np.bool_): BOOL}


def tensor(array: Any, name: str = "") -> bytes:
    array = np.asarray(array)
    return many(1, array.shape) + field(2, NUMBERS[array.dtype]) + (field(8, name) if name else b"") + field(9, array.tobytes())


def type_of(dims: Any, dtype: int = FLOAT) -> bytes:
    """A tensor type; a dimension is a size or a name."""
    shape = many(1, (field(1, d) if isinstance(d, int) else field(2, d) for d in dims))
    return field(1, field(1, dtype) + field(2, shape))


def info(name: str, dims: Any, dtype: int = FLOAT) -> bytes:
    return field(1, name) + field(2, type_of(dims, dtype))


def attribute(name: str, value: Any) -> bytes:
    """An attribute: an int, a float, text, a list of ints, or a graph as bytes."""
    if isinstance(value, bytes):
        return field(1, name) + field(6, value) + field(20, 5)
    if isinstance(value, np.ndarray):
        return field(1, name) + field(5, tensor(value)) + field(20, 4)
    if isinstance(value, str):
        return field(1, name) + field(4, value) + field(20, 3)
    if isinstance(value, float):
        return field(1, name) + field(2, value) + field(20, 1)
    if isinstance(value, int):
        return field(1, name) + field(3, value) + field(20, 2)
    return field(1, name) + many(8, value) + field(20, 7)


def node(op: str, inputs: Any, outputs: Any, domain: str = "", **attrs: Any) -> bytes:
    made = many(1, inputs) + many(2, outputs) + field(3, f"the {op}") + field(4, op)
    return made + many(5, (attribute(k, v) for k, v in attrs.items())) + (field(7, domain) if domain else b"")


def graph(nodes: Any, inputs: Any, outputs: Any, weights: Any = ()) -> bytes:
    return many(1, nodes) + field(2, "g") + many(5, weights) + many(11, inputs) + many(12, outputs)


def model(main: bytes, opset: int = 21, functions: Any = (), version: int = 8) -> bytes:
    opsets = field(8, field(2, opset)) + field(8, field(1, "own") + field(2, 1))
    return field(1, version) + field(2, "tests") + field(7, main) + opsets + many(25, functions)


def load(data: bytes) -> dx.Module:
    found = read(decode_source(data, "m.onnx", 1 << 20)).module
    verify(found)
    return found


def run(data: bytes, *inputs: Any) -> Any:
    return dx.compile(load(data), engine="numpy", optimize=False)(*inputs)
