"""Slices at positions that are computed: read, and written over. A position out of range is moved to the nearest that is not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deepx_graph.errors import InferError, an
from deepx_graph.ir import Attr, Builder, Node, Op, Operand
from deepx_graph.ir.constraint import (
    INTEGERS,
    NON_NEGATIVE,
    SCALAR,
    TENSOR,
    equally_many,
    one_for_each_axis,
    same_element_type,
)
from deepx_graph.ir.evaluation import nothing
from deepx_graph.literal import Array
from deepx_graph.ops.helpers import loops_in
from deepx_graph.types import Type, as_tensor

Axes = tuple[int, ...]

_STARTS = Operand("start_indices", variadic=True, type=INTEGERS & SCALAR)


def clamped_starts(starts: Sequence[Array], shape: Sequence[int], sizes: Sequence[int]) -> tuple[slice, ...]:
    found = []
    for start, whole, size in zip(starts, shape, sizes, strict=True):
        at = min(max(0, int(start)), whole - size)
        found.append(slice(at, at + size))
    return tuple(found)


def _dynamic_slice_type(types: Sequence[Type], slice_sizes: Axes) -> Type:
    operand = as_tensor(types[0], 0)
    for k, size in enumerate(slice_sizes):
        whole = operand.dims[k] if operand.dims is not None and k < len(operand.dims) else size
        if isinstance(whole, int) and size > whole:
            raise InferError(f"a slice of {size} from dimension {k} of {operand}", expected=f"0 to {whole}")
    return operand.with_dims(slice_sizes)


def _dynamic_slice_vjp(b: Builder, node: Node, g: Node) -> Sequence[Node | None]:
    zeros = b.splat(0, as_tensor(node.inputs[0].type))
    return b(dynamic_update_slice, zeros, g, *node.inputs[1:]), *(None for _ in node.inputs[1:])


dynamic_slice: Op = Op(
    "dynamic_slice", "A box of the operand at computed start indices, moved inside where it would stick out.",
    operands=(Operand("operand", type=TENSOR), _STARTS), attrs=(Attr("slice_sizes", "ints", check=NON_NEGATIVE),),
    constraints=(equally_many("start_indices", "slice_sizes"), one_for_each_axis("operand", "start_indices")),
    infer=_dynamic_slice_type, eval=lambda xs, sizes: xs[0][clamped_starts(xs[1:], xs[0].shape, sizes)], view=True,
    element=loops_in("index", "dynamic_slice_element"), vjp=_dynamic_slice_vjp, assembly="operands, sizes = $slice_sizes",
    source="StableHLO dynamic_slice",
    samples=lambda rng: [((rng.random((4, 5)), np.int32(a), np.int32(b)), {"slice_sizes": sizes})
                         for a, b, sizes in ((1, 2, (2, 3)), (-3, 9, (2, 3)), (1, 1, (3, 1)))],
)  # fmt: skip


def _dynamic_update_type(types: Sequence[Type]) -> Type:
    operand, update = as_tensor(types[0], 0), as_tensor(types[1], 1)
    if operand.dims is not None and update.dims is not None:
        fits = len(operand.dims) == len(update.dims) and all(
            isinstance(d, str) or isinstance(u, str) or u <= d for d, u in zip(operand.dims, update.dims, strict=True)
        )
        if not fits:
            raise InferError(f"the update is {an(update)}", operand=1, expected=f"no larger than {operand}")
    return operand


def _dynamic_update(xs: Sequence[Array]) -> Array:
    out = xs[0].copy()
    out[clamped_starts(xs[2:], out.shape, xs[1].shape)] = xs[1]
    return out


def _dynamic_update_vjp(b: Builder, node: Node, g: Node) -> Sequence[Node | None]:
    starts, update = node.inputs[2:], as_tensor(node.inputs[1].type)
    zeros = b.splat(0, update)
    return (b(dynamic_update_slice, g, zeros, *starts), b(dynamic_slice, g, *starts, slice_sizes=update.shape),
            *(None for _ in starts))  # fmt: skip


dynamic_update_slice: Op = Op(
    "dynamic_update_slice", "The operand with a box at computed start indices replaced; moved inside if it sticks out.",
    operands=(Operand("operand", type=TENSOR), Operand("update", type=TENSOR), _STARTS),
    constraints=(same_element_type("operand", "update"), one_for_each_axis("operand", "start_indices")),
    infer=_dynamic_update_type, eval=_dynamic_update, scratch=nothing, vjp=_dynamic_update_vjp,
    loops=loops_in("index", "dynamic_update_slice_loops"),
    source="StableHLO dynamic_update_slice",
    samples=lambda rng: [((rng.random((4, 5)), rng.random((2, 3)), np.int32(a), np.int32(b)), {}) for a, b in ((1, 2), (-3, 9))],
)  # fmt: skip
