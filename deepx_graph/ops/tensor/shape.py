"""Operations that join, cut, pad and pick elements, and iota.

Attributes that hold dimensions have kind `dims`: ints, or symbols that are replaced when a module is specialised.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from deepx_graph.errors import InferError
from deepx_graph.ir import Attr, Builder, Node, Op, Operand, Relation, Result
from deepx_graph.ir.constraint import (
    NON_NEGATIVE,
    POSITIVE,
    SCALAR,
    TENSOR,
    axes_of,
    equally_many,
    one_for_each_axis,
    same_element_type,
    same_shape,
    some,
)
from deepx_graph.ir.evaluation import BLOCK, nothing
from deepx_graph.literal import Array
from deepx_graph.ops.contract.reduce import reduction
from deepx_graph.ops.factors.layout import CONCATENATE, IOTA, PAD, SLICE
from deepx_graph.ops.helpers import NUMERIC, dtype_attr, loops_in, one, placed_by, shape_attr
from deepx_graph.ops.math.elementwise import add, subtract
from deepx_graph.ops.tensor.layout import show_dims
from deepx_graph.types import (
    ANY,
    BF16,
    F32,
    I8,
    I32,
    Dim,
    DType,
    TensorType,
    Type,
    add_dims,
    as_tensor,
    call_dim,
    dilated,
    merge_dims,
    tensor,
)

# --- joining and cutting ------------------------------------------------------------------------------------------


def _others(type: Type, dimension: int) -> TensorType:
    """The type without that axis."""
    t = as_tensor(type)
    return t if t.dims is None else t.with_dims(t.dims[:dimension] + t.dims[dimension + 1 :])


_SAME = same_shape("inputs")


def _are_alike(inputs: Sequence[Type], dimension: int) -> bool:
    ranks = {as_tensor(t).rank for t in inputs} - {None}
    return len(ranks) <= 1 and _SAME.holds(tuple(_others(t, dimension) for t in inputs))


_ALIKE = Relation("inputs of one shape but for the size of dimension", ("inputs", "dimension"), _are_alike)


def _concatenate_type(types: Sequence[Type], dimension: int) -> Type:
    parts = [as_tensor(t, k) for k, t in enumerate(types)]
    dtype = next((p.dtype for p in parts if p.dtype is not ANY), ANY)
    known = [p.dims for p in parts if p.dims is not None]
    if len(known) < len(parts):
        return tensor(dtype, None)
    rest = functools.reduce(merge_dims, (_others(p, dimension).dims for p in parts))
    assert rest is not None
    joined = add_dims(*(dims[dimension] for dims in known))
    return tensor(dtype, (*rest[:dimension], joined, *rest[dimension:]))


def _concatenate_vjp(b: Builder, node: Node, g: Node) -> Sequence[Node | None]:
    axis, at, parts = node.attr("dimension"), 0, []
    whole = list(as_tensor(g.type).shape)
    for operand in node.inputs:
        size = as_tensor(operand.type).shape[axis]
        start, limit = [0] * len(whole), list(whole)
        start[axis], limit[axis] = at, at + size
        parts.append(b(slice_, g, start_indices=tuple(start), limit_indices=tuple(limit), strides=(1,) * len(whole)))
        at += size
    return parts


concatenate: Op = Op(
    "concatenate", "The operands one after the other along an axis.", operands=(Operand("inputs", variadic=True, type=TENSOR),),
    attrs=(Attr("dimension", "int", check=NON_NEGATIVE),),
    constraints=(some("inputs"), same_element_type("inputs"), axes_of("inputs", "dimension"), _ALIKE), sharding=CONCATENATE,
    algebraic=True, infer=_concatenate_type,
    eval=lambda xs, dimension: np.concatenate(xs, axis=dimension), element=loops_in("layout", "concatenate_element"),
    staged=lambda types, result, dimension: lambda *xs: np.concatenate(xs, dimension),
    scratch=nothing,
    vjp=_concatenate_vjp, assembly="operands, dim = $dimension",
    place=placed_by("concatenate_place"), source="StableHLO concatenate",
    samples=lambda rng: [((rng.random((2, 3)), rng.random((2, 1)), rng.random((2, 0))), {"dimension": 1}),
                         ((rng.random((2, 3)), rng.random((1, 3))), {"dimension": 0})],
)  # fmt: skip


def _slice_size(start: int, limit: int, stride: int) -> int:
    return max(0, -(-(limit - start) // stride))


def _slice_type(types: Sequence[Type], start: tuple[int, ...], limit: tuple[int, ...], strides: tuple[int, ...]) -> Type:
    operand = as_tensor(types[0], 0)
    for k, (low, high, step) in enumerate(zip(start, limit, strides, strict=True)):
        size: Dim = operand.dims[k] if operand.dims is not None else high
        if low > high or (isinstance(size, int) and high > size):
            raise InferError(f"slice {low}:{high}:{step} of dimension {k} of {operand}", expected=f"0 <= start <= limit <= {size}")
    return operand.with_dims(map(_slice_size, start, limit, strides))


def _slice_vjp(b: Builder, node: Node, g: Node) -> Sequence[Node | None]:
    start, _, strides = node.attrs
    old, new = as_tensor(node.inputs[0].type).shape, as_tensor(g.type).shape
    covered = [s + max(0, n - 1) * t + min(n, 1) for s, n, t in zip(start, new, strides, strict=True)]
    return (b(pad, g, b.like(0, g), edge_padding_low=start, interior_padding=tuple(t - 1 for t in strides),
              edge_padding_high=tuple(o - c for o, c in zip(old, covered, strict=True))),)  # fmt: skip


slice_: Op = Op(
    "slice", "A strided box of the operand.", operands=one(TENSOR),
    attrs=(Attr("start_indices", "ints", check=NON_NEGATIVE), Attr("limit_indices", "ints", check=NON_NEGATIVE),
           Attr("strides", "ints", check=POSITIVE, neutral=1)),
    constraints=(equally_many("start_indices", "limit_indices", "strides"), one_for_each_axis("operand", "start_indices")),
    sharding=SLICE, infer=_slice_type,
    eval=lambda xs, start, limit, strides: xs[0][tuple(map(slice, start, limit, strides))], view=True,
    staged=lambda types, result, start, limit, strides: itemgetter(tuple(map(slice, start, limit, strides))),
    element=lambda b, node, xs, at: xs[0].at(b, [i * s + low for i, s, low in zip(
        at, node.attr("strides"), node.attr("start_indices"), strict=True)]), vjp=_slice_vjp,
    assembly="operands, from $start_indices to $limit_indices by $strides",
    place=placed_by("slice_place"), source="StableHLO slice",
    samples=lambda rng: [
        ((rng.random((5, 4)),), {"start_indices": (1, 0), "limit_indices": (5, 4), "strides": (2, 3)}),
        ((rng.random((5, 4)),), {"start_indices": (2, 4), "limit_indices": (2, 4), "strides": (1, 1)}),
    ],
)  # fmt: skip


def _padded(size: int, low: int, high: int, interior: int) -> int:
    return size + low + high + max(0, size - 1) * interior


def _pad_type(types: Sequence[Type], low: tuple[int, ...], high: tuple[int, ...], interior: tuple[int, ...]) -> Type:
    operand = as_tensor(types[0], 0)
    if operand.dims is None:
        return operand
    dims = [_padded(d, *p) if isinstance(d, int) else _unknown_padded(d, *p)
            for d, *p in zip(operand.dims, low, high, interior, strict=True)]
    if any(isinstance(d, int) and d < 0 for d in dims):
        raise InferError(f"{operand} padded by {show_dims(low)} and {show_dims(high)} has a negative size")
    return operand.with_dims(dims)


def _unknown_padded(size: str, low: int, high: int, interior: int) -> Dim:
    return call_dim("window", size, 1, 1, low + high, interior + 1, 1) if interior else add_dims(size, low + high)


def spread_and_pad(x: Array, value: Any, low: tuple[int, ...], high: tuple[int, ...], base: tuple[int, ...]) -> Array:
    """`x` with gaps and padding of `value`; negative padding cuts off."""
    shape = [max(0, dilated(s, d) + lo + hi) for s, d, lo, hi in zip(x.shape, base, low, high, strict=True)]
    out = np.full(shape, value, dtype=x.dtype)
    source, target = [], []
    for size, total, step, before in zip(x.shape, shape, base, low, strict=True):
        first = max(0, -(before // step)) if before < 0 else 0
        last = min(size, (total - 1 - before) // step + 1)
        if last <= first:
            return out
        source.append(slice(first, last))
        target.append(slice(before + first * step, before + (last - 1) * step + 1, step))
    out[tuple(target)] = x[tuple(source)]
    return out


def pad_staged(types: Sequence[Type], result: Type, low: tuple[int, ...], high: tuple[int, ...], interior: tuple[int, ...]
               ) -> Callable[..., Any]:
    """The eval of a `pad`, to the dtype of the result."""
    source, target, shape = [], [], as_tensor(result).shape
    for size, total, before, gap in zip(as_tensor(types[0]).shape, shape, low, interior, strict=True):
        step = gap + 1
        first = max(0, -(before // step)) if before < 0 else 0
        last = max(first, min(size, (total - 1 - before) // step + 1))
        source.append(slice(first, last))
        target.append(slice(before + first * step, max(0, before + (last - 1) * step + 1), step))
    dtype, inner, outer = as_tensor(result).dtype.np, tuple(source), tuple(target)

    def run(x: Array, value: Any) -> Array:
        out = np.empty(shape, dtype)
        out.fill(value)
        out[outer] = x[inner]
        return out

    return run


def _pad_vjp(b: Builder, node: Node, g: Node) -> Sequence[Node | None]:
    low, high, interior = node.attrs
    old = as_tensor(node.inputs[0].type).shape
    zero = b.like(0, g)
    cut = b(pad, g, zero, edge_padding_low=tuple(-p for p in low), edge_padding_high=tuple(-p for p in high),
            interior_padding=(0,) * len(low))
    size = as_tensor(cut.type).shape
    taken = b(slice_, cut, start_indices=(0,) * len(low), limit_indices=size, strides=tuple(i + 1 for i in interior))
    everywhere = tuple(range(len(old)))
    rest = b(subtract, reduction(b, add, g, everywhere), reduction(b, add, taken, everywhere))
    return taken, rest


pad: Op = Op(
    "pad", "Surrounded, and interspersed, with a value; negative edge padding cuts off.",
    operands=(Operand("operand", type=TENSOR), Operand("padding_value", type=TENSOR & SCALAR)),
    attrs=(Attr("edge_padding_low", "ints", neutral=0), Attr("edge_padding_high", "ints", neutral=0),
           Attr("interior_padding", "ints", check=NON_NEGATIVE, neutral=0)),
    constraints=(same_element_type("operand", "padding_value"),
                 equally_many("edge_padding_low", "edge_padding_high", "interior_padding"),
                 one_for_each_axis("operand", "edge_padding_low")),
    sharding=PAD, algebraic=True, infer=_pad_type,
    eval=lambda xs, low, high, interior: spread_and_pad(xs[0], xs[1], low, high, tuple(i + 1 for i in interior)),
    element=loops_in("layout", "pad_element"), staged=pad_staged, scratch=nothing, vjp=_pad_vjp,
    assembly="operands, low = $edge_padding_low, high = $edge_padding_high, interior = $interior_padding",
    place=placed_by("pad_place"), source="StableHLO pad",
    samples=lambda rng: [
        ((rng.random((2, 3)), np.float64(0.5)), {"edge_padding_low": a, "edge_padding_high": b, "interior_padding": i})
        for a, b, i in (((1, 0), (0, 2), (0, 1)), ((-1, 2), (1, -2), (2, 0)), ((0, -1), (-1, 0), (1, 3)), ((-2, 0), (0, 0), (0, 0)))
    ],
)  # fmt: skip


def _iota_staged(types: Sequence[Type], result: Type, *attrs: Any) -> Callable[..., Any] | None:
    return _iota_eval((), *attrs).copy if as_tensor(result).size <= BLOCK else None


def _iota_eval(xs: Sequence[Array], dtype: DType, shape: tuple[int, ...], iota_dimension: int) -> Array:
    steps = np.arange(shape[iota_dimension]).astype(dtype.np)
    return np.broadcast_to(steps.reshape([-1 if k == iota_dimension else 1 for k in range(len(shape))]), shape)


iota: Op = Op(
    "iota", "0, 1, 2, ... along one axis.",
    attrs=(dtype_attr(*NUMERIC), shape_attr(), Attr("iota_dimension", "int", 0, check=NON_NEGATIVE)),
    constraints=(Relation("iota_dimension within shape", ("iota_dimension", "shape"), lambda k, shape: k < len(shape)),),
    sharding=IOTA, algebraic=True, infer=lambda types, dtype, shape, iota_dimension: tensor(dtype, shape), eval=_iota_eval,
    element=loops_in("layout", "iota_element"), staged=_iota_staged,
    vjp=lambda b, node, g: (), view=True, foldable=False, assembly="dim = $iota_dimension", results=(Result("output"),),
    source="StableHLO iota",
    samples=lambda rng: [((), {"dtype": d, "shape": s, "iota_dimension": k})
                         for s, k in (((2, 3), 0), ((2, 3), 1), ((4,), 0)) for d in (F32, I32, I8, BF16)],
)  # fmt: skip
