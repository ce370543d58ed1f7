"""Every primitive of MindIR that is known, and every option that its rule asks for, against numpy.

An option is an input or an attribute of the primitive. The law at the end is of the table: an option that a rule no longer asked for,
or took from elsewhere, would be seen by some row.
"""
# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import DeepxGraphError
from deepx_graph.text.mindir.rules import RULES, Args
from tests.support.attribute_laws import AttributeLaw
from tests.support.mindir_messages import field, graph, info, load, many, model, node, shape
from tests.support.relay_reference import convolution, largest, mean, pooling

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(6)
X, Y = RNG.standard_normal((2, 2, 3)).astype("f4")
C = RNG.standard_normal((2, 3, 4)).astype("f4")
IMAGE, KERNEL = RNG.standard_normal((1, 2, 5, 6)).astype("f4"), RNG.standard_normal((4, 2, 3, 2)).astype("f4")
N = np.array([[7, -7, 5], [-5, 0, 9]], "i4")
M = np.array([[2, 2, -3], [3, 4, -2]], "i4")
P, Q = X > 0, Y > 0
DATA_TYPES = {"f4": 1, "i4": 6, "i8": 7, "b1": 9, "f8": 11}


class Row(NamedTuple):
    """A call: inputs are arrays, or plain values, or tuples of arrays; attributes are those of the primitive."""

    name: str
    inputs: tuple[Any, ...]
    want: Any
    attrs: dict[str, Any] = {}  # noqa: RUF012  never written to


def data_type(array: Array) -> int:
    return DATA_TYPES["b1" if array.dtype.kind == "b" else array.dtype.kind + str(array.dtype.itemsize)]


def said(value: Any) -> bytes:
    """A plain value as the fields of an attribute."""
    match value:
        case None:
            return field(16, 25)
        case bool():
            return field(10, int(value)) + field(16, 9)
        case int():
            return field(10, value) + field(16, 7)
        case float():
            return field(2, value) + field(16, 1)
        case str():
            return field(5, value) + field(16, 8)
    return many(17, map(said, value)) + field(16, 20)


def written(row: Row) -> tuple[bytes, list[Array]]:
    """The model of a row, and the arrays that it takes."""
    nodes, names, arrays = [], [], []

    def given(value: Any) -> str:
        if isinstance(value, np.ndarray):
            arrays.append(value)
            return f"p{len(arrays) - 1}"
        name = f"c{len(nodes)}"
        if isinstance(value, tuple) and value and isinstance(value[0], np.ndarray):
            nodes.append(node(name, "REF::MakeTuple", [given(v) for v in value]))
        else:
            nodes.append(node(name, "Constant", (), field(5, field(1, "value") + said(value))))
        return name

    names = [given(v) for v in row.inputs]
    want = np.asarray(row.want)
    nodes.append(node("r", f"REF::{row.name}", names, shape(want.shape, data_type(want))))
    params = [info(f"p{k}", a.shape, data_type(a)) for k, a in enumerate(arrays)]
    primitive = field(1, row.name) + field(2, row.name) + many(3, (field(1, n) + said(v) for n, v in row.attrs.items()))
    main = graph("main", nodes, params, [info("r", want.shape, data_type(want))])
    return model(main, (), ["MakeTuple"]) + field(12, primitive), arrays


def check(row: Row) -> None:
    data, arrays = written(row)
    got, *_ = dx.compile(load(data), engine="numpy", optimize=False)(*arrays)
    want = np.asarray(row.want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def _elementwise() -> Iterator[Row]:
    for name, how in {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "RealDiv": np.divide, "Maximum": np.maximum,
                      "Minimum": np.minimum, "Atan2": np.arctan2, "Adds": np.add, "Subs": np.subtract, "Muls": np.multiply,
                      "Divs": np.divide}.items():
        yield Row(name, (X, Y), how(X, Y))
    for name, how in {"Less": np.less, "LessEqual": np.less_equal, "Greater": np.greater, "GreaterEqual": np.greater_equal,
                      "Equal": np.equal, "NotEqual": np.not_equal, "FloorDiv": np.floor_divide, "FloorMod": np.mod, "Mod": np.fmod,
                      "BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor,
                      "RemainderTensorTensor": np.mod}.items():
        yield Row(name, (N, M), how(N, M))
    for name, how in {"LogicalAnd": np.logical_and, "LogicalOr": np.logical_or, "LogicalXor": np.logical_xor}.items():
        yield Row(name, (P, Q), how(P, Q))
    one, two = np.float32(3), np.float32(-2)
    for name, how in {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "lt": np.less, "le": np.less_equal,
                      "gt": np.greater, "ge": np.greater_equal, "eq": np.equal}.items():
        yield Row(f"scalar_{name}", (np.asarray(one), np.asarray(two)), how(one, two))
        yield Row(f"Scalar{name.capitalize()}", (np.asarray(two), np.asarray(two)), how(two, two))
    for name, how in {"ReLU": lambda x: np.maximum(x, 0), "Tanh": np.tanh, "Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Sin": np.sin,
                      "Cos": np.cos, "Tan": np.tan, "Neg": np.negative, "Exp": np.exp, "Abs": np.abs, "Floor": np.floor, "Ceil": np.ceil,
                      "Sign": np.sign, "ZerosLike": np.zeros_like, "zeros_like": np.zeros_like, "OnesLike": np.ones_like, "Sinh": np.sinh,
                      "Cosh": np.cosh, "Atan": np.arctan, "IsFinite": np.isfinite, "IsNan": np.isnan, "Trunc": np.trunc,
                      "Square": np.square, "TensorMove": np.copy, "Identity": np.copy, "identity": np.copy, "StopGradient": np.copy,
                      "stop_gradient": np.copy, "ScalarToTensor": np.copy, "InsertGradientOf": np.copy}.items():
        yield Row(name, (X,), how(X))
    inside, above = np.tanh(X), np.abs(X) + np.float32(0.5)
    for name, how in {"Asin": np.arcsin, "Acos": np.arccos}.items():
        yield Row(name, (inside,), how(inside))
    for name, how in {"Log": np.log, "Sqrt": np.sqrt, "Rsqrt": lambda x: 1 / np.sqrt(x)}.items():
        yield Row(name, (above,), how(above))
    yield Row("Round", (np.array([0.6, -0.6, 1.2], "f4"),), np.array([1, -1, 1], "f4"))
    yield Row("Erf", (np.array([0, 0.5], "f4"),), np.array([0, 0.5204999], "f4"))
    yield Row("LogicalNot", (P,), ~P)
    yield Row("Pow", (above, Y), above**Y)
    yield Row("PowTensorScalar", (X, 2), X**2)
    yield Row("RemainderTensorScalar", (N, 4), N % 4)
    yield Row("Add", (X, 2), X + 2)
    yield Row("Sub", (2.5, X), np.float32(2.5) - X)
    yield Row("Add", (X, N), X + N.astype("f4"))
    yield Row("Select", (P, X, Y), np.where(P, X, Y))
    yield Row("clip_by_value", (X, -0.25, 0.5), X.clip(-0.25, 0.5))
    yield Row("Cast", (X * 9, 34), (X * 9).astype("i4"))
    yield Row("Cast", (N, 43), N.astype("f4"))
    yield Row("AddN", ((X, Y, X),), X + Y + X)
    yield Row("AddN", (X, Y), X + Y)
    gradient, zero = np.arange(1, 4, dtype="f4"), np.array([0, -1, 2], "f4")
    yield Row("ReluGrad", (gradient, zero), np.array([0, 0, 3], "f4"))
    yield Row("ReLUGrad", (gradient, zero), np.array([0, 0, 3], "f4"))
    yield Row("TanhGrad", (zero, gradient), gradient * (1 - zero * zero))
    yield Row("SigmoidGrad", (zero, gradient), gradient * zero * (1 - zero))


def _reductions() -> Iterator[Row]:
    flags = C > 0.5
    for name, how, x in (("ReduceSum", np.sum, C), ("ReduceMean", np.mean, C), ("ReduceMax", np.max, C), ("ReduceMin", np.min, C),
                         ("ReduceProd", np.prod, C), ("ReduceAll", np.all, ~flags), ("ReduceAny", np.any, flags), ("SumExt", np.sum, C),
                         ("MeanExt", np.mean, C), ("ProdExt", np.prod, C)):
        yield Row(name, (x,), np.asarray(how(x)))
        yield Row(name, (x, (0, -1)), how(x, (0, 2)))
        yield Row(name, (x, 1, True), how(x, 1, keepdims=True))
        yield Row(name, (x,), how(x, 1, keepdims=True), {"axis": 1, "keep_dims": True})
    for name, how in (("Argmax", np.argmax), ("Argmin", np.argmin)):
        yield Row(name, (C,), how(C, -1).astype("i4"))
        yield Row(name, (C,), how(C, 1).astype("i8"), {"axis": 1, "output_type": 35})
    soft = np.exp(C) / np.exp(C).sum(1, keepdims=True)
    yield Row("Softmax", (C,), soft, {"axis": 1})
    yield Row("Softmax", (C, (-1,)), np.exp(C) / np.exp(C).sum(-1, keepdims=True))
    yield Row("Softmax", (C,), np.exp(C) / np.exp(C).sum(-1, keepdims=True))
    yield Row("LogSoftmax", (C,), np.log(soft), {"axis": 1})
    yield Row("LogSoftmax", (C,), np.log(np.exp(C) / np.exp(C).sum(-1, keepdims=True)))
    yield Row("SoftmaxBackward", (C, soft, 1), (C - (C * soft).sum(1, keepdims=True)) * soft)
    yield Row("SoftmaxBackward", (C, soft), (C - (C * soft).sum(-1, keepdims=True)) * soft)


def _shapes() -> Iterator[Row]:
    yield Row("Transpose", (C, (2, 0, 1)), C.transpose(2, 0, 1))
    yield Row("Transpose", (C,), C.transpose(2, 0, 1), {"perm": (-1, 0, 1)})
    yield Row("Reshape", (C, (4, -1)), C.reshape(4, 6))
    yield Row("Reshape", (C,), C.reshape(3, 8), {"shape": (3, 8)})
    yield Row("Flatten", (C,), C.reshape(2, 12))
    yield Row("Concat", ((X, Y), 1), np.concatenate([X, Y], 1))
    yield Row("Concat", ((X, Y),), np.concatenate([X, Y]))
    yield Row("Stack", ((X, Y),), np.stack([X, Y], -1), {"axis": -1})
    yield Row("Stack", ((X, Y),), np.stack([X, Y]))
    yield Row("ExpandDims", (X, 1), X[:, None])
    yield Row("ExpandDims", (X,), X[None])
    yield Row("Squeeze", (X[:, None, :, None].copy(), 1), X[..., None])
    yield Row("Squeeze", (X[:, None, :, None].copy(),), X)
    yield Row("Squeeze", (X[:, None, :, None].copy(),), X[:, None], {"axis": (3,)})
    yield Row("BroadcastTo", (X, (2, 2, 3)), np.broadcast_to(X, (2, 2, 3)))
    yield Row("BroadcastTo", (X,), np.broadcast_to(X, (2, 2, 3)), {"shape": (2, 2, 3)})
    yield Row("Gather", (X, np.array([2, 0], "i4"), 1), X[:, [2, 0]])
    yield Row("Gather", (X, np.array([1, 0, 1], "i4")), X[[1, 0, 1]])
    yield Row("Tile", (X, (2, 1, 2)), np.tile(X, (2, 1, 2)))
    yield Row("Tile", (X,), np.tile(X, (1, 3)), {"multiples": (1, 3)})
    yield Row("Fill", (43, (2, 3), 7), np.full((2, 3), 7, "f4"))
    yield Row("Fill", (34, (), 2), np.full((), 2, "i4"))
    yield Row("Fill", (), np.zeros((2,), "f4"), {"type": 43, "shape": (2,)})
    yield Row("Fill", (), np.full((), 3, "i4"), {"type": 34, "value": 3})
    places, hot = np.array([2, 0], "i4"), np.eye(3, dtype="f4")[[2, 0]]
    on, off = np.asarray(np.float32(5)), np.asarray(np.float32(-1))
    yield Row("OneHot", (places, 3, on, off), hot * 6 - 1)
    yield Row("OneHot", (places, 3, on, off, 0), hot.T * 6 - 1)
    yield Row("TupleGetItem", ((X, Y), 1), Y)
    for name in ("tuple_getitem", "ListGetItem"):
        yield Row(name, ((X, Y), -2), X)


def _products() -> Iterator[Row]:
    for name in ("MatMul", "MatMulExt"):
        yield Row(name, (X, Y.T.copy()), X @ Y.T)
    yield Row("MatMul", (X, Y), X @ Y.T, {"transpose_b": True})
    yield Row("MatMul", (X.T.copy(), Y.T.copy()), X @ Y.T, {"transpose_a": True})
    yield Row("MatMul", (X.T.copy(), Y, True, True), X @ Y.T)
    yield Row("MatMulExt", (X.T.copy(), Y, True, True), X @ Y.T)
    yield Row("MatMul", (X, C), X @ C)
    yield Row("BatchMatMul", (C, C, False, True), C @ C.transpose(0, 2, 1))
    yield Row("BatchMatMul", (C, C, True, False), C.transpose(0, 2, 1) @ C)
    yield Row("BatchMatMul", (C, C[:1].transpose(0, 2, 1).copy()), C @ C[:1].transpose(0, 2, 1))
    yield Row("Dense", (X, Y, np.array([1, 2], "f4")), X @ Y.T + np.array([1, 2], "f4"))
    yield Row("Dense", (X, Y), X @ Y.T)
    yield Row("Dense", (X, Y, None), X @ Y.T)
    yield Row("BiasAdd", (C, np.array([1, 2, 3], "f4")), C + np.array([[1], [2], [3]], "f4"))


def _same(x: Array, size: tuple[int, int], strides: tuple[int, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding such that there are as many windows as strides fit: what is odd is behind."""
    whole = [max(0, (-(-n // s) - 1) * s + k - n) for n, k, s in zip(x.shape[2:], size, strides, strict=True)]
    return tuple(w // 2 for w in whole), tuple(w - w // 2 for w in whole)


def _windows() -> Iterator[Row]:
    plain = {"strides": (1, 1), "low": (0, 0), "high": (0, 0), "dilation": (1, 1)}
    yield Row("Conv2D", (IMAGE, KERNEL), convolution(IMAGE, KERNEL, **plain), {"kernel_size": (3, 2)})
    yield Row("Conv2D", (IMAGE, KERNEL), convolution(IMAGE, KERNEL, **{**plain, "strides": (2, 1), "dilation": (1, 3), "low": (1, 2), "high": (0, 1)}),
              {"stride": (1, 1, 2, 1), "dilation": (1, 1, 1, 3), "pad_mode": 0, "pad": (1, 0, 2, 1)})
    yield Row("Conv2D", (IMAGE, KERNEL), convolution(IMAGE, KERNEL, **{**plain, "low": (1, 1), "high": (1, 1)}), {"pad_mode": "PAD", "pad_list": 1})
    low, high = _same(IMAGE, (3, 2), (2, 2))
    yield Row("Conv2D", (IMAGE, KERNEL), convolution(IMAGE, KERNEL, **{**plain, "strides": (2, 2), "low": low, "high": high}),
              {"strides": 2, "pad_mode": "same"})
    yield Row("Conv2D", (IMAGE, KERNEL[:, :1].copy()), convolution(IMAGE, KERNEL[:, :1], **plain, groups=2), {"group": 2, "pad_mode": "valid", "pad": (1, 1, 1, 1)})
    for name, how, value in (("MaxPool", largest, -np.inf), ("AvgPool", mean, 0)):
        attrs = {"kernel_size": (1, 1, 3, 2), "strides": (1, 1, 2, 1)}
        found = pooling(IMAGE, how, size=(3, 2), value=value, **{**plain, "strides": (2, 1)})
        yield Row(name, (IMAGE,), found, {**attrs, "pad_mode": 2})
        yield Row(name, (IMAGE,), pooling(IMAGE, how, size=(3, 2), value=value, **plain), {"kernel_size": (3, 2)})
        found = pooling(IMAGE, how, size=(3, 2), value=value, **{**plain, "strides": (2, 2)})
        yield Row(name, (IMAGE,), found, {"kernel_size": (3, 2), "stride": 2})
        low, high = _same(IMAGE, (2, 2), (1, 1))
        inside = how if name == "MaxPool" else lambda part: np.asarray(np.nanmean(part, -1))
        wanted = pooling(IMAGE, inside, size=(2, 2), value=value if name == "MaxPool" else np.nan, **{**plain, "low": low, "high": high})
        yield Row(name, (IMAGE,), wanted, {"kernel_size": 2, "pad_mode": 1})


ROWS = [row for family in (_elementwise, _reductions, _shapes, _products, _windows) for row in family()]

ELSEWHERE = {"MakeTuple", "make_tuple", "MakeList", "return", "Return"}
"""What programs of other tests are made with."""


@pytest.mark.parametrize("row", ROWS, ids=[f"{r.name} {k}" for k, r in enumerate(ROWS)])
def test_primitives_give_what_numpy_gives(row: Row) -> None:
    check(row)


def passes(test: Callable[..., None], row: Row) -> bool:
    try:
        test(row)
    except (AssertionError, DeepxGraphError):
        return False
    return True


IDLE = {("Conv2D", "kernel_size"), *((pool, name) for pool in ("MaxPool", "AvgPool") for name in ("dilation", "pad", "pad_list"))}
"""What is asked for beside what matters: the size of a kernel that is there, options of convolutions that poolings do not have."""

LAW = AttributeLaw(Args, "plain", [partial(passes, check, row) for row in ROWS])


def test_every_primitive_has_a_row() -> None:
    assert RULES.keys() - {row.name for row in ROWS} == ELSEWHERE


def test_every_option_matters() -> None:
    assert set(LAW.without_effect()) == IDLE


def test_every_default_matters() -> None:
    assert set(LAW.defaults_without_effect()) <= IDLE | {("Conv2D", "pad_list")}
