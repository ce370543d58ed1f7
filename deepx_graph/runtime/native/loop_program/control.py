"""From a function with loops and branches to one loop program, whose scalars stay in registers from iteration to iteration.

Values of few elements are scalars (scalar replacement of aggregates); what a loop carries of them is in cells. Larger values lie in
memory, and an operation that writes over an operand that ends with it, as an update of a row does, works in place. A variable
that counts is the axis of its loop, so the ranges of subscripts are known (induction variables). Everything is done by one thread:
this is for iterations so short that nothing else is worth its call.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from deepx_graph.analysis.schedule import Block, Eval, IfStep, LoopStep, Once, Schedule, schedule
from deepx_graph.analysis.trip_count import Counter, counters, trip_count
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import LOOP_BEGIN, LOOP_END, PHI, PROJ, REGION, TUPLE, index_of
from deepx_graph.loops.builder import LoopBuilder, memory, part_of
from deepx_graph.loops.complex import joined, parts
from deepx_graph.loops.elements import Value, has_element, settled, tensor_type, value
from deepx_graph.loops.in_place import Accesses
from deepx_graph.loops.index_sets import filled
from deepx_graph.loops.lower import lower, write
from deepx_graph.loops.passes.pipeline import optimised
from deepx_graph.loops.program import Buffer, Cell, Copy, For, LoopProgram, Statement, While, blocks_of, walk
from deepx_graph.loops.scalar import Affine, Index, NotExpressible, Scalar
from deepx_graph.loops.storage import wide
from deepx_graph.loops.tensor import LazyTensor, in_memory
from deepx_graph.ops.data.fusion import fused_body
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.engines.numexpr_engine import alone
from deepx_graph.runtime.engines.outline import as_kernel, opened
from deepx_graph.runtime.native.loop_program.kernel import LoopKernel, nanoseconds
from deepx_graph.runtime.native.loop_program.strips import KernelOfLoop, with_loops
from deepx_graph.types import BOOL, I64, DType, TensorType, TupleType

SMALL = 9
"""A value of at most so many elements is kept as scalars."""

MOST_ELEMENTS, MOST_CARRIED = 1024, 600
"""Of an array that is made anew in each iteration, and of one that is copied for the next."""

MOST_STATEMENTS = 20_000
"""Of a program: small values are written out element by element."""


IN_REGISTERS = "machine code: loops with scalars in registers"
"""How such a kernel runs, in words."""

MOST_NANOSECONDS = 20_000
"""About what an iteration of an outermost loop may take: longer ones gain more from threads, and from kernels of their own."""

CALL_NANOSECONDS = 20_000_000
"""About how long one call takes at most, since nothing interrupts it."""


STRIP = 20_000
"""Iterations of a loop of unknown length that are done before others have the floor."""


def build(function: Function, threads: int, *, bounded: bool = False) -> LoopKernel:
    """The kernel of a function with loops; `bounded` says that it has one, of few iterations. Raises Declined."""
    try:
        program = lower_control(function)
        if (longest := max((nanoseconds(i, vectors=False) for i in _iterations(program)), default=0.0)) > MOST_NANOSECONDS:
            raise NotExpressible(f"iterations of about {longest / 1000:.0f} microseconds")
        loops = [s for s in walk(program.body) if isinstance(s, While)]
        if len(loops) > bounded or (not bounded and nanoseconds(program.body, vectors=False) > CALL_NANOSECONDS):
            raise NotExpressible("a loop that may run long")
        kernel = LoopKernel(function, optimised(program), threads)
    except NotExpressible as e:
        raise Declined(str(e)) from None
    kernel.lowering = IN_REGISTERS
    kernel.nanoseconds *= STRIP if bounded else 1
    return kernel


def with_loops_in_registers(function: Function, made: KernelOfLoop) -> Function:
    """The function as one kernel, or with loops as kernels, outer ones first, where `made` has made one for the body."""

    def required(body: Function) -> None:
        if made(body, None) is None:
            raise Declined

    if not any(n.op is LOOP_END or n.op is REGION for n in function.nodes):
        return function
    try:
        return as_kernel(function, required)
    except Declined:
        return with_loops(function, made, lambda body: STRIP)


def _iterations(program: LoopProgram) -> Iterator[list[Statement]]:
    """The bodies of the outermost loops that are not parallel, whose statements are one loop of one iteration."""
    stack = [s for whole in program.body if isinstance(whole, For) for s in whole.body]
    while stack:
        s = stack.pop()
        if isinstance(s, While) or (isinstance(s, For) and not s.parallel):
            yield s.body
        else:
            stack += (each for block in blocks_of(s) for each in block)


def lower_control(function: Function) -> LoopProgram:
    """The loop program of a function with loops. Raises NotExpressible where operations have no loops, for large values."""
    function = opened(function, _small_fusion)
    steps = schedule(function)
    return _ControlLowering(function, steps, _Memory(function, frozenset(steps.order))).program()


def _small_fusion(node: Node) -> Function | None:
    """The body of a fusion of small results."""
    body = fused_body(node)
    return body if body is not None and all(tensor_type(r.type).size <= SMALL for r in body.results) else None


def in_registers(dtype: DType, shape: tuple[int, ...], scalars: Sequence[Any]) -> LazyTensor:
    """A tensor of scalars; at a subscript that is not known it is one of them, chosen by comparisons."""
    strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]

    def read(b: LoopBuilder, at: Index) -> Any:
        flat = Affine()
        for i, stride in zip(at, strides, strict=True):
            flat = flat + i * stride
        if not flat.terms:
            return scalars[flat.constant]
        if not scalars:
            return b.const(0, dtype)  # in a loop without iterations
        found = scalars[-1]
        for k, x in enumerate(scalars[:-1]):
            found = b.apply("where", b.apply("eq", flat, Affine((), k)), x, found)
        return found

    return LazyTensor(dtype, shape, read)


@dataclass(eq=False)
class _Variable:
    """What a loop carries on, or what a branch gives: cells for the scalars, or memory."""

    type: TensorType
    cells: list[list[Cell]] = field(default_factory=list)
    buffer: Buffer | None = None

    @staticmethod
    def in_cells(b: LoopBuilder, type: TensorType) -> _Variable:
        """Cells for a small value."""
        dtype = wide(type.dtype)
        each = [part_of(dtype)] * 2 if dtype.kind == "complex" else [dtype]
        return _Variable(type, [[b.cell(d) for d in each] for _ in range(type.size)])

    def assign(self, b: LoopBuilder, scalars: Sequence[Any]) -> None:
        """Sets the cells."""
        for cells, x in zip(self.cells, scalars, strict=True):
            for cell, part in zip(cells, parts(x), strict=True):
                b.set(cell, part)

    def now(self, b: LoopBuilder) -> LazyTensor:
        """What the variable is at this point."""
        if self.buffer is not None:
            return in_memory(self.buffer, self.type.dtype)
        return in_registers(self.type.dtype, self.type.shape, [joined([b.get(c) for c in cells]) for cells in self.cells])


@dataclass(eq=False)
class _Memory:
    """Who reads what of the memory that may change."""

    function: Function
    live: frozenset[Node]
    reads: dict[Node, frozenset[Buffer]] = field(default_factory=dict)
    """The memory that is looked at where an element of a node's value is read."""
    homes: dict[Buffer, Node | None] = field(default_factory=dict)
    """The loop in each iteration of which memory gets its value."""
    done: set[Node] = field(default_factory=set)
    """The nodes whose operands are read no more."""
    branches: list[tuple[Node, int]] = field(default_factory=list)
    """The branches that are being written."""

    def ending(self, user: Node, operand: Node, found: Value, loop: Node | None) -> Buffer | None:
        """The memory of an operand of which nobody needs the elements any more, but the user."""
        buffer = found.buffer if isinstance(found, LazyTensor) else None
        if buffer is None or buffer not in self.homes or self.homes[buffer] is not loop or user.inputs.count(operand) > 1:
            return None
        if found.shape != tensor_type(operand.type).shape:
            return None
        readers = (node for node, reads in self.reads.items() if buffer in reads)
        return buffer if all(self._is_read_no_more(node, user, operand) for node in readers) else None

    def _is_read_no_more(self, node: Node, user: Node, operand: Node) -> bool:
        if node in self.function.results:
            return False
        for u in self.function.users.get(node, ()):
            if u in self.done or u not in self.live or (u is user and node is operand):
                continue
            branch = next((k for r, k in self.branches if r is u), None)
            if branch is None or node in _values_of_branch(u, branch):
                return False
        return True


@dataclass(eq=False)
class _ControlLowering:
    function: Function
    steps: Schedule
    memory: _Memory
    b: LoopBuilder = field(default_factory=LoopBuilder)
    values: dict[Node, Value] = field(default_factory=dict)
    columns: dict[tuple[Node, int], Value] = field(default_factory=dict)
    """The values of loops and branches."""
    column_reads: dict[tuple[Node, int], frozenset[Buffer]] = field(default_factory=dict)
    loop: Node | None = None
    copies: dict[Node, list[list[int]]] = field(default_factory=dict)
    taken: set[Buffer] = field(default_factory=set)

    def program(self) -> LoopProgram:
        """The whole program."""
        arguments = []
        for k, param in enumerate(self.function.params):
            type = tensor_type(param.type)
            arguments.append(memory(f"a{k}", type.dtype, type.shape, "argument"))
            self._set(param, in_memory(arguments[-1], type.dtype))
        for node in self.steps.constants:
            self._constant(node)
        whole = For(self.b.var(I64, 0, 0), Affine(), Affine((), 1))  # statements of one machine function
        self.b.emit(whole)
        with self.b.block(whole.body):
            self._block(self.steps.root)
            results = [self._result(node) for node in self.function.results]
        for buffer, source in results:
            if source is not None:
                self.b.emit(Copy(buffer, source))
        buffers = tuple(r for r, _ in results)
        return LoopProgram(tuple(arguments), buffers, tuple(self.b.constants), tuple(self.b.scratch), self.b.body)

    def _constant(self, node: Node) -> None:
        self._set(node, value(self.b, node, ()))
        type = node.type
        if isinstance(type, TensorType) and type.size <= SMALL and type.dtype.kind != "complex":
            array = node.attr("value").array
            scalars = [self.b.const(array.reshape(-1)[k if array.size > 1 else 0], type.dtype) for k in range(type.size)]
            self._set(node, in_registers(type.dtype, type.shape, scalars))

    def _result(self, node: Node) -> tuple[Buffer, Buffer | None]:
        """The memory of a result, and what is to be copied into it."""
        tensor = self._tensor(node)
        if tensor.buffer is not None and tensor.buffer.role == "result" and tensor.buffer not in self.taken:
            self.taken.add(tensor.buffer)
            return tensor.buffer, None
        buffer = self._new_result(tensor)
        if tensor.buffer is not None:
            return buffer, tensor.buffer
        self._fill(buffer, tensor)
        return buffer, None

    def _new_result(self, like: LazyTensor | TensorType) -> Buffer:
        self.b.results += 1
        shape = like.shape
        return memory(f"r{self.b.results}", like.dtype, shape, "result")

    # --- values

    def _set(self, node: Node, found: Value, reads: frozenset[Buffer] = frozenset()) -> None:
        self.values[node], self.memory.reads[node] = found, reads

    def _tensor(self, node: Node) -> LazyTensor:
        found = self._value(node)
        if not isinstance(found, LazyTensor):
            raise NotExpressible(f"a result of type {node.type}")
        return found

    def _value(self, node: Node) -> Value:
        if node not in self.values:
            raise NotExpressible("a value of what is computed once, before it is there")
        return self.values[node]

    def _scalars(self, tensor: LazyTensor) -> list[Any]:
        """All elements of a small tensor."""
        return [tensor.at(self.b, tuple(Affine((), i) for i in at)) for at in itertools.product(*map(range, tensor.shape))]

    def _kept(self, tensor: LazyTensor) -> LazyTensor:
        """A small tensor as scalars, computed here."""
        scalars = [settled(self.b, x, tensor.dtype) for x in self._scalars(tensor)]
        if sum(map(len, self.b._blocks)) > MOST_STATEMENTS:
            raise NotExpressible("too many statements")
        return in_registers(tensor.dtype, tensor.shape, scalars)

    def _fill(self, buffer: Buffer, tensor: LazyTensor) -> None:
        filled(self.b, tensor.shape, lambda b, at: b.store_element(buffer, tensor.dtype, at, tensor.at(b, at)))

    def _require_room(self, type: TensorType) -> None:
        if self.loop is not None and type.size > MOST_ELEMENTS:
            raise NotExpressible(f"a value of {type.size} elements in a loop")

    def _require_carried(self, type: TensorType) -> None:
        if type.size > MOST_CARRIED:
            raise NotExpressible(f"a variable of {type.size} elements that is not changed in place")

    def _memory(self, type: TensorType, *, result: bool = False) -> Buffer:
        """New memory for a value that is not small."""
        self._require_room(type)
        buffer = self._new_result(type) if result else self.b.buffer(type.dtype, type.shape)
        self.memory.homes[buffer] = self.loop
        return buffer

    def _stored(self, tensor: LazyTensor, *, result: bool = False) -> Buffer:
        """New memory with the elements of a tensor."""
        buffer = self._memory(TensorType(tensor.dtype, tensor.shape), result=result)
        self._fill(buffer, tensor)
        return buffer

    # --- steps

    def _ending(self, user: Node, operand: Node) -> Buffer | None:
        return self.memory.ending(user, operand, self.values[operand], self.loop)

    def _block(self, block: Block) -> None:
        for step in block.steps:
            match step:
                case Eval(node):
                    self._eval(node)
                    self.memory.done.add(node)
                case Once():
                    pass  # before the loop that it outlives
                case IfStep():
                    self._if(step)
                case LoopStep():
                    self._loop(step)

    def _eval(self, node: Node) -> None:
        """The value of a node: scalars, elements computed where they are read, or memory."""
        operands = [self._value(i) for i in node.inputs] if node.op not in (PHI, PROJ) or not _is_control(node.inputs[0]) else []
        reads = frozenset[Buffer]().union(*(self.memory.reads[i] for i in node.inputs if i in self.memory.reads))
        if node.op in (PHI, PROJ) and _is_control(node.inputs[0]):
            at = node.inputs[0], index_of(node)
            self._set(node, self.columns[at], self.column_reads[at])
        elif node.op in (PROJ, TUPLE):
            self._set(node, value(self.b, node, operands), reads)
        elif (body := fused_body(node)) is not None:
            self._fused(node, body, operands)
        else:
            self._operation(node, operands, reads)

    def _fused(self, node: Node, body: Function, operands: Sequence[Value]) -> None:
        """The results of a fusion in memory, small ones in registers."""
        for r in body.results:
            self._require_room(tensor_type(r.type))
        found = [self._kept(t) if math.prod(t.shape) <= SMALL else t for t in write(self.b, body, operands)]
        touched = frozenset(t.buffer for t in found if t.buffer is not None)
        self.memory.homes.update(dict.fromkeys(touched, self.loop))
        self._set(node, found[0] if len(found) == 1 else tuple(found), touched)

    def _operation(self, node: Node, operands: Sequence[Value], reads: frozenset[Buffer]) -> None:
        types = [tensor_type(t) for t in (node.type.items if isinstance(node.type, TupleType) else (node.type,))]
        small = all(t.size <= SMALL for t in types)
        if node.op.loops is not None and not (small and has_element(node)) and self._run(node, operands, types):
            return
        if not has_element(node):
            raise NotExpressible(f"{node.op.name} has no loops")
        self._set(node, value(self.b, node, operands))
        if small or not node.op.view:
            self._settle(node, reads)
        else:
            self.memory.reads[node] = reads

    def _settle(self, node: Node, reads: frozenset[Buffer]) -> None:
        """Puts the elements of a value in registers or in memory."""
        found = self.values[node]
        several = isinstance(found, tuple)
        kept, touched = [], set[Buffer]()
        for tensor in found if several else (found,):
            if math.prod(tensor.shape) <= SMALL:
                kept.append(self._kept(tensor))
            else:
                buffer = self._stored(tensor)
                touched.add(buffer)
                kept.append(in_memory(buffer, tensor.dtype))
        self._set(node, tuple(kept) if several else kept[0], frozenset(touched))

    def _run(self, node: Node, operands: Sequence[Value], types: Sequence[TensorType]) -> bool:
        """Fills the results by the loops of the op, in place where it may; not where these decline."""
        assert node.op.loops is not None
        scratch, outs, over = len(self.b.scratch), list[LazyTensor](), self._copied(node)
        for k, type in enumerate(types):
            buffers = [self._ending(node, node.inputs[i]) for i in (over[k] if k < len(over) else ())]
            buffer = next((x for x in buffers if x is not None and x not in [o.buffer for o in outs]), None)
            outs.append(in_memory(buffer or self._memory(type), type.dtype))
        written = len(self.b.here)
        try:
            node.op.loops(self.b, node, operands, outs)
        except NotExpressible:
            if len(self.b.here) > written or not has_element(node):
                raise
            del self.b.scratch[scratch:]
            return False
        found = [self._kept(out) if math.prod(out.shape) <= SMALL else out for out in outs]
        touched = frozenset(out.buffer for out in found if out.buffer is not None)
        self._set(node, tuple(found) if isinstance(node.type, TupleType) else found[0], touched)
        return True

    def _copied(self, node: Node) -> list[list[int]]:
        """Of each result the operands that the op only copies there before it does anything else."""
        if node not in self.copies:
            try:
                program = lower(alone(node))
                accesses = Accesses(program)
                self.copies[node] = [accesses.copied_only(r) for r in program.results]
            except NotExpressible:
                self.copies[node] = []
        return self.copies[node]

    # --- variables

    def _give(self, control: Node, column: int, variable: _Variable) -> None:
        self.columns[control, column] = variable.now(self.b)
        self.column_reads[control, column] = frozenset() if variable.buffer is None else frozenset({variable.buffer})

    # --- branches

    def _if(self, step: IfStep) -> None:
        types = [tensor_type(step.branches[0].values[k].type) for k in range(len(step.columns))]
        variables = [_Variable.in_cells(self.b, t) if t.size <= SMALL else _Variable(t) for t in types]
        (selector,) = self._scalars(self._tensor(step.selector))
        self._branch(step, variables, selector, 0)
        for column, variable in zip(step.columns, variables, strict=True):
            self._give(step.node, column, variable)
        self.memory.done.add(step.node)

    def _branch(self, step: IfStep, variables: Sequence[_Variable], selector: Any, number: int) -> None:
        """The branch of a number, or one behind it."""
        if number == len(step.branches) - 1:
            self._in_branch(step, variables, number)
            return
        taken = selector
        if selector.dtype is not BOOL:
            taken = self.b.apply("eq", selector, self.b.const(number, selector.dtype))
        self.b.when(taken, lambda: self._in_branch(step, variables, number),
                    lambda: self._branch(step, variables, selector, number + 1))

    def _in_branch(self, step: IfStep, variables: Sequence[_Variable], number: int) -> None:
        branch = step.branches[number]
        self.memory.branches.append((step.node, number))
        self._block(branch.block)
        found = [self._tensor(node) for node in branch.values]
        for variable, tensor, node in zip(variables, found, branch.values, strict=True):
            if variable.type.size <= SMALL:
                variable.assign(self.b, self._scalars(tensor))
            elif variable.buffer is None:
                variable.buffer = self._ending(step.node, node) or self._stored(tensor)
            elif tensor.buffer is not variable.buffer:
                if any(variable.buffer in self.memory.reads[value] for value in branch.values):
                    raise NotExpressible("a branch that gives another array, and that one")
                self._require_carried(variable.type)
                self._fill(variable.buffer, tensor)
        self.memory.branches.pop()

    # --- loops

    def _loop(self, step: LoopStep) -> None:
        end, begin = step.node, step.node.inputs[0]
        self._invariant(step.renews)
        count, counting = trip_count(end), counters(end)
        variables: dict[int, _Variable] = {}
        constant: dict[int, Node] = {}
        for k, phis, init, after in zip(step.columns, step.phis, step.inits, step.nexts, strict=True):
            tensor = self._tensor(init)
            if after in phis:
                constant[k] = init
            elif count is not None and k in counting:
                continue
            elif math.prod(tensor.shape) <= SMALL:
                variables[k] = _Variable.in_cells(self.b, tensor_type(init.type))
                variables[k].assign(self.b, self._scalars(tensor))
            else:
                buffer = self._ending(begin, init) or self._stored(tensor, result=self._is_result(end, k))
                variables[k] = _Variable(tensor_type(init.type), buffer=buffer)
        self.memory.done.add(begin)
        outer, self.loop = self.loop, end
        for v in variables.values():
            if v.buffer is not None:
                self.memory.homes[v.buffer] = end
        if count is not None:
            with self.b.loop(count) as axis:
                self._phis(step, variables, constant, counting, axis)
                self._iteration(step, variables)
        else:
            self._while(step, variables, constant)
        self.loop = outer
        for v in variables.values():
            if v.buffer is not None:
                self.memory.homes[v.buffer] = outer
        for k in step.columns:
            if k in constant:
                self.columns[end, k], self.column_reads[end, k] = self.values[constant[k]], self.memory.reads[constant[k]]
            elif k in variables:
                self._give(end, k, variables[k])
            else:
                assert count is not None
                type = tensor_type(end.type.items[k])  # type: ignore[attr-defined]
                last = self.b.const(counting[k].first + counting[k].step * count, type.dtype)
                self.columns[end, k], self.column_reads[end, k] = in_registers(type.dtype, (), [last]), frozenset()
        self.memory.done.add(end)

    def _invariant(self, blocks: Sequence[Block]) -> None:
        """What a loop computes once: before it, whether it is needed or not, each block behind those that it reads."""
        waiting = list(blocks)
        while waiting:
            ready = next((block for block in waiting if self._is_ready(block)), None)
            if ready is None:
                raise NotExpressible("what is computed once cannot be put in order")
            waiting.remove(ready)
            self._block(ready)

    def _is_ready(self, block: Block) -> bool:
        own = [s.node for s in block.steps if not isinstance(s, Once)]
        steps = [s for s in block.steps if isinstance(s, (Eval, LoopStep))]
        read = [i for s in steps for i in (s.node.inputs if isinstance(s, Eval) else s.inits)]
        return all(i in self.values or i in own or i in self.memory.done for i in read)

    def _is_result(self, end: Node, column: int) -> bool:
        """Whether what a loop gives is a result of the program."""
        return self.loop is None and any(
            u.op is PROJ and index_of(u) == column and self.function.results.count(u) == 1 for u in self.function.users[end])

    def _phis(self, step: LoopStep, variables: dict[int, _Variable], constant: dict[int, Node], counting: dict[int, Counter],
              axis: Affine | None) -> None:
        """What the variables are in this iteration."""
        for k, phis in zip(step.columns, step.phis, strict=True):
            if k in constant:
                found, reads = self.values[constant[k]], self.memory.reads[constant[k]]
            elif k in variables:
                buffer = variables[k].buffer
                found, reads = variables[k].now(self.b), frozenset() if buffer is None else frozenset({buffer})
            else:
                assert axis is not None
                type = tensor_type(step.node.type.items[k])  # type: ignore[attr-defined]
                at = axis * counting[k].step + counting[k].first
                found, reads = in_registers(type.dtype, (), [self.b.cast(at, type.dtype)]), frozenset()
            for phi in phis:
                self._set(phi, found, reads)

    def _iteration(self, step: LoopStep, variables: dict[int, _Variable]) -> None:
        """Header and body, and what the variables are next."""
        self._block(step.header)
        self._block(step.body)
        carried = frozenset(v.buffer for v in variables.values() if v.buffer is not None)
        scalars, copies = list[tuple[_Variable, list[Any]]](), list[tuple[Buffer, LazyTensor]]()
        for k, after in zip(step.columns, step.nexts, strict=True):
            if k not in variables:
                continue
            variable, tensor = variables[k], self._tensor(after)
            if variable.buffer is None:
                scalars.append((variable, self._scalars(tensor)))
            elif tensor.buffer is not variable.buffer:
                self._require_carried(variable.type)
                if not carried.isdisjoint(self.memory.reads[after]):
                    tensor = in_memory(self._stored(tensor), tensor.dtype)
                copies.append((variable.buffer, tensor))
        for buffer, tensor in copies:
            self._fill(buffer, tensor)
        for variable, found in scalars:
            variable.assign(self.b, found)

    def _while(self, step: LoopStep, variables: dict[int, _Variable], constant: dict[int, Node]) -> None:
        if not all(isinstance(s, Eval) and tensor_type(s.node.type).size <= SMALL for s in step.header.steps):
            raise NotExpressible("a long test of a loop")

        def test() -> Scalar:
            self._phis(step, variables, constant, {}, None)
            self._block(step.header)
            (found,) = self._scalars(self._tensor(step.condition))
            return found  # type: ignore[no-any-return]

        def body() -> None:
            self._phis(step, variables, constant, {}, None)
            self._iteration(step, variables)

        self.b.repeat(test, body)


def _is_control(node: Node) -> bool:
    return node.op is LOOP_END or node.op is REGION or node.op is LOOP_BEGIN


def _values_of_branch(region: Node, number: int) -> Sequence[Node]:
    width = (len(region.inputs) - 1) // region.attr("branches")
    return region.inputs[1 + number * width : 1 + (number + 1) * width]
