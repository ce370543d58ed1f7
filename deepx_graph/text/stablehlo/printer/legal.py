"""What StableHLO has, and what it says in a way of its own: loops and branches without tuples, broadcasts of scalars, calls of
closures where they are made.

A function that has nothing of this is legal as it is; so printing what was read from a printed text changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deepx_graph import ops
from deepx_graph.errors import Diagnostic, VerifyError
from deepx_graph.ir import Builder, Function, Node, Op
from deepx_graph.ir.rebuild import rebuilt
from deepx_graph.ir.structure import (
    CALL,
    CALL_VALUE,
    LOOP_BEGIN,
    LOOP_END,
    PARTIAL,
    PHI,
    PROJ,
    REGION,
    STRUCTURAL,
    TUPLE,
    index_of,
)
from deepx_graph.rewrite.legalise import ConversionTarget
from deepx_graph.text.stablehlo.printer.ops import FORMS
from deepx_graph.text.xla.table import LACKING_IN_BOTH, LEGAL_FORMS, TABLE
from deepx_graph.types import FunctionType, TupleType, Type, as_tensor, leaves, scalar

# --- loops and branches carry tensors and tokens only ----------------------------------------------------------------

_CONTROL = (REGION, LOOP_BEGIN, LOOP_END)


def flattened(function: Function) -> Function:
    """The function with the leaves of tuples in its loops and branches, each tuple made again behind it."""
    if not any(_carries_tuples(n) for n in function.nodes):
        return function
    b = Builder()

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        b.origin = node.origin
        if _carries_tuples(node):
            return _control(b, node, inputs)
        if (node.op is PHI or node.op is PROJ) and _carries_tuples(node.inputs[0]):
            whole = node.inputs[0].type
            assert isinstance(whole, TupleType)
            first = len(leaves(TupleType(whole.items[: index_of(node)])))
            return _packed(b, node.type, [b(node.op, inputs[0], index=first + k) for k in range(len(leaves(node.type)))])
        if node.op is PROJ and inputs[0].op is TUPLE:
            return inputs[0].inputs[index_of(node)]
        return b.make(node.op, inputs, node.attrs, node.type)

    return rebuilt(function, step)


def _carries_tuples(node: Node) -> bool:
    return node.op in _CONTROL and isinstance(node.type, TupleType) and any(isinstance(t, TupleType) for t in node.type.items)


def _control(b: Builder, node: Node, inputs: Sequence[Node]) -> Node:
    """The branch, the loop's beginning or its end, on leaves."""
    fixed = {REGION: 1, LOOP_BEGIN: 0, LOOP_END: 2}[node.op]
    flat = [leaf for value in inputs[fixed:] for leaf in _leaves(b, value)]
    return b.make(node.op, (*inputs[:fixed], *flat), node.attrs, TupleType(leaves(node.type)))


def _leaves(b: Builder, node: Node) -> list[Node]:
    """The values inside, left to right, taken from where the tuple was made if that is at hand."""
    if not isinstance(node.type, TupleType):
        return [node]
    items = node.inputs if node.op is TUPLE else b.items(node)
    return [leaf for item in items for leaf in _leaves(b, item)]


def _packed(b: Builder, type: Type, parts: list[Node]) -> Node:
    """The value of that type with these leaves, which are taken from the list."""
    if not isinstance(type, TupleType):
        return parts.pop(0)
    return b.pack(*(_packed(b, t, parts) for t in type.items))


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


def _widened(b: Builder, node: Node) -> Node | None:
    """An elementwise node over tensors of one shape."""
    if not _is_mixed(node):
        return None
    whole = as_tensor(node.type)
    if not whole.is_static:
        raise VerifyError(Diagnostic(f"{node.op.name}: a scalar cannot be broadcast to the unknown shape of {whole}", node.span,
                                     hint="give the inputs' shapes first"))
    inputs = list(node.inputs)
    for k in _narrow(node):
        inputs[k] = b(ops.broadcast_in_dim, inputs[k], shape=whole.shape, broadcast_dimensions=())
    return b.intern(node.op, tuple(inputs), node.attrs, node.type, node.origin)


# --- what is said otherwise -----------------------------------------------------------------------------------------


def _call_value(b: Builder, node: Node) -> Node | None:
    """A closure that is called where it is made is a call."""
    closure = node.inputs[0]
    signature: FunctionType = closure.attr("signature")
    return b.make(CALL, (*closure.inputs, *node.inputs[1:]), closure.attrs, TupleType(signature.results))


LACKING: dict[Op, Callable[[Node], bool]] = {
    **LACKING_IN_BOTH, CALL_VALUE: lambda node: node.inputs[0].op is PARTIAL,
}  # fmt: skip
"""Which uses of ops that StableHLO has it has not."""

WRITTEN = {*FORMS, *STRUCTURAL}


def _has(node: Node) -> bool:
    lacking = LACKING.get(node.op)
    return node.op in WRITTEN and not (lacking and lacking(node)) and not _is_mixed(node)


TARGET = ConversionTarget(_has, {
    **LEGAL_FORMS, None: _widened, CALL_VALUE: _call_value, ops.ensure_type: lambda b, node: node.inputs[0],
})  # fmt: skip


# --- StableHLO alone --------------------------------------------------------------------------------------------------

_OTHERS = frozenset(row.op for row in TABLE if not row.mlir.startswith("stablehlo."))
"""Operations that are written in other dialects."""


def _top_k(b: Builder, node: Node) -> Node:
    """The first of the values and their positions, sorted by value."""
    x = node.inputs[0]
    whole, rank = as_tensor(x.type), as_tensor(x.type).rank or 0
    at = b(ops.iota, shape=whole.dims, dtype=as_tensor(node.type.items[1]).dtype, iota_dimension=rank - 1)  # type: ignore[attr-defined]
    params = [b.param(k, scalar(as_tensor(v.type).dtype), name) for k, (v, name) in
              enumerate(((x, "a"), (x, "b"), (at, "i"), (at, "j")))]
    more = b(ops.compare, *params[:2], direction="GT", compare_type="TOTALORDER" if whole.dtype.is_float else "")
    first = Function("first", tuple(params), (more,), public=False)
    ordered = b(ops.sort, x, at, dimension=rank - 1, is_stable=True, comparator=first)
    limit = (*whole.shape[:-1], node.attr("k"))
    return b.pack(*(b(ops.slice_, part, start_indices=(0,) * rank, limit_indices=limit, strides=(1,) * rank)
                    for part in b.items(ordered)))


STABLEHLO_ALONE = ConversionTarget(lambda node: _has(node) and node.op not in _OTHERS, {**TARGET.rules, ops.top_k: _top_k})
"""The same without CHLO, as portable artifacts have it."""
"""What StableHLO, CHLO and the check dialect have."""
