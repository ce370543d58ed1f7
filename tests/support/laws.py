"""What the laws over every op share: sample operands, graphs of one op, and comparison of arrays bit for bit or within rounding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import InferError
from deepx_graph.ir import Builder, Function, Node, Op
from deepx_graph.ops import FAMILIES, OPS
from deepx_graph.types import BF16, BOOL, C64, F16, F32, F64, I8, I32, I64, U8, U32, DType, TupleType, type_of_array

SAMPLED_DTYPES = (BOOL, I8, I32, I64, U8, U32, F16, BF16, F32, F64, C64)

ELSEWHERE = {
    **dict.fromkeys(FAMILIES["structure"], "structural: run through programs in test_control_flow"),
    **dict.fromkeys(FAMILIES["effects"], "effect: run through programs in tests/ops/test_host.py"),
    **dict.fromkeys(FAMILIES["adt"], "values that are not arrays: run through programs in test_functional"),
    **dict.fromkeys(FAMILIES["ref"], "effect: run through programs in test_functional"),
    **dict.fromkeys(FAMILIES["opaque"], "runs nowhere: read, drawn and printed"),
    **dict.fromkeys(FAMILIES["check"], "effect: run by StableHLO's own tests"),
    **dict.fromkeys(FAMILIES["tape"], "not arrays: run through programs in tests/passes/autodiff/test_control.py"),
    **dict.fromkeys(FAMILIES["collective"], "devices meet: run side by side in test_devices"),
    **dict.fromkeys(FAMILIES["feeds"], "effect: run through programs in test_devices"),
    **dict.fromkeys(FAMILIES["parallel"], "runs functions: run through programs in test_devices"),
    **dict.fromkeys(FAMILIES["custom"], "runs what users register: test_custom_calls"),
    **dict.fromkeys(FAMILIES["strings"], "texts, of which the reference engine alone knows: run in tests/ops/test_strings.py"),
    **dict.fromkeys(FAMILIES["fusion"], "holds a body: tested with the fuser"),
}
"""Ops that the sampled laws leave out, and where they are tested instead."""

LAWFUL = [op for op in OPS.values() if op not in ELSEWHERE]

EXPRESSIBLE = [op for op in OPS.values() if op.element or op.loops or (op.elementwise and op.kernel)]
"""Ops that have loop programs."""

Sample = tuple[Sequence[np.ndarray[Any, Any]], dict[str, Any]]


def random_array(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], domain: tuple[float, float]) -> Any:
    """Values in `domain`; integers and bools as they come."""
    low, high = domain
    if dtype is BOOL:
        return rng.random(shape) < 0.5
    if dtype.is_integer:
        low = 0 if dtype.kind == "uint" else max(low, -100)
        return rng.integers(int(low) - (dtype.kind == "int"), int(high) + 3, shape).astype(dtype.np)
    values = rng.uniform(low, high, shape)
    if dtype.kind == "complex":
        values = values + 1j * rng.uniform(low, high, shape)
    return np.asarray(values).astype(dtype.np)


def samples(op: Op, seed: int = 0) -> Iterator[Sample]:
    """Operands and attributes that the op accepts: its own samples, else same-shaped arrays of each dtype it takes."""
    rng = np.random.default_rng(seed)
    if op.samples is not None:
        for arrays, attrs in op.samples(rng):
            yield [np.asarray(a) for a in arrays], attrs
        return
    for dtype in SAMPLED_DTYPES:
        for shape in ((2, 3), (), (0, 2)):
            arrays = [random_array(rng, dtype, shape, op.domain) for _ in op.operands]
            try:
                op.infer([type_of_array(a) for a in arrays])
            except InferError:
                break
            yield arrays, {}


def one_op(op: Op, arrays: Sequence[Any], attrs: dict[str, Any]) -> Function:
    """The function of all operands whose result is the op."""
    params = [(f"x{k}", type_of_array(a)) for k, a in enumerate(arrays)]
    return Builder().function("law", params, lambda *nodes: (Builder()(op, *nodes, **attrs),))


def alone(node: Node) -> Function:
    """A function of that node, with a result for each item of a tuple."""
    b = Builder()
    params = tuple(b.param(k, i.type) for k, i in enumerate(node.inputs))
    made = Node(node.op, params, node.attrs, node.type)
    several = isinstance(node.type, TupleType)
    return Function("alone", params, tuple(b.proj(made, k) for k in range(len(node.type.items))) if several else (made,))


def constants(b: Builder, arrays: Sequence[Any]) -> list[Node]:
    return [b.constant(a) for a in arrays]


def bits(array: Any) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def same(got: Any, want: Any) -> bool:
    """Equal dtype, shape and bits, any NaN being as good as another."""
    got, want = np.asarray(got), np.asarray(want)
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if got.dtype.kind in "biu":
        return bits(got) == bits(want)
    if got.dtype.hasobject:
        return got.tolist() == want.tolist()
    nan = np.isnan(got) & np.isnan(want)
    return bits(np.where(nan, np.zeros_like(got), got)) == bits(np.where(nan, np.zeros_like(want), want))


SPECIAL = {
    "float": [0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan],
    "int": [0, 1, -1, 2, 7],
    "uint": [0, 1, 2, 7],
    "bool": [False, True],
    "complex": [0, 1, -1j, 2 + 1j],
}


def special_values(dtype: DType) -> Any:
    """Values where laws tend to break, the extremes of the type included."""
    values = list(SPECIAL[dtype.kind])
    if dtype.is_integer:
        info = np.iinfo(np.dtype(dtype.np))
        values += [info.min, info.max]
    return np.array(values).astype(dtype.np)

