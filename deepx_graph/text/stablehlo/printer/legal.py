"""A function of our operations as one of operations that StableHLO has, meaning the same.

Fusions are opened, scalars that stand for all elements are broadcast, closures called where they are made become calls, and what
is ours alone is spelled in StableHLO's terms. A function that has nothing of this is returned as it is; so printing what was read
from a printed text changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import Diagnostic, InferError, VerifyError
from deepx_graph.ir import Builder, Function, Node, Op
from deepx_graph.ir.structure import CALL, CALL_VALUE, PARTIAL, REGION, TUPLE
from deepx_graph.ops.data.fusion import inlined
from deepx_graph.text.common import special
from deepx_graph.text.common.special import Formula, in_f32
from deepx_graph.text.stablehlo.printer.flat import flattened
from deepx_graph.types import I32, FunctionType, TensorType, TupleType, as_tensor, scalar

Rule = Callable[[Builder, Node, Sequence[Node]], Node | None]


def legal(function: Function) -> Function:
    """The function in StableHLO's operations. Raises VerifyError where a shape that is needed is not known."""
    function = flattened(function)
    while any(n.op in RULES or _is_mixed(n) for n in function.nodes):
        again = _rewritten(function)
        if again is None:
            break
        function = again
    return function


def _rewritten(function: Function) -> Function | None:
    """One round over all nodes; None when it changed nothing."""
    b = Builder()
    new: dict[Node, Node] = {}
    changed = False
    for node in function.nodes:
        b.origin = node.origin
        inputs = tuple(new[i] for i in node.inputs)
        try:
            if _is_mixed(node):
                inputs = _widened(b, node, inputs)
                changed = True
            rule = RULES.get(node.op)
            found = rule(b, node, inputs) if rule else None
        except InferError as e:
            raise VerifyError(e.diagnostic(node.span, f"{node.op.name}: ")) from None
        changed |= found is not None
        new[node] = b.make(node.op, inputs, node.attrs, node.type) if found is None else found
    if not changed:
        return None
    return function.with_(params=tuple(new[p] for p in function.params), results=tuple(new[r] for r in function.results))


# --- scalars that stand for all elements ----------------------------------------------------------------------------

_SCALARS: dict[Op, tuple[int, ...]] = {ops.select: (0,), ops.clamp: (0, 2)}
"""Operands that may be scalars beside tensors in StableHLO too."""


def _is_mixed(node: Node) -> bool:
    """An elementwise node with a scalar among tensors, where StableHLO has no such thing."""
    if not node.op.elementwise or len(node.inputs) < 2:
        return False
    first = node.inputs[0].type.dims  # type: ignore[attr-defined]
    if all(i.type.dims is first or i.type.dims == first for i in node.inputs):  # type: ignore[attr-defined]
        return False
    return bool(_narrow(node))


def _narrow(node: Node) -> list[int]:
    """The operands to broadcast."""
    free = _SCALARS.get(node.op, ())
    ranks = [i.type.rank for i in node.inputs]  # type: ignore[attr-defined]
    if not node.type.rank:  # type: ignore[attr-defined]
        return []
    return [k for k, rank in enumerate(ranks) if rank == 0 and k not in free]


def _widened(b: Builder, node: Node, inputs: tuple[Node, ...]) -> tuple[Node, ...]:
    whole = as_tensor(node.type)
    if not whole.is_static:
        raise VerifyError(Diagnostic(f"{node.op.name}: a scalar cannot be broadcast to the unknown shape of {whole}", node.span,
                                     hint="give the inputs' shapes first"))
    made: dict[Node, Node] = {}
    for k in _narrow(node):
        if inputs[k] not in made:
            made[inputs[k]] = b(ops.broadcast_in_dim, inputs[k], shape=whole.shape, broadcast_dimensions=())
    return tuple(made.get(x, x) if k in _narrow(node) else x for k, x in enumerate(inputs))


# --- what is ours alone ---------------------------------------------------------------------------------------------


def _same(b: Builder, node: Node, inputs: Sequence[Node]) -> Node:
    return inputs[0]


def _fusion(b: Builder, node: Node, inputs: Sequence[Node]) -> Node:
    results = inlined(b, node.attrs[0], inputs)
    return results[0] if len(results) == 1 else b.make(TUPLE, tuple(results), (), node.type)


def _call_value(b: Builder, node: Node, inputs: Sequence[Node]) -> Node | None:
    """A closure that is called where it is made is a call."""
    if inputs[0].op is not PARTIAL:
        return None
    signature: FunctionType = inputs[0].attr("signature")
    return b.make(CALL, (*inputs[0].inputs, *inputs[1:]), inputs[0].attrs, TupleType(signature.results))


def _floor_mod(b: Builder, node: Node, inputs: Sequence[Node]) -> Node:
    """The remainder, brought to the divisor's sign; a zero of floats has that sign too."""
    x, y = inputs
    type = as_tensor(node.type)
    zero = b.splat(0, type)
    rest = b(ops.remainder, x, y)
    below, rest_below = (b(ops.compare, v, zero, direction="LT") for v in (y, rest))
    is_zero = b(ops.compare, rest, zero, direction="EQ")
    moved = b(ops.select, b(ops.xor, below, rest_below), b(ops.add, rest, y), rest)
    nothing = b(ops.select, below, b.splat(-0.0, type), zero) if type.dtype.is_float else zero
    return b(ops.select, is_zero, nothing, moved)


def _around(node: Node, index: Node, dim: int) -> tuple[int, tuple[int, ...]]:
    """The rank of the index, and the dimensions of the slices that are not of the index."""
    rank, count = len(as_tensor(node.inputs[0].type).shape), len(as_tensor(index.type).shape)
    return count, (*range(dim), *range(dim + count, rank - 1 + count))


def _take(b: Builder, node: Node, inputs: Sequence[Node]) -> Node:
    operand, index = inputs
    dim: int = node.attr("dim")
    count, offsets = _around(node, index, dim)
    sizes = tuple(1 if k == dim else d for k, d in enumerate(as_tensor(operand.type).shape))
    return b(ops.gather, operand, index, offset_dims=offsets, collapsed_slice_dims=(dim,), start_index_map=(dim,),
             index_vector_dim=count, slice_sizes=sizes)


def _index_add(b: Builder, node: Node, inputs: Sequence[Node]) -> Node:
    operand, index, updates = inputs
    dim: int = node.attr("dim")
    count, offsets = _around(node, index, dim)
    whole, places = as_tensor(operand.type), as_tensor(index.type)
    last = min(whole.shape[dim] - 1, int(np.iinfo(places.dtype.np).max))
    clamped = b(ops.clamp, b.like(0, index), index, b.like(last, index))
    return b(ops.scatter, operand, clamped, updates, update_window_dims=offsets, inserted_window_dims=(dim,),
             scatter_dims_to_operand_dims=(dim,), index_vector_dim=count, update_computation=ops.monoid_body(ops.add, whole.dtype))


def _region(b: Builder, node: Node, inputs: Sequence[Node]) -> Node | None:
    """A case is selected by an i32; numbers beyond the branches stay beyond them."""
    selector = as_tensor(inputs[0].type).dtype
    if not selector.is_integer or selector is I32:
        return None
    least, most = (-1 if selector.kind == "int" else 0), node.attrs[0]
    narrow = inputs[0]
    if selector.bits >= 32:
        narrow = b(ops.clamp, b.like(least, narrow), narrow, b.like(most, narrow))
    return b.make(REGION, (b(ops.convert, narrow, dtype=I32), *inputs[1:]), node.attrs, node.type)


def _iota(b: Builder, node: Node, inputs: Sequence[Node]) -> Node | None:
    return None if node.attr("shape") else b.splat(0, scalar(node.attr("dtype")))


def _abs(b: Builder, node: Node, inputs: Sequence[Node]) -> Node | None:
    """StableHLO's has no unsigned integers."""
    return inputs[0] if as_tensor(node.type).dtype.kind == "uint" else None


def _sign(b: Builder, node: Node, inputs: Sequence[Node]) -> Node | None:
    """StableHLO's has no unsigned integers."""
    type = as_tensor(node.type)
    return b(ops.minimum, inputs[0], b.splat(1, type)) if type.dtype.kind == "uint" else None


def _draw(b: Builder, node: Node, inputs: Sequence[Node]) -> Node | None:
    """The bounds of a draw have the dtype of its result."""
    assert isinstance(node.type, TensorType)
    dtype = node.type.dtype
    if all(as_tensor(x.type).dtype is dtype for x in inputs[:2]):
        return None
    bounds = [x if as_tensor(x.type).dtype is dtype else b(ops.convert, x, dtype=dtype) for x in inputs[:2]]
    return b.make(node.op, (*bounds, inputs[2]), node.attrs, node.type)


def _formula(formula: Formula) -> Rule:
    return lambda b, node, inputs: formula(b, *inputs)


RULES: dict[Op, Rule] = {
    ops.bessel_i0e: _formula(in_f32(special.bessel_i0e)),
    ops.fusion: _fusion,
    CALL_VALUE: _call_value,
    ops.floor_mod: _floor_mod,
    ops.torch_index_select: _take,
    ops.index_add: _index_add,
    ops.stop_gradient: _same,
    ops.ensure_type: _same,
    REGION: _region,
    ops.iota: _iota,
    ops.abs_: _abs,
    ops.sign: _sign,
    ops.rng_uniform: _draw,
    ops.rng_normal: _draw,
}
"""Operations that are spelled in others; a rule gives None where the node is fine as it stands."""
