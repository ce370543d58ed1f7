"""Operations whose shape, padding or sizes are operands: written as the static ones where those operands are known when the text
is read, are computed from the shapes of other values (their sizes stay symbols), or follow from the result's stated type. What
depends on values that only a run knows is deferred until they are known, or stays opaque.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.ir import Builder, Function, Module, Node, Op
from deepx_graph.ir.evaluation import scratch_of
from deepx_graph.ir.peephole import FOLD_LIMIT
from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.ops.known import NotKnown
from deepx_graph.text.stablehlo.reader.context import OperationContext
from deepx_graph.text.stablehlo.syntax import Symbol
from deepx_graph.text.xla.lowering import several
from deepx_graph.text.xla.table import ROWS
from deepx_graph.types import Dim, Dims, TensorType, TupleType, Type, add_dims, as_tensor, mul_dims

Rule = Callable[[OperationContext], list[Node]]
MAX_CONE = 1000
"""Nodes that are looked through to find the value of an operand."""
MAX_ELEMENTS = 4096
"""Elements that each of them may have."""


def known(node: Node) -> np.ndarray[Any, Any] | None:
    """The value of a node that depends on constants and known sizes alone, else None."""
    values: dict[Node, Any] = {}
    for n in _cone(node):
        if n.op is ops.get_dimension_size:
            dims = as_tensor(n.inputs[0].type).dims
            size = None if dims is None else dims[n.attr("dimension")]
            if not isinstance(size, int):
                return None
            values[n] = np.asarray(size, np.int32)
        elif n.op.eval is None or not (n.inputs or n.op is CONSTANT) or scratch_of(n) > FOLD_LIMIT:
            return None
        else:
            values[n] = n.op.eval([values[i] for i in n.inputs], *n.attrs)
    return np.asarray(values[node]) if node in values else None


def _cone(node: Node) -> list[Node]:
    """What the value depends on, not looking beyond sizes, in topological order; nothing where that is too much."""
    seen: set[Node] = set()
    stack = [node]
    while stack and len(seen) <= MAX_CONE:
        n = stack.pop()
        if n not in seen:
            if not (isinstance(n.type, TensorType) and n.type.is_static and n.type.size <= MAX_ELEMENTS):
                return []
            seen.add(n)
            stack += () if n.op is ops.get_dimension_size else n.inputs
    return [] if stack else sorted(seen, key=lambda n: n.serial)


def _ints(node: Node) -> tuple[int, ...] | None:
    value = known(node)
    return None if value is None else tuple(int(v) for v in value.reshape(-1))


# --- shapes that are computed from shapes -------------------------------------------------------------------------


def dims_of_value(node: Node) -> Dims | None:
    """The elements of integers as sizes, symbols among them; None where they are no sums and products of sizes."""
    found: dict[Node, Dims | None] = {}
    for n in _cone(node):
        inputs = [found[i] for i in n.inputs] if n.op in _ON_SIZES else []
        ready = [i for i in inputs if i is not None]
        if n.op is CONSTANT and value_of(n).dtype.is_integer and value_of(n).array.size <= MAX_RANK:
            found[n] = tuple(int(v) for v in value_of(n).array.reshape(-1))
        elif n.op is ops.get_dimension_size:
            dims = as_tensor(n.inputs[0].type).dims
            found[n] = None if dims is None else (dims[n.attr("dimension")],)
        else:
            found[n] = _ON_SIZES[n.op](n, ready) if inputs and len(ready) == len(inputs) else None
    return found.get(node)


MAX_RANK = 64


def _each(combine: Callable[[Sequence[Dim]], Dim]) -> Callable[[Node, list[Dims]], Dims | None]:
    def rule(n: Node, parts: list[Dims]) -> Dims | None:
        length = max(map(len, parts))
        if any(len(p) not in (1, length) for p in parts):
            return None
        made = tuple(combine([p[k % len(p)] for p in parts]) for k in range(length))
        return None if any(isinstance(d, int) and abs(d) >> 63 for d in made) else made

    return rule


def _same(n: Node, parts: list[Dims]) -> Dims | None:
    return parts[0] if as_tensor(n.type).dtype.is_integer else None


def _repeated(n: Node, parts: list[Dims]) -> Dims | None:
    size = as_tensor(n.type).size if n.type.is_static else MAX_RANK + 1  # type: ignore[attr-defined]
    return parts[0] * size if len(parts[0]) == 1 and size <= MAX_RANK else None


def _cut(n: Node, parts: list[Dims]) -> Dims | None:
    start, limit, stride = (v[0] if len(v) == 1 else None for v in n.attrs)
    return parts[0][start:limit:stride] if start is not None else None


_ON_SIZES: dict[Op, Callable[[Node, list[Dims]], Dims | None]] = {
    ops.convert: _same, ops.reshape: _same, ops.broadcast_in_dim: _repeated, ops.slice_: _cut,
    ops.concatenate: lambda n, parts: tuple(d for p in parts for d in p),
    ops.add: _each(lambda dims: add_dims(*dims)), ops.multiply: _each(mul_dims),
}  # fmt: skip


def named_dims(type: Type, start: int) -> tuple[Type, int]:
    """A tensor type whose unknown sizes are symbols of their own, numbered from `start`, and the next number."""
    if not isinstance(type, TensorType) or type.dims is None or type.is_static:
        return type, start
    dims: list[Dim] = []
    for d in type.dims:
        dims.append(f"?{start}" if isinstance(d, str) else d)
        start += isinstance(d, str)
    return type.with_dims(dims), start


@dataclass(frozen=True)
class WaitingOperation:
    """How an operation is lowered whose attributes wait for values: `waits` says which operand is which attribute, or which column
    of it; these are the last operands.
    """

    op: Op
    attrs: tuple[tuple[str, Any], ...]
    waits: tuple[tuple[str, int, int | None], ...]

    def __reduce__(self) -> tuple[Any, ...]:
        """With the op by name, and functions as modules, which can be pickled."""
        attrs = tuple((name, Module((v,), v.name) if isinstance(v, Function) else v) for name, v in self.attrs)
        return _waiting_again, (self.op.name, attrs, self.waits)

    def __call__(self, b: Builder, operands: Sequence[Node], known: Callable[[Node], Any]) -> Node:
        """The operation. Raises NotKnown for a value that is not known."""
        told: dict[str, Any] = {}
        kinds = {a.name: a.kind for a in self.op.attrs}
        for name, k, column in self.waits:
            value = known(operands[k])
            if value is None:
                raise NotKnown("what its shape depends on is not known before the program runs")
            numbers = tuple(int(v) for v in (value if column is None else value[:, column]).reshape(-1))
            told[name] = numbers[0] if kinds[name] == "int" else numbers
        first = min(k for _, k, _ in self.waits)
        return b(self.op, *operands[:first], **dict(self.attrs), **told)


def _waiting_again(op: str, attrs: Sequence[tuple[str, Any]], waits: tuple[tuple[str, int, int | None], ...]) -> WaitingOperation:
    plain = tuple((name, v.entry if isinstance(v, Module) else v) for name, v in attrs)
    return WaitingOperation(ops.op_named(op), plain, waits)


def deferred(c: OperationContext, op: Op, given: Mapping[str, Any] | None = None, **waits: int | tuple[int, int]) -> list[Node]:
    """The operation, to be lowered when the operands that are attributes are known; of a matrix of them each column is one."""
    if given is None:
        given = ROWS[op].read(c, dict.fromkeys(waits, ())) if {a.name for a in op.attrs} - waits.keys() else {}
    attrs = tuple((name, value) for name, value in given.items() if name not in waits)
    places = tuple((name, *(at if isinstance(at, tuple) else (at, None))) for name, at in waits.items())
    types: Type = c.results[0] if len(c.results) == 1 else TupleType(tuple(c.results))
    node = c(ops.deferred, *c.inputs, name=c.name, attributes=c.lowering.text(c.op), type=types, language="stablehlo",
             lowering=WaitingOperation(op, attrs, places))
    return several(c, node)


def depends_on_sizes(node: Node) -> bool:
    """Whether a value depends on sizes that are not known, and else on constants alone."""
    cone = _cone(node)
    return all(n.inputs or n.op is CONSTANT for n in cone) and any(n.op is ops.get_dimension_size for n in cone)


def of_result(op: Op) -> Rule:
    """An op whose shape comes as the last operand too; the stated result type says it, or the operand's value."""

    def rule(c: OperationContext) -> list[Node]:
        *rest, shape = c.inputs
        dims = None if c.tensor.is_static else dims_of_value(shape) or _ints(shape)
        if not c.tensor.is_static and dims is None:
            return deferred(c, op, shape=len(rest))
        if dims is not None:
            c.op = replace(c.op, result_types=[c.tensor.with_dims(dims)])
        c.inputs = rest
        return ROWS[op].results(c)

    return rule


def with_values(op: Op, **names: int) -> Rule:
    """An op some of whose attributes come as operands: `names` says which operand is which attribute."""

    def rule(c: OperationContext) -> list[Node]:
        values = {name: known(c.inputs[at]) for name, at in names.items()}
        if any(v is None for v in values.values()):
            return deferred(c, op, None, **names)
        c.op = replace(c.op, attributes=c.op.attributes | {name: np.asarray(v).tolist() for name, v in values.items()})
        c.inputs = c.inputs[: len(c.inputs) - len(names)]
        return ROWS[op].results(c)

    return rule


def convolution(c: OperationContext) -> list[Node]:
    """With padding as an operand."""
    if known(c.inputs[2]) is not None:
        return with_values(ops.convolution, padding=2)(c)
    plain = ROWS[ops.convolution].read(c, {})
    return deferred(c, ops.convolution, plain, padding_low=(2, 0), padding_high=(2, 1))


# --- custom calls that JAX writes where a size is not known; source: jax/_src/interpreters/mlir.py, jax/_src/lax -------------


def reduce_window(c: OperationContext) -> list[Node] | None:
    """Arrays, initial values, then sizes, strides, both dilations, and padding by rows."""
    named = c.op.attributes.get("called_computations")
    first = len(c.inputs) - 5
    if first < 2 or not isinstance(named, list) or not named or not isinstance(named[0], Symbol):
        return None
    names = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
    waits: dict[str, int | tuple[int, int]] = {name: first + k for k, name in enumerate(names)}
    body = c.lowering.closed_function(named[0].name, c.op)
    return deferred(c, ops.reduce_window, {"body": body}, **waits, padding_low=(first + 4, 0), padding_high=(first + 4, 1))


def top_k(c: OperationContext) -> list[Node] | None:
    """An array and how many."""
    return deferred(c, ops.top_k, {}, k=1) if len(c.inputs) == 2 else None


def random_bits(c: OperationContext) -> list[Node] | None:
    """The state, and the shape of the bits."""
    if len(c.inputs) != 2 or len(c.results) != 2:
        return None
    given = {"dtype": as_tensor(c.results[1]).dtype, "rng_algorithm": c.word("rng_algorithm")}
    return deferred(c, ops.rng_bit_generator, given, shape=1)


def gather(c: OperationContext) -> list[Node]:
    """Slice sizes from the operand, or from the stated result: a collapsed dimension has size 1."""
    sizes = dims_of_value(c.inputs[2]) or _ints(c.inputs[2])
    if sizes is None and c.tensor.is_static:
        numbers = c.need("dimension_numbers")
        dropped = (*numbers.get("collapsed_slice_dims", ()), *numbers.get("operand_batching_dims", ()))
        kept = iter(c.tensor.shape[k] for k in numbers.get("offset_dims", ()))
        sizes = tuple(1 if k in dropped else next(kept) for k in range(len(as_tensor(c.inputs[0].type).dims or ())))
    if sizes is None:
        return deferred(c, ops.gather, slice_sizes=2)
    c.inputs = c.inputs[:2]
    return ROWS[ops.gather].results(c, slice_sizes=sizes)


def real_slice(c: OperationContext) -> list[Node]:
    """A strided box between computed limits; with computed starts, when the strides and the result's sizes are known."""
    operand, first, last, step = c.inputs
    start, limit, strides = _ints(first), _ints(last), _ints(step)
    if start is not None and limit is not None and strides is not None:
        return [c(ops.slice_, operand, start_indices=start, limit_indices=limit, strides=strides)]
    if start is not None and strides is not None and (cut := _trimmed(c, operand, start, last, strides)) is not None:
        return [cut]
    if strides is None or not c.tensor.is_static:
        return deferred(c, ops.slice_, start_indices=1, limit_indices=2, strides=3)
    spans = tuple((n - 1) * s + 1 if n else 0 for n, s in zip(c.tensor.shape, strides, strict=True))
    at = [c(ops.reshape, c(ops.slice_, first, start_indices=(k,), limit_indices=(k + 1,), strides=(1,)), shape=())
          for k in range(len(spans))]
    box = c(ops.dynamic_slice, operand, *at, slice_sizes=spans)
    return [c(ops.slice_, box, start_indices=(0,) * len(spans), limit_indices=spans, strides=strides)]


def first(c: OperationContext, operand: Node, shape: Node, type: Type) -> Node:
    """The part of an array at its beginning that has a computed shape."""
    rank = len(as_tensor(type).dims or ())
    ends = [c.b.constant(np.full(rank, k), as_tensor(shape.type).dtype) for k in (0, 1)]
    inside = OperationContext(c.lowering, replace(c.op, result_types=[type]), [operand, ends[0], shape, ends[1]], c.scope)
    return real_slice(inside)[0]


def _trimmed(c: OperationContext, operand: Node, start: Sequence[int], last: Node, strides: Sequence[int]) -> Node | None:
    """A box of an operand of unknown sizes: what is beyond it is taken off, as negative padding; None where that is not known."""
    limits, dims = dims_of_value(last), as_tensor(operand.type).dims
    if limits is None or dims is None or len(limits) != len(dims) or any(s != 1 for s in strides):
        return None
    high: list[int] = []
    for limit, size in zip(limits, dims, strict=True):
        if limit == size:
            high.append(0)
        elif isinstance(limit, int) and isinstance(size, int):
            high.append(limit - size)
        else:
            return None
    return c(ops.pad, operand, c.b.like(0, operand), edge_padding_low=tuple(-s for s in start), edge_padding_high=tuple(high),
             interior_padding=(0,) * len(dims))


def set_dimension_size(c: OperationContext) -> list[Node]:
    """The operand cut to a known size of one dimension."""
    operand, k = c.inputs[0], c.number("dimension", "dim")
    size, dims = _ints(c.inputs[1]), as_tensor(operand.type).shape
    if size is None:
        return c.opaque()
    limits = (*dims[:k], size[0], *dims[k + 1 :])
    cut = c(ops.slice_, operand, start_indices=(0,) * len(dims), limit_indices=limits, strides=(1,) * len(dims))
    return [operand if limits == dims else cut]


def index_select(c: OperationContext) -> list[Node]:
    """torch_index_select; with batch dimensions it is a gather."""
    dim, batch = c.number("dim"), c.number("batch_dims", default=0)
    operand, index = c.inputs
    dims, picks = as_tensor(operand.type).shape, as_tensor(index.type).shape
    if not batch:
        return [c(ops.torch_index_select, operand, index, dim=dim)]
    width, leading = len(picks) - batch, tuple(range(batch))
    offset = (*range(batch, dim), *range(dim + width, len(dims) - 1 + width))
    sizes = tuple(1 if k == dim or k < batch else size for k, size in enumerate(dims))
    return [c(ops.gather, operand, index, offset_dims=offset, collapsed_slice_dims=(dim,), operand_batching_dims=leading,
              start_indices_batching_dims=leading, start_index_map=(dim,), index_vector_dim=len(picks), slice_sizes=sizes)]


def broadcasting(op: Rule) -> Rule:
    """CHLO's broadcast_* ops: shapes aligned at their last dimensions (or by broadcast_dimensions), sizes of 1 stretched."""

    def rule(c: OperationContext) -> list[Node]:
        shape = c.tensor.shape
        stated = c.raw("broadcast_dimensions")
        spread = []
        for x in c.inputs:
            dims = as_tensor(x.type).shape
            by_hand = stated is not None and len(dims) < len(shape)
            at = c.ints("broadcast_dimensions") if by_hand else tuple(range(len(shape) - len(dims), len(shape)))
            spread.append(x if dims == shape else c(ops.broadcast_in_dim, x, shape=shape, broadcast_dimensions=at))
        c.inputs = spread
        return op(c)

    return rule
