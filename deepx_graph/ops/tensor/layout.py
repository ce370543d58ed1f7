"""Operations that give the same elements another shape or order, or another type as far as it is known.

Attributes that hold dimensions have kind `dims`: ints, or symbols that are replaced when a module is specialised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter, methodcaller
from typing import Any

import numpy as np

from deepx_graph.errors import InferError
from deepx_graph.ir import Attr, Node, Op, Result
from deepx_graph.ir.constraint import NON_NEGATIVE, PERMUTATION, TENSOR, VALUE, axes_of, one_for_each_axis
from deepx_graph.ir.factor_rule import POINTWISE
from deepx_graph.ops.factors.layout import RESHAPE, REVERSE, TRANSPOSE
from deepx_graph.ops.helpers import loops_in, one, placed_by, shape_attr
from deepx_graph.types import F32, I32, Dims, TensorType, Type, as_tensor, merge_types, mul_dims, same_dim, scalar, tensor

_X = one(TENSOR)


def dims_of(node: Node) -> Dims:
    """The dims of a tensor-typed node. Raises InferError when the rank is unknown."""
    assert isinstance(node.type, TensorType)
    if node.type.dims is None:
        raise InferError(f"the rank of {node.type} is not known", hint="give the inputs' shapes first")
    return node.type.dims


def show_dims(dims: Dims) -> str:
    """`[2,3]`."""
    return f"[{','.join(map(str, dims))}]"


# --- reshape, transpose, broadcast --------------------------------------------------------------------------------


def _reshape_type(types: Sequence[Type], shape: Dims) -> Type:
    operand = as_tensor(types[0], 0)
    if operand.dims is not None:
        old, new = mul_dims(operand.dims), mul_dims(shape)
        if not same_dim(old, new):
            raise InferError(
                f"{operand} has {old} elements and {show_dims(shape)} has {new}", expected=f"a shape of {old} elements"
            )
    return operand.with_dims(shape)


def reshape_axes(old: Dims, new: Dims) -> tuple[int | None, ...] | None:
    """Along which axis of the new shape each old one lies, None for one of size 1 that is dropped; None in all where more than axes
    of size 1 are added and dropped."""
    found: list[int | None] = []
    at = 0
    for size in old:
        while at < len(new) and new[at] != size and new[at] == 1:
            at += 1
        if at < len(new) and new[at] == size:
            found.append(at)
            at += 1
        elif size == 1:
            found.append(None)
        else:
            return None
    return tuple(found) if all(d == 1 for d in new[at:]) else None


def _reshape_staged(types: Sequence[Type], result: Type, shape: tuple[int, ...]) -> Callable[..., Any]:
    return methodcaller("reshape", shape) if shape else itemgetter((0,) * len(as_tensor(types[0]).shape))


reshape: Op = Op(
    "reshape", "The same elements in row-major order in another shape.", operands=_X, attrs=(shape_attr(),),
    sharding=RESHAPE,
    infer=_reshape_type, eval=lambda xs, shape: xs[0].reshape(shape), view=True, axes=reshape_axes, staged=_reshape_staged,
    element=loops_in("layout", "reshape_element"),
    vjp=lambda b, node, g: (b(reshape, g, shape=dims_of(node.inputs[0])),),
    place=placed_by("reshape_place"), source="StableHLO reshape",
    samples=lambda rng: [((rng.random((2, 3)),), {"shape": s}) for s in ((6,), (3, 2), (1, 6, 1))] + [
        ((rng.random((2, 0)),), {"shape": (0, 5)}), ((rng.random(1),), {"shape": ()})],
)  # fmt: skip


def _transpose_type(types: Sequence[Type], permutation: tuple[int, ...]) -> Type:
    operand = as_tensor(types[0], 0)
    return operand if operand.dims is None else operand.with_dims(operand.dims[p] for p in permutation)


transpose: Op = Op(
    "transpose", "Axes in another order: result axis i is operand axis permutation[i].", operands=_X,
    attrs=(Attr("permutation", "ints", check=PERMUTATION),), constraints=(one_for_each_axis("operand", "permutation"),),
    sharding=TRANSPOSE, infer=_transpose_type, eval=lambda xs, permutation: np.transpose(xs[0], permutation), view=True,
    staged=lambda types, result, permutation: methodcaller("transpose", permutation),
    element=lambda b, node, xs, at: xs[0].at(b, [at[node.attr("permutation").index(k)] for k in range(len(at))]),
    vjp=lambda b, node, g: (b(transpose, g, permutation=tuple(int(i) for i in np.argsort(node.attr("permutation")))),),
    assembly="operands, dims = $permutation",
    place=placed_by("transpose_place"), source="StableHLO transpose",
    samples=lambda rng: [((rng.random((2, 3, 4)),), {"permutation": p}) for p in ((2, 0, 1), (0, 1, 2), (1, 0, 2))],
)  # fmt: skip


reverse: Op = Op(
    "reverse", "Elements in the opposite order along some axes.", operands=_X, attrs=(Attr("dimensions", "ints"),),
    constraints=(axes_of("operand", "dimensions"),), sharding=REVERSE, infer=lambda types, dimensions: types[0],
    eval=lambda xs, dimensions: np.flip(xs[0], dimensions), view=True, involution=True,
    staged=lambda types, result, dimensions: itemgetter(tuple(
        slice(None, None, -1 if k in dimensions else 1) for k in range(len(as_tensor(result).shape)))),
    element=lambda b, node, xs, at: xs[0].at(b, [n - 1 - i if k in node.attr("dimensions") else i
                                                 for k, (i, n) in enumerate(zip(at, xs[0].shape, strict=True))]),
    vjp=lambda b, node, g: (b(reverse, g, dimensions=node.attr("dimensions")),), assembly="operands, dims = $dimensions",
    place=placed_by("reverse_place"), source="StableHLO reverse",
    samples=lambda rng: [((rng.random((2, 3)),), {"dimensions": d}) for d in ((0,), (0, 1), ())],
)  # fmt: skip


# --- sizes --------------------------------------------------------------------------------------------------------


get_dimension_size: Op = Op(
    "get_dimension_size", "The size of one dimension.", operands=_X, attrs=(Attr("dimension", "int", check=NON_NEGATIVE),),
    constraints=(axes_of("operand", "dimension"),), infer=lambda types, dimension: scalar(I32),
    eval=lambda xs, dimension: np.asarray(xs[0].shape[dimension], np.int32),
    vjp=lambda b, node, g: (None,), source="StableHLO get_dimension_size",
    samples=lambda rng: [((rng.random((2, 3)),), {"dimension": d}) for d in (0, 1)],
)  # fmt: skip

# --- types and gradients ------------------------------------------------------------------------------------------


ensure_type: Op = Op(
    "ensure_type", "The operand, which must be of the given type; tells what the text knows and the graph does not yet.",
    operands=_X, attrs=(Attr("type", "type"),), element=lambda b, node, xs, at: xs[0].at(b, at),
    infer=lambda types, type: merge_types(types[0], type), eval=lambda xs, type: xs[0], view=True,
    vjp=lambda b, node, g: (g,),
    place=placed_by("same_place"), source="deepx typed operands",
    samples=lambda rng: [((rng.random((2, 3)).astype("f4"),), {"type": t}) for t in (tensor(F32, None), tensor(F32, ("?1", 3)))],
)  # fmt: skip


stop_gradient: Op = Op(
    "stop_gradient", "The operand; gradients do not pass.", operands=one(VALUE), sharding=POINTWISE,
    results=(Result(type=VALUE),), infer=lambda types: types[0],
    eval=lambda xs: xs[0], element=lambda b, node, xs, at: xs[0].at(b, at),
    view=True, stops_gradient=True, vjp=lambda b, node, g: (None,),
    place=placed_by("same_place"), source="JAX stop_gradient",
)  # fmt: skip

identity: Op = Op(
    "identity", "The operand. A text marks it as a copy, a barrier or the border of a domain; its value is the same.", operands=_X,
    attrs=(Attr("role", "str", "copy", "what the text calls it"),), infer=lambda types, role: types[0],
    sharding=POINTWISE, eval=lambda xs, role: xs[0], view=True, element=lambda b, node, xs, at: xs[0].at(b, at),
    vjp=lambda b, node, g: (g,),
    place=placed_by("same_place"), source="XLA copy, opt-barrier, domain",
    samples=lambda rng: [((rng.random((2, 3)),), {"role": r}) for r in ("copy", "optimization_barrier")],
)  # fmt: skip


def keeps_order(node: Node) -> bool:
    """Whether a view has all elements of its operand in the same order, so that it is contiguous where that is."""
    if node.op is not transpose:
        return node.op is reshape
    type, axes = node.inputs[0].type, node.attr("permutation")
    assert isinstance(type, TensorType)
    moved = [k for k in axes if type.shape[k] != 1]
    return moved == sorted(moved)
