"""Reverse accumulation through straight-line dataflow, by the `vjp` of each declaration.

What every rule would otherwise repeat is done here once: cotangents of a value with several uses are added, that of a rank-0
operand which stood for all elements is summed, and a rank-0 cotangent is spread to the shape of its value.

An op declares one rule, `vjp`, and forward mode follows from it too: what a rule does to a cotangent is linear, and so has a
transpose. The rule is applied to a placeholder cotangent; the result, a linear graph in the placeholder, is pulled back with the
operands' tangents as its cotangents. The placeholder itself drops out.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

from deepx_graph.errors import Diagnostic, InferError, VerifyError
from deepx_graph.ir import Builder, Node, Origin
from deepx_graph.ir.structure import PROJ, index_of
from deepx_graph.ops.contract.reduce import broadcast_in_dim, total_of
from deepx_graph.ops.data.tape import tape_add, tape_empty
from deepx_graph.ops.math.elementwise import add, and_, compare, select
from deepx_graph.ops.vjp.masks import Masks
from deepx_graph.types import ANY, FunctionType, TapeType, TensorType, TupleType, Type

Cotangent = Any
"""None (zero), a Node, or for a tuple-typed value a tuple of these."""


def pullback(b: Builder, roots: Sequence[Node], cotangents: Sequence[Node | None], wrt: Sequence[Node]) -> list[Node | None]:
    """The cotangent of each node of `wrt` when those of `roots` are given; None where it is zero.

    Only nodes on a path from `wrt` to a root are visited. Raises VerifyError, with location and path, for an op without a gradient.
    """
    wanted = set(wrt)
    order = _between(wanted, roots)
    active: set[Node] = set()
    for node in order:
        if node in wanted or (carries(node.type) and any(i in active for i in node.inputs)):
            active.add(node)
    found: dict[Node, Cotangent] = {}
    masks = Masks(b)
    for root, cotangent in zip(roots, cotangents, strict=True):
        if root in active:
            _accumulate(masks, found, root, cotangent)
    for node in reversed(order):
        if node in active and node not in wanted and is_nonzero(found.get(node)):
            try:
                _step(masks, node, found, active)
            except InferError as e:
                raise VerifyError(refusal(node, e, wanted, order, roots)) from None
    return [masks.clean(found.get(w)) for w in wrt]


def through(b: Builder, node: Node, roots: Sequence[Node], g: Cotangent) -> list[Node | None]:
    """The `vjp` of a node by that of an equal program: `roots` compute its results from its own inputs, by other operations."""
    inputs = list(dict.fromkeys(node.inputs))
    found = dict(zip(inputs, pullback(b, roots, g if isinstance(g, tuple) else (g,), inputs), strict=True))
    return [found.pop(i, None) for i in node.inputs]


def _between(wanted: set[Node], roots: Sequence[Node]) -> list[Node]:
    """The nodes that the roots depend on and that may depend on the wanted ones, these included, in topological order.

    Nothing older than all that is wanted is visited: rules that differentiate a few nodes of a large graph rely on it.
    """
    oldest = min((w.serial for w in wanted), default=0)
    seen: set[Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node.serial >= oldest and node not in seen:
            seen.add(node)
            if node not in wanted:
                stack.extend(node.inputs)
    return sorted(seen, key=lambda n: n.serial)


def carries(type: Type) -> bool:
    """Whether a derivative can flow through a value of the type: numbers, a tuple with some, a closure."""
    if isinstance(type, TupleType):
        return any(map(carries, type.items))
    if isinstance(type, TensorType):
        return type.dtype.is_differentiable or type.dtype is ANY
    return isinstance(type, (FunctionType, TapeType))


def _step(masks: Masks, node: Node, found: dict[Node, Cotangent], active: set[Node]) -> None:
    """Hand the cotangent of a node on to its operands. Raises InferError where that cannot be done."""
    g = found.pop(node)
    if node.op is PROJ:
        source = node.inputs[0]
        found[source] = plus(masks, found.get(source), item(source.type, index_of(node), masks.clean(g)))
        return
    check_gradient(node, active)
    masks.b.origin = Origin("", node.origin.spans, node.origin.rewrites).rewritten("grad")
    for operand, cotangent in zip(node.inputs, masks.pulled(node, g), strict=True):
        if operand in active:
            _accumulate(masks, found, operand, cotangent)


def check_gradient(node: Node, active: Container[Node]) -> None:
    """Raises InferError when the op has no gradient, or none by an operand that is active."""
    if node.op.vjp is None:
        raise InferError(f"{node.op.name} has no gradient")
    if node.op.no_gradient_by:
        for name, operand in node.op.named(node.inputs).items():
            if name in node.op.no_gradient_by and operand in active:
                raise InferError(f"{node.op.name} has no gradient by its operand '{name}'")


def refusal(node: Node, error: InferError, wanted: Container[Node], order: Sequence[Node], roots: Sequence[Node]) -> Diagnostic:
    """The error at the node, with a path through it from what is wanted to a root; `order` holds all nodes on such paths."""
    source: dict[Node, Node | None] = {}
    for n in order:
        before = None if n in wanted else next((i for i in n.inputs if i in source), n)
        if before is not n:
            source[n] = before
    after: list[Node] = [node]
    users = {i: n for n in order if n in source for i in n.inputs}
    ends = set(roots)
    while after[-1] not in ends and after[-1] in users:
        after.append(users[after[-1]])
    path: list[Node] = []
    at = source.get(node)
    while at is not None:
        path.append(at)
        at = source[at]
    names = [n.name or n.op.name for n in (*reversed(path), *after)]
    shown = names if len(names) <= 12 else [*names[:6], "...", *names[-5:]]
    found = error.diagnostic(node.span)
    return replace(found, notes=(*found.notes, f"it is needed on the path {' -> '.join(shown)}"))


def is_nonzero(cotangent: Cotangent) -> bool:
    """Whether anything in the cotangent is not zero by construction."""
    return any(map(is_nonzero, cotangent)) if isinstance(cotangent, tuple) else cotangent is not None


def plus(masks: Masks, x: Cotangent, y: Cotangent) -> Cotangent:
    """The sum of two cotangents of one value."""
    if not is_nonzero(x) or not is_nonzero(y):
        return x if is_nonzero(x) else y
    if isinstance(x, tuple):
        return tuple(plus(masks, i, k) for i, k in zip(x, y, strict=True))
    return masks.b(tape_add, x, y) if isinstance(x.type, TapeType) else masks.sum(x, y)


def fitted(b: Builder, g: Cotangent, type: Type, node: Node) -> Cotangent:
    """The cotangent in the shape of a value of that type; what can have none is dropped. Raises as `fit`."""
    if isinstance(type, TupleType):
        if not isinstance(g, tuple):
            g = (None,) * len(type.items) if g is None else b.items(g)
        return tuple(fitted(b, i, t, node) for i, t in zip(g, type.items, strict=True))
    if g is None or not carries(type):
        return None
    return fit(b, g, node) if type is node.type else g


def item(type: Type, k: int, g: Cotangent) -> Cotangent:
    """The cotangent of a tuple whose item `k` has the cotangent `g`, the others zero."""
    assert isinstance(type, TupleType)
    return tuple(g if at == k else None for at in range(len(type.items)))


def zeros(b: Builder, type: Type, like: Node) -> Node:
    """A zero cotangent for a value of a type; `like` is such a value, asked where its shape is not known.

    Raises VerifyError, at `like`, where not even the dtype is known.
    """
    if not isinstance(type, TensorType):
        return b(tape_empty)
    if type.is_static:
        return b.splat(0, type)
    if type.dtype is ANY:
        raise VerifyError(InferError(f"the gradient of '{like.name}' is not known before its dtype is",
                                     hint="give the inputs' types first").diagnostic(like.span))  # fmt: skip
    never = b(and_, b(compare, like, like, direction="EQ"), b(compare, like, like, direction="NE"))
    return b(select, never, like, b.like(0, like))


def _accumulate(masks: Masks, found: dict[Node, Cotangent], node: Node, g: Cotangent) -> None:
    if is_nonzero(g := fitted(masks.b, masks.fitting(g, node), node.type, node)):
        found[node] = plus(masks, found.get(node), g)


def fit(b: Builder, g: Node, node: Node) -> Node:
    """The cotangent `g` in the shape of `node`: summed to a scalar or spread from one.

    Raises VerifyError when a rank is unknown.
    """
    old, new = g.type, node.type
    if not isinstance(old, TensorType) or not isinstance(new, TensorType) or old.dims == new.dims:
        return g
    if new.dims == () and old.dims is not None:
        return total_of(b, g, range(len(old.dims)))
    if old.dims == () and new.dims is not None:
        return b(broadcast_in_dim, g, shape=new.dims, broadcast_dimensions=())
    if old.dims is None or new.dims is None:
        hint = "run `grad` on a file whose tensors are created in it, or give the inputs' shapes"
        raise VerifyError(InferError(f"the gradient of {new} needs its shape", hint=hint).diagnostic(node.span))
    return g


def addends(total: Node, most: int) -> list[Node]:
    """What a sum of cotangents adds up, in order; a sum of more values than `most` is partly left together."""
    parts: list[Node] = []
    stack = [total]
    while stack:
        x = stack.pop()
        if x.op is add and len(stack) + len(parts) < most:
            stack += reversed(x.inputs)
        else:
            parts.append(x)
    return parts


# --- forward mode -------------------------------------------------------------------------------------------------


def pushforward(b: Builder, node: Node, tangents: Sequence[Node | None]) -> Cotangent:
    """The tangent of a node's value when those of its operands are given: None (zero), a Node, or for a tuple a tuple of these.

    The tangent of a rank-0 operand that stands for all elements is rank-0 too. Raises InferError for an op without a gradient.
    """
    if not carries(node.type) or all(t is None for t in tangents):
        return None
    check_gradient(node, {i for i, t in zip(node.inputs, tangents, strict=True) if t is not None})
    assert node.op.vjp is not None
    items = node.type.items if isinstance(node.type, TupleType) else (node.type,)
    slots = [b.param(k, t) if carries(t) else None for k, t in enumerate(items)]
    cotangents = node.op.vjp(b, node, tuple(slots) if isinstance(node.type, TupleType) else slots[0])
    pairs = [(c, t) for c, t in zip(cotangents, tangents, strict=True) if c is not None and t is not None]
    wanted = [s for s in slots if s is not None]
    found = dict(zip(wanted, pullback(b, [c for c, _ in pairs], [t for _, t in pairs], wanted), strict=True))
    result = tuple(None if s is None else found[s] for s in slots)
    return result if isinstance(node.type, TupleType) else result[0]
