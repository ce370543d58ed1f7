"""What reverse and forward mode share: inputs by name, a program made ready, and the result closed into a module.

Effects contribute nothing to a derivative; of them only the loads that it needs are kept, with what comes before them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count

from deepx_graph.analysis.trip_count import trip_count
from deepx_graph.errors import Diagnostic, UsageError, VerifyError, an, suggest
from deepx_graph.ir import Builder, Function, Module, Node, fresh_loop, reachable
from deepx_graph.ir.rebuild import copied, new_item, on_demand, rebuild, replaced, with_inputs, with_results
from deepx_graph.ir.structure import CALL, CALL_VALUE, LOOP_BEGIN, LOOP_END, PARAM, PHI, PROJ, REGION, index_of
from deepx_graph.ops import add, and_, compare
from deepx_graph.ops.vjp.accumulate import carries
from deepx_graph.passes.autodiff.activity import ReverseScopes
from deepx_graph.passes.interprocedural.inline import Inline, Internalize
from deepx_graph.passes.interprocedural.promote import Promote
from deepx_graph.passes.interprocedural.specialise import PartialEvaluation
from deepx_graph.passes.interprocedural.tail_calls import TailCalls
from deepx_graph.passes.scalar.dce import called
from deepx_graph.passes.scalar.simplify import Simplify
from deepx_graph.types import ANY, I32, StateType, TensorType, TupleType, Type, is_state


def plain_inputs(function: Function) -> Function:
    """The function of the leaves of its tuple parameters; itself when it has none."""
    if not any(isinstance(p.type, TupleType) for p in function.params):
        return function
    b = Builder()
    params: list[Node] = []
    new: dict[Node, Node] = {}
    for p in function.params:
        b.origin = p.origin
        name = p.name or f"arg{p.attr('index')}"
        names = (f"{name}.{k}" for k in count()) if isinstance(p.type, TupleType) else iter((p.name,))
        new[p] = _made(b, p.type, names, params)

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        b.origin = node.origin
        return new_item(node, inputs) or b.make(node.op, inputs, node.attrs, node.type)

    rebuild(function.nodes, new, step)
    return with_results(function, tuple(new[r] for r in function.results)).with_(params=tuple(params))


def _made(b: Builder, type: Type, names: Iterator[str], params: list[Node]) -> Node:
    """A value of the type out of new parameters, which are appended."""
    if isinstance(type, TupleType):
        return b.pack(*(_made(b, t, names, params) for t in type.items))
    params.append(b.param(len(params), type, next(names)))
    return params[-1]


def without_data(module: Module) -> Module:
    """The module, its references made values and data taken apart, where that can be.

    Raises VerifyError when a derivative would have to pass through a field or a reference.
    """
    if any(_blocked(module)):
        module = Simplify().run(Promote().run(module))
    found = [
        Diagnostic(f"no derivative passes through {what} yet", node.span, expected="tensors, tuples and functions on the way",
                   notes=(f"{node.op.name} : {node.type}",))
        for node, what in _blocked(module)
    ]  # fmt: skip
    if found:
        raise VerifyError(*found)
    return module


def _blocked(module: Module) -> Iterator[tuple[Node, str]]:
    for f in module.functions:
        for node in f.nodes:
            reader = node.inputs[0] if node.op is PROJ and index_of(node) == 0 else node
            is_first = reader is not node or len(node.op.results) == 1
            if reader.op.conceals and is_first and carries(node.type):
                yield reader, reader.op.conceals


def straightened(module: Module) -> Module:
    """The functions that the entry needs: calls inlined as far as they can be, for what is known of their arguments, and tail
    recursion as loops, as a loop keeps less than calls do. The entry takes tensors, not tuples.
    """
    module = with_plain_entry(module)
    if any(n.op is CALL or n.op is CALL_VALUE for n in module.entry.nodes):
        inline = Inline(max_nodes=sum(len(f.nodes) for f in module.functions))
        for step in (Internalize(), inline, PartialEvaluation(), TailCalls(), inline):
            module = step.run(module)
    needed = called(module, [module.entry]) | {module.entry_name}
    return without_data(module.with_functions(f for f in module.functions if f.name in needed))


def with_plain_entry(module: Module) -> Module:
    """The module with an entry whose inputs are no tuples."""
    plain = plain_inputs(module.entry)
    return module if plain is module.entry else with_entry(module, module.entry, plain, "plain")


def wanted_inputs(entry: Function, wrt: Sequence[str] | None) -> list[Node]:
    """The inputs of those names, or all floating and complex ones. Raises UsageError for a name that is none of these."""
    if wrt is None:
        return [p for p in entry.params if is_differentiable(p.type)]
    by_name = {input_name(entry, p): p for p in entry.params}
    for name in wrt:
        if name not in by_name:
            known = [n for n, p in by_name.items() if not is_state(p.type)]
            raise UsageError(Diagnostic(f"no input '{name}' to differentiate with respect to", entry.span,
                                        expected="one of " + ", ".join(known), hint=suggest(name, known)))  # fmt: skip
        if not is_differentiable(by_name[name].type):
            raise UsageError(Diagnostic(f"'{name}' is {an(by_name[name].type)}, which has no gradient", by_name[name].span,
                                        expected="an input of floating or complex numbers"))  # fmt: skip
    return [by_name[name] for name in wrt]


def input_name(function: Function, param: Node) -> str:
    """The name of an input, made up where it has none."""
    return param.name or f"arg{function.params.index(param)}"


def unused_name(name: str, taken: set[str]) -> str:
    """The name, with underscores until nothing else has it."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def is_differentiable(type: Type) -> bool:
    """A tensor of floating or complex numbers, as far as is known."""
    return isinstance(type, TensorType) and (type.dtype.is_differentiable or type.dtype is ANY)


def closed(entry: Function, params: list[Node], results: list[Node], names: tuple[str, ...]) -> Function:
    """The function of these parameters and results; the state, where a load needs it, goes last in both."""
    nodes = reachable(results)
    states = [p for p in entry.params if is_state(p.type) and p in set(nodes)]
    if states:
        results, names = [*results, _last_state(nodes)], (*names, "state")
    new: dict[Node, Node] = {}
    for k, p in enumerate((*params, *states)):
        new[p] = p if p.attr("index") == k else Node(PARAM, (), (k, p.type), p.type, p.origin)
    rebuild(reachable(results), new)
    return Function(entry.name, tuple(new[p] for p in (*params, *states)), tuple(new[r] for r in results), names,
                    span=entry.span)  # fmt: skip


def _last_state(nodes: list[Node]) -> Node:
    """The state after all effects among the nodes: the newest of their chain."""
    last = next(n for n in reversed(nodes) if is_state(n.type))
    if isinstance(last.type, StateType):
        return last
    assert isinstance(last.type, TupleType)
    k = next(k for k, item in enumerate(last.type.items) if is_state(item))
    return Node(PHI if last.op is REGION else PROJ, (last,), (k,), last.type.items[k], last.origin)


def with_entry(module: Module, old: Function, new: Function, prefix: str) -> Module:
    """The module of the new entry, which gets a name with the prefix where the old one is still called, and what it calls."""
    wanted = called(module, [new])
    if old.name in wanted:
        new = replace(new, name=unused_name(f"{prefix}_{old.name}", {f.name for f in module.functions}))
    rest = (f for f in module.functions if f.name in wanted and f.name != new.name)
    return replace(module, functions=(new, *rest), entry_name=new.name)


# --- loops in two levels ----------------------------------------------------------------------------------------------

RUN = 32
"""Iterations in a run where the number of iterations is not known."""

FEW = 4
"""Loops of fewer iterations are left alone."""

Iteration = Callable[[Sequence[Node]], list[Node]]


def sqrt_checkpointed(function: Function) -> tuple[Function, set[int]]:
    """The function with its outermost loops in two levels, and the identities of the loops over runs.

    Reverse mode then keeps the state before each run of iterations instead of every iteration. A loop of T iterations becomes one
    of about sqrt(T) runs of as many, and a loop over the rest. Where T is not known, a run ends with the loop or after `RUN`
    iterations. The same iterations happen in the same order: not a bit changes. Loops inside others stay.
    """
    scopes = ReverseScopes(function)
    outermost = {end: trip_count(end) for end in scopes.bodies if scopes.home[end].loop is None}
    chosen = {end: count for end, count in outermost.items() if count is None or count >= FEW}
    made: dict[Node, Node] = {}
    runs: set[int] = set()

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        return _Chunks(scopes, node, made, runs).loop(chosen[node]) if node in chosen else with_inputs(node, inputs)

    return replaced(function, rebuild(function.nodes, made, step)), runs


class _Chunks:
    """One loop, built anew."""

    def __init__(self, scopes: ReverseScopes, end: Node, made: dict[Node, Node], runs: set[int]) -> None:
        self.scopes, self.end, self.made, self.runs = scopes, end, made, runs
        self.b = Builder(intern=False, origin=end.origin)

    def loop(self, count: int | None) -> Node:
        """What gives the variables at the end, as a tuple."""
        inits = [self.made[i] for i in self.end.inputs[0].inputs]
        if count is None:
            return self.b.pack(*self._unknown(inits))
        run = math.isqrt(count)
        after = self._counted(count // run, inits, lambda v: self._counted(run, v, self._iteration), outer=True)
        rest = count - run * (count // run)
        return self.b.pack(*(self._counted(rest, after, self._iteration) if rest else after))

    def _counted(self, count: int, inits: Sequence[Node], body: Iteration, *, outer: bool = False,
                 tested: bool = False) -> list[Node]:
        """A loop of so many iterations; with `tested` of at most so many, while the old loop continues."""
        b = self.b
        loop = fresh_loop()
        if outer:
            self.runs.add(loop)
        begin = b(LOOP_BEGIN, b.constant(0, I32), *inits, loop=loop)
        at, *variables = (b(PHI, begin, index=k) for k in range(len(inits) + 1))
        more = b(compare, at, b.constant(count, I32), direction="LT")
        if tested:
            more = b(and_, more, self._test(variables))
        end = b(LOOP_END, begin, more, b(add, at, b.constant(1, I32)), *body(variables))
        return [b.proj(end, 1 + k) for k in range(len(inits))]

    def _unknown(self, inits: Sequence[Node]) -> list[Node]:
        b, loop = self.b, fresh_loop()
        self.runs.add(loop)
        begin = b(LOOP_BEGIN, *inits, loop=loop)
        variables = [b(PHI, begin, index=k) for k in range(len(inits))]
        end = b(LOOP_END, begin, self._test(variables), *self._counted(RUN, variables, self._iteration, tested=True))
        return [b.proj(end, k) for k in range(len(inits))]

    def _test(self, variables: Sequence[Node]) -> Node:
        """Whether the loop continues with these."""
        return self._copy(variables, self.end.inputs[1:2])[0]

    def _iteration(self, variables: Sequence[Node]) -> list[Node]:
        """The next values after these."""
        return self._copy(variables, self.end.inputs[2:])

    def _copy(self, variables: Sequence[Node], wanted: Sequence[Node]) -> list[Node]:
        """Values of the body, for other variables; what the body does not change is not copied."""
        begin, body = self.end.inputs[0], self.scopes.bodies[self.end]

        def is_given(node: Node) -> bool:
            return not self.scopes.home[node].within(body) or (node.op is PHI and node.inputs[0] is begin)

        def make(node: Node, inputs: tuple[Node, ...]) -> Node:
            if not is_given(node):
                return copied(node, inputs)
            return variables[index_of(node)] if self.scopes.home[node].within(body) else self.made[node]

        return on_demand(wanted, {}, lambda node: () if is_given(node) else node.inputs, make)
