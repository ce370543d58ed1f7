"""From a function of tensors to its loop program.

The element of a value is computed where it is read, through composed subscripts, as long as that costs little or happens once for
each element; other values are put in memory. Values of one shape that do not need each other are filled in one nest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from deepx_graph.ir import Function, Node, Op
from deepx_graph.ir.structure import CONSTANT, PARAM, PROJ, TUPLE, index_of
from deepx_graph.loops.builder import LoopBuilder, memory, new_argument, new_result, whole_program
from deepx_graph.loops.elements import Value, has_element, tensor_type, value
from deepx_graph.loops.index_sets import filled
from deepx_graph.loops.program import Buffer, Copy, Let, Load, LoopProgram, Statement, walk
from deepx_graph.loops.scalar import Affine, Index, NotExpressible, affine
from deepx_graph.loops.tensor import LazyTensor, in_memory
from deepx_graph.loops.weight import price_of, weighted
from deepx_graph.types import I64, Dims, DType, TensorType, TupleType, Type

CHEAP = 8
"""An element of this cost, in additions, is computed again wherever it is read."""

MADE_OF_ONE = 2.0 * CHEAP
"""So it is where it is made of an element of one tensor in memory alone, which is loaded in its place: nothing is stored then."""

ONCE = 1.25
"""An element read so often on the average is read once."""

MOST_BELOW = 100
"""How often a value is read is counted where no more comes of it."""

TRIED = (16, 64, 256, 1500)
"""How often a value is read is counted in trials of so many statements, and not in longer ones: conditions below conditions double
what is written."""

DEEPEST = 32
"""What more operations in a row make is put in memory, as each asks the one before for elements; passes read it again at once."""

MOST_WRITTEN = 100
"""So is what takes more statements and is asked for at several places: each of them would have these again, and so on from
operation to operation."""

MOST_NODES = 400
"""A function of more nodes is not lowered as one kernel."""

MOST_OPERANDS = 1000
"""A node of more operands is not lowered: an element would be found in code as long as they are many."""


@dataclass(frozen=True)
class ElementCost:
    """What one element takes: additions, how often an element of each operand is read, statements, and at how many places of them
    that is."""

    work: float
    reads: tuple[float, ...]
    statements: int
    places: tuple[int, ...]


def lower(function: Function, outer: int | None = None) -> LoopProgram:
    """The loop program of a function; the outermost loops of its nests are over the first `outer` axes, where that is given. Raises
    NotExpressible where a declaration says neither an element nor loops."""
    if len(function.nodes) > MOST_NODES:
        raise NotExpressible(f"more than {MOST_NODES} operations")
    _check_operands(*function.nodes)
    return _Lowering(function, b=LoopBuilder(outer=outer)).program()


def write(b: LoopBuilder, function: Function, operands: Sequence[Value]) -> list[LazyTensor]:
    """Writes the nests of a function over values of a program; its results are in memory of their own. Raises NotExpressible."""
    _check_operands(*function.nodes)
    lowering = _Lowering(function, b=b, is_part=True)
    for param, operand in zip(function.params, operands, strict=True):
        lowering.values[param], lowering.needs[param] = operand, frozenset({param})
    return [in_memory(buffer, t.dtype) for buffer, t in lowering.filled_results()]


def _check_operands(*nodes: Node) -> None:
    """Raises NotExpressible for a node of so many operands that choosing among them is a program of its own."""
    if any(len(n.inputs) > MOST_OPERANDS for n in nodes):
        raise NotExpressible(f"more than {MOST_OPERANDS} operands")


def stored_values(function: Function) -> list[Node]:
    """The nodes of a function that its loop program puts in memory to read them there, or fills by the loops of their op. Raises
    NotExpressible."""
    lowering = _Lowering(function, is_trial=True)
    lowering.program()
    return lowering.stored


_DECIDED: WeakKeyDictionary[Function, dict[Node, bool]] = WeakKeyDictionary()
"""What trials have shown of functions: whoever asks for `stored_values` lowers the same function next."""


@dataclass(eq=False)
class _Trial:
    """Nests over what a buffer holds: of each the shape, its axes and what an iteration does."""

    buffer: Buffer
    nests: list[tuple[tuple[int, ...], list[Affine], list[Statement]]] = field(default_factory=list)
    is_whole: bool = True


@dataclass(eq=False)
class _Lowering:
    function: Function
    is_trial: bool = False
    """Whether it is only asked what is put in memory; no nests are written then."""
    b: LoopBuilder = field(default_factory=LoopBuilder)
    is_part: bool = False
    """Whether the results are memory of the program, for what follows in it."""
    values: dict[Node, Value] = field(default_factory=dict)
    needs: dict[Node, frozenset[Node]] = field(default_factory=dict)
    """The values in memory that an element of each node reads."""
    pointwise: dict[Node, bool] = field(default_factory=dict)
    made: set[Buffer] = field(default_factory=set)
    """Memory that was made for results, and of which none has become one yet."""
    pending: list[tuple[Node, LazyTensor, Buffer]] = field(default_factory=list)
    """Values of one shape that are to be filled by the next nest."""
    stored: list[Node] = field(default_factory=list)
    """The nodes that have memory of their own."""
    costs: dict[Node, ElementCost] = field(default_factory=dict)
    whole_costs: dict[Node, float] = field(default_factory=dict)
    loop_reads: dict[Node, tuple[float, ...]] = field(default_factory=dict)
    depths: dict[Node, int] = field(default_factory=dict)
    """How many operations compute an element of each node that is not in memory, one after the other."""
    lengths: dict[Node, int] = field(default_factory=dict)
    """How many statements do."""
    decided: dict[Node, bool] = field(init=False)
    """Whether values are read again so often that they are put in memory, as trials have shown."""

    def __post_init__(self) -> None:
        self.decided = {} if self.is_part else _DECIDED.setdefault(self.function, {})

    def program(self) -> LoopProgram:
        """The whole program."""
        for node in reversed(self.function.nodes):  # users first: nothing recurses over them
            self._is_pointwise(node)
        for param in self.function.params:
            self.values[param], self.needs[param] = new_argument(self.b, tensor_type(param.type)), frozenset({param})
        return whole_program(self.b, [buffer for buffer, _ in self.filled_results()])

    def filled_results(self) -> list[tuple[Buffer, LazyTensor]]:
        """Writes everything; the memory of the results, with what was put there."""
        for node in self.function.nodes:
            if node.op is not PARAM:
                self._add(node)
        leaves = [(node, tensor) for node in self.function.results for tensor in leaves_of(self.values[node])]
        found = [(self._result(node, tensor), tensor) for node, tensor in leaves]
        self._flush()
        return found

    def _result(self, node: Node, tensor: LazyTensor) -> Buffer:
        """A result, filled with the elements of a tensor; its memory where they lie in one already, and in no other result."""
        if tensor.buffer is not None and tensor.buffer in self.made:
            self.made.remove(tensor.buffer)
            return tensor.buffer
        buffer = self._new_result(tensor.dtype, tensor.shape)
        self._store(node, tensor, buffer)
        return buffer

    def _new_result(self, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        return self.b.buffer(dtype, shape) if self.is_part else new_result(self.b, dtype, shape)

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
            self.depths[node] = 1 + max((self.depths.get(i, 0) for i in node.inputs), default=0)
            self.lengths[node] = self._length(node)
            if self._is_kept(node) or self.depths[node] > DEEPEST or self._is_long(node):
                self._keep(node)
                del self.depths[node], self.lengths[node]

    def _run(self, node: Node, operands: Sequence[Value]) -> bool:
        """Fills the results of a node by the loops of its op; not where these decline at once, and an element will do."""
        assert node.op.loops is not None
        self._flush()
        here, scratch = self.b.here, len(self.b.scratch)
        written = len(here)
        types = [tensor_type(t) for t in (node.type.items if isinstance(node.type, TupleType) else (node.type,))]
        outs = [in_memory(self._memory(node, k, t), t.dtype) for k, t in enumerate(types)]
        try:
            node.op.loops(self.b, node, operands, outs)
        except NotExpressible:
            if len(here) > written or not has_element(node):
                raise
            del self.b.scratch[scratch:]
            return False
        self.values[node] = tuple(outs) if isinstance(node.type, TupleType) else outs[0]
        self.needs[node] = frozenset({node})
        self.stored.append(node)
        return True

    def _memory(self, node: Node, item: int, type: TensorType) -> Buffer:
        """Memory for an item of a node's results: that of a result of the function, where it is one."""
        whole = node in self.function.results
        parts = [u for u in self.function.users[node] if u.op is PROJ and index_of(u) == item and u in self.function.results]
        if not whole and not parts:
            return self.b.buffer(type.dtype, type.shape)
        buffer = self._new_result(type.dtype, type.shape)
        self.made.add(buffer)
        return buffer

    def _is_kept(self, node: Node) -> bool:
        """Whether the elements are put in memory, as computing them wherever they are read would cost too much."""
        users = self.function.users[node]
        if isinstance(node.type, TupleType):
            return any(u.op is PROJ for u in users)
        if self._is_pointwise(node):
            return False
        if users and node in self.function.results and self._made_of(node).count(tensor_type(node.type).dims) > 1:
            return True  # where it is stored anyway one load gives it
        size = tensor_type(node.type).size
        most, stores = ONCE * size, size if node in self.function.results else 0
        if not users or self._whole_cost(node) <= self._most_again(node) or self._total_reads(node) + stores <= most:
            return False
        if node not in self.decided:
            self.decided[node] = self._reads_more(node, most)
        return self.decided[node]

    def _is_long(self, node: Node) -> bool:
        """Whether what an element takes is much to be written at each of several places that ask for one."""
        if self.lengths[node] <= MOST_WRITTEN or self._is_pointwise(node):
            return False
        asking = [n for u in self.function.users[node] if has_element(u)
                  for n, i in zip(self._cost(u).places, u.inputs, strict=True) if i is node]
        if sum(asking) <= 1:
            return False
        below = self._below(node)
        if below is None:
            return True
        trial = self._trial(node, below, LoopBuilder(MOST_WRITTEN))
        return not trial.is_whole or sum(isinstance(s, Load) and s.buffer is trial.buffer for _, _, body in trial.nests
                                         for s in walk(body)) > (2 if tensor_type(node.type).dtype.kind == "complex" else 1)

    def _length(self, node: Node) -> int:
        """How many statements an element takes, about, or more than are written: an operand that is asked for again at one place is
        written once."""
        cost, found = self._cost(node), self.values[node]
        most = cost.statements + sum(n * self.lengths.get(i, 0) for n, i in zip(cost.places, node.inputs, strict=True))
        if most <= MOST_WRITTEN or not isinstance(found, LazyTensor):
            return most
        b, body = LoopBuilder(MOST_WRITTEN), list[Statement]()
        try:
            with b.block(body):
                found.at(b, [affine(b.var(I64, 0, n - 1)) for n in found.shape])
        except NotExpressible:
            return most
        return len(list(walk(body)))

    def _most_again(self, node: Node) -> float:
        """What an element may cost that is computed again wherever it is read. Positions are kept for loops that are no vectors."""
        type = tensor_type(node.type)
        is_of_one = not type.dtype.is_integer and self._made_of(node) == [type.dims]
        return MADE_OF_ONE if is_of_one and all(u.op.loops is None for u in self.function.users[node]) else CHEAP

    def _made_of(self, node: Node) -> list[Dims | None]:
        """The dimensions of the tensors in memory that elements are made of; None for several results of one operation."""
        types = [n.type for n in self.needs[node]]
        return [t.dims if isinstance(t, TensorType) else None for t in types if not isinstance(t, TensorType) or t.size > 1]

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
        if not has_element(user):
            return self._loop_reads(user)[operand]
        types = user.type.items if isinstance(user.type, TupleType) else (user.type,)
        return self._cost(user).reads[operand] * tensor_type(types[0]).size

    def _loop_reads(self, user: Node) -> tuple[float, ...]:
        """How many elements of each operand the loops of an operation read, about; of control flow nothing is known."""
        if user not in self.loop_reads:
            self.loop_reads[user] = (math.inf,) * len(user.inputs) if user.op.loops is None else loop_reads(user)
        return self.loop_reads[user]

    def _reads_more(self, node: Node, most: float) -> bool:
        """Whether all results together read more than so many elements, where nothing on the way to them is in memory: what a nest
        reads at one subscript again and again it reads once. True where that is not known."""
        below = self._below(node)
        if below is not None:
            for length in TRIED:  # a short trial often has read enough
                loads, is_whole = self._loads(node, below, LoopBuilder(length))
                if loads > most or is_whole:
                    return loads > most
        return True

    def _loads(self, node: Node, below: Sequence[Node], b: LoopBuilder) -> tuple[float, bool]:
        """How many elements of a value a trial of the results' nests loads, and whether that is all of them. Positions, as integers
        are as a rule, move out of loops that they do not depend on; folds do not."""
        type, total, trial = tensor_type(node.type), 0.0, self._trial(node, below, b)
        moves = type.dtype.is_integer and max(self._cost(node).reads, default=0.0) <= 1
        for shape, at, body in trial.nests:
            total += sum(times * math.prod(shape[: _depth(s, at) if moves else None])
                         for s, times in weighted(body) if isinstance(s, Load) and s.buffer is trial.buffer)
        return total * trial.buffer.dtype.itemsize / type.dtype.itemsize, trial.is_whole

    def _trial(self, node: Node, below: Sequence[Node], b: LoopBuilder) -> _Trial:
        """The results' nests, or as much of them as a builder takes, where a value is in memory and nothing that comes of it is."""
        type = tensor_type(node.type)
        trial = _Trial(memory("x", type.dtype, type.shape, "argument"))
        try:
            for shape, tensors in self._nests_over(node, in_memory(trial.buffer, type.dtype), below, b).items():
                trial.nests.append((shape, [affine(b.var(I64, 0, n - 1)) for n in shape], []))
                _, at, body = trial.nests[-1]
                with b.block(body):
                    for tensor in tensors:
                        tensor.at(b, at)
        except NotExpressible:
            trial.is_whole = False
        return trial

    def _nests_over(self, node: Node, tensor: LazyTensor, below: Sequence[Node],
                    b: LoopBuilder) -> dict[tuple[int, ...], list[LazyTensor]]:
        """The results by their shapes, where a value is a tensor and all below is computed of it."""
        values: dict[Node, Value] = {node: tensor}
        for user in below:
            values[user] = value(b, user, [values[i] if i in values else self._known(i) for i in user.inputs])
        nests: dict[tuple[int, ...], list[LazyTensor]] = {}
        for result in self.function.results:
            for leaf in leaves_of(values[result]) if result in values else ():
                nests.setdefault(leaf.shape, []).append(leaf)
        return nests

    def _below(self, node: Node) -> list[Node] | None:
        """All that comes of a value, in order, up to results, which are loaded; None where loops read it, or it is much."""
        found, results = {node: None}, frozenset(self.function.results) - {node}
        for user in self.function.nodes:
            if user not in found and any(i in found and i not in results for i in user.inputs):
                is_element = user.op.loops is None and has_element(user) and isinstance(user.type, TensorType)
                if not is_element or len(found) > MOST_BELOW:
                    return None
                found[user] = None
        return list(found)[1:]

    def _known(self, node: Node) -> Value:
        """The value of a node; one in memory where it is not known yet."""
        if node in self.values:
            return self.values[node]
        type = tensor_type(node.type)
        return in_memory(memory("y", type.dtype, type.shape, "argument"), type.dtype)

    def _cost(self, node: Node) -> ElementCost:
        if node not in self.costs:
            self.costs[node] = element_cost(node)
        return self.costs[node]

    def _whole_cost(self, node: Node) -> float:
        """What an element costs with those of the operands that are computed where they are read."""
        if node in self.whole_costs:
            return self.whole_costs[node]
        own = self._cost(node)
        total = own.work
        for operand, reads in zip(node.inputs, own.reads, strict=True):
            found = self.values[operand]
            if isinstance(found, LazyTensor) and found.buffer is None and operand.op not in (CONSTANT, PARAM):
                total += reads * self._whole_cost(operand)
        self.whole_costs[node] = total
        return total

    def _keep(self, node: Node) -> None:
        """Puts the elements in memory; those of a result where they will be anyway."""
        if node not in self.function.results:
            self.stored.append(node)
        if isinstance(node.type, TupleType):
            self._flush()
            parts = []
            for k, part in enumerate(self.values[node]):
                buffer = self._memory(node, k, tensor_type(node.type.items[k]))
                self.pending.append((node, part, buffer))
                parts.append(in_memory(buffer, part.dtype))
            self.values[node] = tuple(parts)
        else:
            tensor = self._tensor(node)
            buffer = self._memory(node, 0, tensor_type(node.type))
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
        if self.is_trial:
            return

        def write(b: LoopBuilder, at: Index) -> None:
            elements = [tensor.at(b, at) for _, tensor, _ in stores]
            for (_, tensor, buffer), x in zip(stores, elements, strict=True):
                b.store_element(buffer, tensor.dtype, at, x)

        filled(self.b, stores[0][1].shape, write)


def _depth(load: Load, axes: Sequence[Affine]) -> int:
    """In how many of the loops over these axes a load stands, outer ones first, when all others have moved out of them."""
    read = {v for a in load.index for v, _ in a.terms}
    variables = [{v for v, _ in a.terms} for a in axes]
    if not read <= set().union(*variables):
        return len(axes)
    return max((k + 1 for k, own in enumerate(variables) if not own.isdisjoint(read)), default=0)


def leaves_of(value: Value) -> list[LazyTensor]:
    """The tensors of a value, in order."""
    return [value] if isinstance(value, LazyTensor) else [leaf for item in value for leaf in leaves_of(item)]


def element_cost(node: Node) -> ElementCost:
    """What an element of a node takes, its operands being in memory. Raises NotExpressible."""
    return _cost_over(node.op, node.attrs, node.type, tuple(i.type for i in node.inputs))


@lru_cache(maxsize=1024)
def _cost_over(op: Op, attrs: tuple[Any, ...], type: Type, operand_types: tuple[Type, ...]) -> ElementCost:
    """The same, once for nodes that are alike: the layers of a model are."""
    node = Node(op, tuple(Node(PARAM, (), (k, t), t) for k, t in enumerate(operand_types)), attrs, type)
    _check_operands(node)
    b = LoopBuilder()
    operands, itemsizes = _operands_in_memory(node)
    found = value(b, node, operands)
    tensor = found[0] if isinstance(found, tuple) else found
    body: list[Statement] = []
    with b.block(body):
        tensor.at(b, [affine(b.var(I64, 0, n - 1)) for n in tensor.shape])
    work, reads, places = 0.0, reads_of(body, itemsizes), dict.fromkeys(itemsizes, 0)
    for s, times in weighted(body):
        work += times * price_of(s) if isinstance(s, Let) or (isinstance(s, Load) and s.buffer in reads) else 0.0
    for s in walk(body):
        if isinstance(s, Load) and s.buffer in places:
            places[s.buffer] += s.buffer.dtype.itemsize
    return ElementCost(work, tuple(reads.values()), len(list(walk(body))), tuple(-(-n // itemsizes[x]) for x, n in places.items()))


def loop_reads(node: Node) -> tuple[float, ...]:
    """How many elements of each operand the loops of a node's op read, about. Raises NotExpressible."""
    b = LoopBuilder()
    operands, itemsizes = _operands_in_memory(node)
    types = [tensor_type(t) for t in (node.type.items if isinstance(node.type, TupleType) else (node.type,))]
    assert node.op.loops is not None
    node.op.loops(b, node, operands, [in_memory(memory(f"r{k}", t.dtype, t.shape, "result"), t.dtype) for k, t in enumerate(types)])
    return tuple(reads_of(b.body, itemsizes).values())


def _operands_in_memory(node: Node) -> tuple[list[Any], dict[Buffer, int]]:
    """The operands of a node as arguments, with the bytes of their elements: a complex one is two loads."""
    operands: list[Any] = []
    itemsizes: dict[Buffer, int] = {}
    for k, operand in enumerate(node.inputs):
        type = operand.type
        if not isinstance(type, TensorType):
            raise NotExpressible(f"an operand of type {type}")
        buffer = memory(f"x{k}", type.dtype, tensor_type(type).shape, "argument")
        itemsizes[buffer] = type.dtype.itemsize
        operands.append(in_memory(buffer, type.dtype))
    return operands, itemsizes


def reads_of(body: list[Statement], itemsizes: Mapping[Buffer, int]) -> dict[Buffer, float]:
    """How many elements of some buffers statements read, about; a copy reads all."""
    reads = dict.fromkeys(itemsizes, 0.0)
    for s, times in weighted(body):
        if isinstance(s, Load) and s.buffer in reads:
            reads[s.buffer] += times * s.buffer.dtype.itemsize / itemsizes[s.buffer]
        elif isinstance(s, Copy) and s.source in reads:
            reads[s.source] += times * s.source.nbytes / itemsizes[s.source]
    return reads
