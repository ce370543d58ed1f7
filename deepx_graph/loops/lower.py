"""From a function of tensors to its loop program.

The element of a value is computed where it is read, through composed subscripts, as long as that costs little or happens once for
each element; other values are put in memory. Values of one shape that do not need each other are filled in one nest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CONSTANT, PARAM, PROJ, TUPLE, index_of
from deepx_graph.loops.builder import LoopBuilder, memory
from deepx_graph.loops.elements import Value, has_element, tensor_type, value
from deepx_graph.loops.primitives import price
from deepx_graph.loops.program import Buffer, Let, Load, LoopProgram
from deepx_graph.loops.scalar import NotExpressible, affine
from deepx_graph.loops.tensor import LazyTensor, in_memory
from deepx_graph.loops.weight import weighted
from deepx_graph.types import I64, TensorType, TupleType

CHEAP = 8
"""An element of this cost, in additions, is computed again wherever it is read."""

ONCE = 1.25
"""An element read so often on the average is read once."""

MOST_NODES = 400
"""A function of more nodes is not lowered as one kernel."""


@dataclass(frozen=True)
class ElementCost:
    """What one element takes: additions, and how often an element of each operand is read."""

    work: float
    reads: tuple[float, ...]


def lower(function: Function) -> LoopProgram:
    """The loop program of a function. Raises NotExpressible where a declaration says neither an element nor loops."""
    if len(function.nodes) > MOST_NODES:
        raise NotExpressible(f"more than {MOST_NODES} operations")
    return _Lowering(function).program()


@dataclass(eq=False)
class _Lowering:
    function: Function
    b: LoopBuilder = field(default_factory=LoopBuilder)
    values: dict[Node, Value] = field(default_factory=dict)
    needs: dict[Node, frozenset[Node]] = field(default_factory=dict)
    """The values in memory that an element of each node reads."""
    pointwise: dict[Node, bool] = field(default_factory=dict)
    taken: set[Buffer] = field(default_factory=set)
    """The buffers that are results of the program by now."""
    pending: list[tuple[Node, LazyTensor, Buffer]] = field(default_factory=list)
    """Values of one shape that are to be filled by the next nest."""

    def program(self) -> LoopProgram:
        """The whole program."""
        arguments = tuple(self._argument(k, p) for k, p in enumerate(self.function.params))
        for node in self.function.nodes:
            if node.op is not PARAM:
                self._add(node)
        results = [self._result(node, tensor) for node in self.function.results for tensor in leaves_of(self.values[node])]
        self._flush()
        return LoopProgram(arguments, tuple(results), tuple(self.b.constants), tuple(self.b.scratch), self.b.body)

    def _argument(self, k: int, param: Node) -> Buffer:
        type = tensor_type(param.type)
        buffer = memory(f"a{k}", type.dtype, type.shape, "argument")
        self.values[param], self.needs[param] = in_memory(buffer, type.dtype), frozenset()
        return buffer

    def _result(self, node: Node, tensor: LazyTensor) -> Buffer:
        """A result, filled with the elements of a tensor; its memory where they lie in one already, and in no other result."""
        if tensor.buffer is not None and tensor.buffer.role == "result" and tensor.buffer not in self.taken:
            self.taken.add(tensor.buffer)
            return tensor.buffer
        self.b.results += 1
        buffer = memory(f"r{self.b.results}", tensor.dtype, tensor.shape, "result")
        self._store(node, tensor, buffer)
        return buffer

    def _tensor(self, node: Node) -> LazyTensor:
        found = self.values[node]
        if not isinstance(found, LazyTensor):
            raise NotExpressible(f"a result of type {node.type}")
        return found

    def _add(self, node: Node) -> None:
        """The value of a node: computed where it is read, or in memory."""
        operands = [self.values[i] for i in node.inputs]
        self.needs[node] = frozenset[Node]().union(*(self.needs[i] for i in node.inputs))
        if node.op.loops is not None and self._run(node, operands):
            return
        if node.op in (CONSTANT, PROJ, TUPLE):
            self.values[node] = value(self.b, node, operands)
        elif not has_element(node):
            raise NotExpressible(f"{node.op.name} has no loops")
        else:
            self.values[node] = value(self.b, node, operands)
            if self._is_kept(node):
                self._keep(node)

    def _run(self, node: Node, operands: Sequence[Value]) -> bool:
        """Fills the results of a node by the loops of its op; not where these decline at once, and an element will do."""
        assert node.op.loops is not None
        self._flush()
        written, scratch = len(self.b.body), len(self.b.scratch)
        types = [tensor_type(t) for t in (node.type.items if isinstance(node.type, TupleType) else (node.type,))]
        outs = [in_memory(self._memory(node, k, t), t.dtype) for k, t in enumerate(types)]
        try:
            node.op.loops(self.b, node, operands, outs)
        except NotExpressible:
            if len(self.b.body) > written or not has_element(node):
                raise
            del self.b.scratch[scratch:]
            return False
        self.values[node] = tuple(outs) if isinstance(node.type, TupleType) else outs[0]
        self.needs[node] = frozenset()
        return True

    def _memory(self, node: Node, item: int, type: TensorType) -> Buffer:
        """Memory for an item of a node's results: that of a result of the function, where it is one."""
        whole = node in self.function.results
        parts = [u for u in self.function.users[node] if u.op is PROJ and index_of(u) == item and u in self.function.results]
        if not whole and not parts:
            return self.b.buffer(type.dtype, type.shape)
        self.b.results += 1
        return memory(f"r{self.b.results}", type.dtype, type.shape, "result")

    def _is_kept(self, node: Node) -> bool:
        """Whether the elements are put in memory, as computing them wherever they are read would cost too much."""
        users = self.function.users[node]
        if any(u.op is PROJ for u in users):
            return True
        if self._is_pointwise(node):
            return False
        cost = self._whole_cost(node)
        return cost > CHEAP and bool(users) and self._total_reads(node) > ONCE * tensor_type(node.type).size

    def _is_pointwise(self, node: Node) -> bool:
        """Whether all that comes of a value are elements at the same place, which one nest fills: there it is computed once."""
        if node not in self.pointwise:
            users = self.function.users[node]
            self.pointwise[node] = isinstance(node.type, TensorType) and all(
                u.op.elementwise and isinstance(u.type, TensorType) and u.type.dims == node.type.dims and self._is_pointwise(u)
                for u in users)
        return self.pointwise[node]

    def _total_reads(self, node: Node) -> float:
        """How many elements all users together read."""
        total = 0.0
        for user in self.function.users[node]:
            for k, operand in enumerate(user.inputs):
                if operand is node:
                    total += self._reads(user, k)
        return total

    def _reads(self, user: Node, operand: int) -> float:
        if not has_element(user):  # loops read as they like
            return float("inf")
        types = user.type.items if isinstance(user.type, TupleType) else (user.type,)
        return element_cost(user).reads[operand] * tensor_type(types[0]).size

    def _whole_cost(self, node: Node) -> float:
        """What an element costs with those of the operands that are computed where they are read."""
        own = element_cost(node)
        total = own.work
        for operand, reads in zip(node.inputs, own.reads, strict=True):
            found = self.values[operand]
            if isinstance(found, LazyTensor) and found.buffer is None and operand.op is not CONSTANT:
                total += reads * self._whole_cost(operand)
        return total

    def _keep(self, node: Node) -> None:
        """Puts the elements in memory."""
        if isinstance(node.type, TupleType):
            self._flush()
            parts = []
            for part in self.values[node]:
                buffer = self.b.buffer(part.dtype, part.shape)
                self.pending.append((node, part, buffer))
                parts.append(in_memory(buffer, part.dtype))
            self.values[node] = tuple(parts)
        else:
            tensor = self._tensor(node)
            buffer = self.b.buffer(tensor.dtype, tensor.shape)
            self._store(node, tensor, buffer)
            self.values[node] = in_memory(buffer, tensor.dtype)
        self.needs[node] = frozenset({node})

    def _store(self, node: Node, tensor: LazyTensor, buffer: Buffer) -> None:
        """Has a buffer filled with a tensor by the nest that comes next."""
        waiting = {n for n, _, _ in self.pending}
        if self.pending and (self.pending[0][1].shape != tensor.shape or not waiting.isdisjoint(self.needs[node])):
            self._flush()
        self.pending.append((node, tensor, buffer))

    def _flush(self) -> None:
        """Writes the nest that fills what is pending."""
        if not self.pending:
            return
        stores, self.pending = self.pending, []
        with self.b.nest(stores[0][1].shape) as at:
            elements = [tensor.at(self.b, at) for _, tensor, _ in stores]
            for (_, tensor, buffer), x in zip(stores, elements, strict=True):
                self.b.store_element(buffer, tensor.dtype, at, x)


def leaves_of(value: Value) -> list[LazyTensor]:
    """The tensors of a value, in order."""
    return [value] if isinstance(value, LazyTensor) else [leaf for item in value for leaf in leaves_of(item)]


def element_cost(node: Node) -> ElementCost:
    """What an element of a node takes, its operands being in memory."""
    b = LoopBuilder()
    buffers: list[Buffer] = []
    itemsizes: dict[Buffer, int] = {}
    operands: list[Any] = []
    for k, operand in enumerate(node.inputs):
        type = operand.type
        if not isinstance(type, TensorType):
            raise NotExpressible(f"an operand of type {type}")
        buffers.append(memory(f"x{k}", type.dtype, tensor_type(type).shape, "argument"))
        itemsizes[buffers[-1]] = type.dtype.itemsize  # a complex element is two loads
        operands.append(in_memory(buffers[-1], type.dtype))
    found = value(b, node, operands)
    tensor = found[0] if isinstance(found, tuple) else found
    tensor.at(b, [affine(b.var(I64, 0, n - 1)) for n in tensor.shape])
    work, reads = 0.0, dict.fromkeys(buffers, 0.0)
    for s, times in weighted(b.body):
        if isinstance(s, Let):
            work += price(s.primitive) * times
        elif isinstance(s, Load) and s.buffer in reads:
            reads[s.buffer] += times * s.buffer.dtype.itemsize / itemsizes[s.buffer]
            work += times
    return ElementCost(work, tuple(reads[k] for k in buffers))
