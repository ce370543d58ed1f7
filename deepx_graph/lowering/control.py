"""From a function with loops and branches to one loop program, whose scalars stay in registers from iteration to iteration.

Values of few elements are scalars (scalar replacement of aggregates); what a loop carries of them is in cells. Larger values lie in
memory, and an operation that writes over an operand that ends with it, as an update of a row does, works in place. A variable
that counts is the axis of its loop, so the ranges of subscripts are known (induction variables). Everything is done by one thread:
this is for iterations so short that nothing else is worth its call.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from deepx_graph.analysis.schedule import Block, Eval, IfStep, LoopStep, Once, Schedule, schedule
from deepx_graph.analysis.trip_count import Counter, counters, trip_count
from deepx_graph.ir import Function, Node
from deepx_graph.ir.rebuild import alone, opened
from deepx_graph.ir.structure import LOOP_BEGIN, LOOP_END, PHI, PROJ, REGION, TUPLE, index_of
from deepx_graph.loops.builder import LoopBuilder, new_argument, new_result, whole_program
from deepx_graph.loops.elements import Value, has_element, tensor_type, value
from deepx_graph.loops.in_place import Accesses
from deepx_graph.loops.index_sets import filled
from deepx_graph.loops.lower import lower, write
from deepx_graph.loops.program import Buffer, Copy, For, LoopProgram
from deepx_graph.loops.scalar import Affine, NotExpressible, Scalar
from deepx_graph.loops.tensor import LazyTensor, in_memory
from deepx_graph.lowering.variables import (
    SMALL,
    CarriedValue,
    ChangingMemory,
    in_registers,
    kept_in_registers,
    queues,
    scalars_of,
)
from deepx_graph.ops.data.fusion import fused_body
from deepx_graph.types import BOOL, I64, TensorType, TupleType

MOST_STATEMENTS = 20_000
"""Of a program: small values are written out element by element."""

MOST_ELEMENTS, MOST_CARRIED = 1024, 600
"""Of an array that is made anew in each iteration, and of one that is copied for the next."""


def lower_control(function: Function) -> LoopProgram:
    """The loop program of a function with loops. Raises NotExpressible where operations have no loops, for large values."""
    return _lowering(opened(function, small_fusion), LoopBuilder(MOST_STATEMENTS)).program()


def write_control(b: LoopBuilder, function: Function, operands: Sequence[LazyTensor]) -> list[LazyTensor]:
    """Writes a function with loops over tensors of a program; its results. Raises NotExpressible."""
    return _lowering(function, b).written(operands)


def _lowering(function: Function, b: LoopBuilder) -> _ControlLowering:
    steps = schedule(function)
    return _ControlLowering(function, steps, ChangingMemory(function, frozenset(steps.order)), b)


def small_fusion(node: Node) -> Function | None:
    """The body of a fusion of small results."""
    body = fused_body(node)
    return body if body is not None and all(tensor_type(r.type).size <= SMALL for r in body.results) else None


@dataclass(eq=False)
class _ControlLowering:
    function: Function
    steps: Schedule
    memory: ChangingMemory
    b: LoopBuilder
    values: dict[Node, Value] = field(default_factory=dict)
    columns: dict[tuple[Node, int], Value] = field(default_factory=dict)
    """The values of loops and branches."""
    column_reads: dict[tuple[Node, int], frozenset[Buffer]] = field(default_factory=dict)
    loop: Node | None = None
    copies: dict[Node, list[list[int]]] = field(default_factory=dict)
    taken: set[Buffer] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.queues = queues(self.function)

    def program(self) -> LoopProgram:
        """The whole program."""
        arguments = [new_argument(self.b, tensor_type(p.type)) for p in self.function.params]
        whole = For(self.b.var(I64, 0, 0), Affine(), Affine((), 1))  # statements of one machine function
        self.b.emit(whole)
        with self.b.block(whole.body):
            results = [self._result(tensor) for tensor in self.written(arguments)]
        for buffer, source in results:
            if source is not None:
                self.b.emit(Copy(buffer, source))
        return whole_program(self.b, [r for r, _ in results])

    def written(self, operands: Sequence[LazyTensor]) -> list[LazyTensor]:
        """Writes everything where it stands; the results. Operands in local memory are there for this function alone."""
        for param, operand in zip(self.function.params, operands, strict=True):
            buffer = operand.buffer
            own = frozenset[Buffer]() if buffer is None or buffer.role != "local" else frozenset({buffer})
            self.memory.homes |= dict.fromkeys(own)
            self._set(param, operand, own)
        for node in self.steps.constants:
            self._constant(node)
        self._block(self.steps.root)
        return [self._tensor(r) for r in self.function.results]

    def _constant(self, node: Node) -> None:
        self._set(node, value(self.b, node, ()))
        type = node.type
        if isinstance(type, TensorType) and type.size <= SMALL and type.dtype.kind != "complex":
            array = node.attr("value").array
            scalars = [self.b.const(array.reshape(-1)[k if array.size > 1 else 0], type.dtype) for k in range(type.size)]
            self._set(node, in_registers(type.dtype, type.shape, scalars))

    def _result(self, tensor: LazyTensor) -> tuple[Buffer, Buffer | None]:
        """The memory of a result, and what is to be copied into it."""
        if tensor.buffer is not None and tensor.buffer.role == "result" and tensor.buffer not in self.taken:
            self.taken.add(tensor.buffer)
            return tensor.buffer, None
        buffer = new_result(self.b, tensor.dtype, tensor.shape)
        if tensor.buffer is not None:
            return buffer, tensor.buffer
        self._fill(buffer, tensor)
        return buffer, None

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

    def _fill(self, buffer: Buffer, tensor: LazyTensor) -> None:
        filled(self.b, tensor.shape, lambda b, at: b.store_element(buffer, tensor.dtype, at, tensor.at(b, at)))

    def _require_room(self, type: TensorType) -> None:
        if self.loop is not None and type.size > MOST_ELEMENTS:
            raise NotExpressible(f"a value of {type.size} elements in a loop")

    def _require_carried(self, type: TensorType) -> None:
        if type.size > MOST_CARRIED:
            raise NotExpressible(f"a variable of {type.size} elements that is not changed in place")

    def _memory(self, type: TensorType, *, is_result: bool = False) -> Buffer:
        """New memory for a value that is not small."""
        self._require_room(type)
        buffer = new_result(self.b, type.dtype, type.shape) if is_result else self.b.buffer(type.dtype, type.shape)
        self.memory.homes[buffer] = self.loop
        return buffer

    def _stored(self, tensor: LazyTensor, *, is_result: bool = False) -> Buffer:
        """New memory with the elements of a tensor."""
        buffer = self._memory(TensorType(tensor.dtype, tensor.shape), is_result=is_result)
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
        found = [kept_in_registers(self.b, t) if math.prod(t.shape) <= SMALL else t for t in write(self.b, body, operands)]
        touched = frozenset(t.buffer for t in found if t.buffer is not None)
        self.memory.homes.update(dict.fromkeys(touched, self.loop))
        self._set(node, found[0] if len(found) == 1 else tuple(found), touched)

    def _operation(self, node: Node, operands: Sequence[Value], reads: frozenset[Buffer]) -> None:
        types = [tensor_type(t) for t in (node.type.items if isinstance(node.type, TupleType) else (node.type,))]
        small = node in self.queues or all(t.size <= SMALL for t in types)
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
            if node in self.queues or math.prod(tensor.shape) <= SMALL:
                kept.append(kept_in_registers(self.b, tensor))
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
        found = [kept_in_registers(self.b, out) if math.prod(out.shape) <= SMALL else out for out in outs]
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

    def _give(self, control: Node, column: int, variable: CarriedValue) -> None:
        self.columns[control, column] = variable.now(self.b)
        self.column_reads[control, column] = frozenset() if variable.buffer is None else frozenset({variable.buffer})

    # --- branches

    def _if(self, step: IfStep) -> None:
        types = [tensor_type(step.branches[0].values[k].type) for k in range(len(step.columns))]
        variables = [CarriedValue.in_cells(self.b, t) if t.size <= SMALL else CarriedValue(t) for t in types]
        (selector,) = scalars_of(self.b, self._tensor(step.selector))
        self._branch(step, variables, selector, 0)
        for column, variable in zip(step.columns, variables, strict=True):
            self._give(step.node, column, variable)
        self.memory.done.add(step.node)

    def _branch(self, step: IfStep, variables: Sequence[CarriedValue], selector: Any, number: int) -> None:
        """The branch of a number, or one behind it."""
        if number == len(step.branches) - 1:
            self._in_branch(step, variables, number)
            return
        taken = selector
        if selector.dtype is not BOOL:
            taken = self.b.apply("eq", selector, self.b.const(number, selector.dtype))
        self.b.when(taken, lambda: self._in_branch(step, variables, number),
                    lambda: self._branch(step, variables, selector, number + 1))

    def _in_branch(self, step: IfStep, variables: Sequence[CarriedValue], number: int) -> None:
        branch = step.branches[number]
        self.memory.branches.append((step.node, number))
        elsewhere = {n for other in step.branches[number + 1 :] for n in _computed(other.block)}
        self.memory.done |= elsewhere
        self._block(branch.block)
        found = [self._tensor(node) for node in branch.values]
        for variable, tensor, node in zip(variables, found, branch.values, strict=True):
            if variable.type.size <= SMALL:
                variable.assign(self.b, scalars_of(self.b, tensor))
            elif variable.buffer is None:
                variable.buffer = self._ending(step.node, node) or self._stored(tensor)
            elif tensor.buffer is not variable.buffer:
                if any(variable.buffer in self.memory.reads[value] for value in branch.values):
                    raise NotExpressible("a branch that gives another array, and that one")
                self._require_carried(variable.type)
                self._fill(variable.buffer, tensor)
        self.memory.done -= elsewhere
        self.memory.branches.pop()

    # --- loops

    def _loop(self, step: LoopStep) -> None:
        end, begin = step.node, step.node.inputs[0]
        self._invariant(step.renews)
        count, counting = trip_count(end), counters(end)
        variables: dict[int, CarriedValue] = {}
        constant: dict[int, Node] = {}
        for k, phis, init, after in zip(step.columns, step.phis, step.inits, step.nexts, strict=True):
            tensor = self._tensor(init)
            if after in phis:
                constant[k] = init
            elif count is not None and k in counting:
                continue
            elif after in self.queues or math.prod(tensor.shape) <= SMALL:
                variables[k] = CarriedValue.in_cells(self.b, tensor_type(init.type))
                variables[k].assign(self.b, scalars_of(self.b, tensor))
            else:
                buffer = self._ending(begin, init) or self._stored(tensor, is_result=self._is_result(end, k))
                variables[k] = CarriedValue(tensor_type(init.type), buffer=buffer)
        self.memory.done.add(begin)
        outer, self.loop = self.loop, end
        for v in variables.values():
            if v.buffer is not None:
                self.memory.homes[v.buffer] = end
        if count is not None:
            with self.b.loop(count) as axis:
                self._phis(step, variables, constant, counting, axis)
                self._block(step.header)
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

    def _phis(self, step: LoopStep, variables: dict[int, CarriedValue], constant: dict[int, Node], counting: dict[int, Counter],
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

    def _iteration(self, step: LoopStep, variables: dict[int, CarriedValue]) -> None:
        """The body, and what the variables are next."""
        self._block(step.body)
        carried = frozenset(v.buffer for v in variables.values() if v.buffer is not None)
        scalars, copies = list[tuple[CarriedValue, list[Any]]](), list[tuple[Buffer, LazyTensor]]()
        for k, after in zip(step.columns, step.nexts, strict=True):
            if k not in variables:
                continue
            variable, tensor = variables[k], self._tensor(after)
            if variable.buffer is None:
                scalars.append((variable, scalars_of(self.b, tensor)))
            elif tensor.buffer is not variable.buffer:
                self._require_carried(variable.type)
                if not carried.isdisjoint(self.memory.reads[after]):
                    tensor = in_memory(self._stored(tensor), tensor.dtype)
                copies.append((variable.buffer, tensor))
        for buffer, tensor in copies:
            self._fill(buffer, tensor)
        for variable, found in scalars:
            variable.assign(self.b, found)

    def _while(self, step: LoopStep, variables: dict[int, CarriedValue], constant: dict[int, Node]) -> None:
        def test() -> Scalar:
            self._phis(step, variables, constant, {}, None)
            self._block(step.header)
            (found,) = scalars_of(self.b, self._tensor(step.condition))
            return found  # type: ignore[no-any-return]

        self.b.repeat(test, lambda: self._iteration(step, variables))


def _computed(block: Block) -> Iterator[Node]:
    """The nodes of the steps of a block."""
    stack = [block]
    while stack:
        for step in stack.pop().steps:
            match step:
                case Once(inside):
                    stack.append(inside)
                case IfStep():
                    stack += (branch.block for branch in step.branches)
                case LoopStep():
                    stack += (step.header, step.body)
            if not isinstance(step, Once):
                yield step.node


def _is_control(node: Node) -> bool:
    return node.op is LOOP_END or node.op is REGION or node.op is LOOP_BEGIN
