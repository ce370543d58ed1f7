"""A training loop in segments: three programs that together are one, with the loop's variables between them.

    before: inputs -> variables
    some:   inputs, variables, most -> variables, how many iterations were done (fewer than `most` at the end of the loop)
    after:  inputs, variables -> results

So a run can stop between two segments and go on elsewhere: the variables are all it has to keep. What does not depend on the loop
is computed again in each program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deepx_graph import ops
from deepx_graph.analysis.liveness import everything
from deepx_graph.analysis.scopes import Loops, Placement
from deepx_graph.errors import Diagnostic, UsageError
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.builder import fresh_loop
from deepx_graph.ir.rebuild import new_item, rebuild, with_inputs
from deepx_graph.ir.structure import LOOP_BEGIN, LOOP_END, PHI
from deepx_graph.sharding.mesh import TensorSharding
from deepx_graph.sharding.plan import Plan
from deepx_graph.sharding.propagate import propagate
from deepx_graph.sharding.several_meshes import over_one_mesh
from deepx_graph.types import I32, TensorType, is_state, scalar

_COUNT = scalar(I32)


@dataclass(frozen=True)
class LoopSegment:
    """One of the programs, with the plan for its values."""

    module: Module
    plan: Plan


@dataclass(frozen=True)
class Segments:
    """The three programs, and the name and global type of each variable of the loop."""

    before: LoopSegment
    some: LoopSegment
    after: LoopSegment
    variables: tuple[tuple[str, TensorType], ...]


def segments(module: Module, plan: Plan) -> Segments:
    """The entry's loop in segments; where there are several outermost loops, the one with the most operations.

    Raises UsageError for a program without such a loop, with effects, or with variables that are no tensors of known size.
    """
    return _Cut(module, over_one_mesh(plan)).result()


class _Cut:
    def __init__(self, module: Module, plan: Plan) -> None:
        self.module, self.plan, self.function = module, plan, plan.function
        self.end = _training_loop(self.function)
        self.inits = self.end.inputs[0].inputs
        self.b = Builder()
        first = len(self.function.params)
        self.names = [i.name or f"variable{k}" for k, i in enumerate(self.inits)]
        self.state = [self.b.param(first + k, i.type, f"{self.names[k]}@{k}") for k, i in enumerate(self.inits)]
        self.lie = {k: plan.values[i] for k, i in enumerate(self.inits) if i in plan.values}
        """How the variables lie: as their first values."""

    def result(self) -> Segments:
        types = [i.type for i in self.inits]
        for init, type in zip(self.inits, types, strict=True):
            if not isinstance(type, TensorType) or not type.is_static:
                raise UsageError(Diagnostic(f"a variable of the loop is {type}, which cannot be saved", init.span))
        variables = tuple((name, t) for name, t in zip(self.names, types, strict=True) if isinstance(t, TensorType))
        return Segments(self._before(), self._some(), self._after(), variables)

    def _before(self) -> LoopSegment:
        return self._segment(self.function.params, self.inits, {}, self.lie)

    def _some(self) -> LoopSegment:
        b, begin = self.b, self.end.inputs[0]
        most = b.param(len(self.function.params) + len(self.state), _COUNT, "most")
        started = b(LOOP_BEGIN, *self.state, b.splat(0, _COUNT), loop=fresh_loop())
        new = rebuild([n for n in self.function.nodes if n.serial < self.end.serial], {begin: started})
        done = b(PHI, started, index=len(self.state))
        goes_on = b(ops.and_, new[self.end.inputs[1]], b(ops.compare, done, most, direction="LT"))
        nexts = [new[i] for i in self.end.inputs[2:]]
        end = b(LOOP_END, started, goes_on, *nexts, b(ops.add, done, b.splat(1, _COUNT)))
        results = b.items(end)
        return self._segment((*self.function.params, *self.state, most), results, new, self.lie)

    def _after(self) -> LoopSegment:
        def step(node: Node, inputs: tuple[Node, ...]) -> Node:
            return new_item(node, inputs) or with_inputs(node, inputs)

        new = rebuild(self.function.nodes, {self.end: self.b.pack(*self.state)}, step)
        results = [new[r] for r in self.function.results]
        return self._segment((*self.function.params, *self.state), results, new, self.plan.results)

    def _segment(self, params: Sequence[Node], results: Sequence[Node], new: Mapping[Node, Node],
                 shardings: Mapping[int, TensorSharding]) -> LoopSegment:
        """The program of some results, and where its values lie: as what they were made from."""
        function = self.function.with_(params=tuple(params), results=tuple(results), result_names=(), result_notes=(),
                                       attributes=())
        lie = {new.get(n, n): s for n, s in self.plan.values.items()}
        lie |= {self.state[k]: s for k, s in self.lie.items()}
        values = {n: lie[n] for n in function.nodes if n in lie}
        return LoopSegment(self.module.with_functions([function]), propagate(Plan(self.plan.mesh, function, values, shardings)))


def _training_loop(function: Function) -> Node:
    """The outermost loop with the most operations that always runs."""
    for p in function.params:
        if is_state(p.type):
            raise UsageError(Diagnostic("a program with effects cannot be run in segments", p.span))
    loops, homes = Loops(everything(function)), Placement(function, everything(function)).home
    held: Counter[Node] = Counter()
    for inner in loops.innermost.values():
        while inner is not None and loops.around[inner] is not None:
            inner = loops.around[inner]
        if inner is not None:
            held[inner] += 1
    if not held:
        raise UsageError(Diagnostic("the program has no loop to save the variables of", function.span,
                                    hint="checkpoints are taken between iterations of a loop that the program is or has"))
    always = [end for end in held if homes[end].is_root]
    if not always:
        raise UsageError(Diagnostic("the loop runs only where a branch needs what it computes", next(iter(held)).span,
                                    hint="checkpoints are taken of a loop that runs in any case"))
    return max(always, key=lambda end: held[end])
