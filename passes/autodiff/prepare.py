"""What reverse and forward mode share: inputs by name, a program made ready, and the result closed into a module.

Effects contribute nothing to a derivative; of them only the loads that it needs are kept, with what comes before them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

from deepx_graph.errors import Diagnostic, UsageError, VerifyError, an, suggest
from deepx_graph.ir import Builder, Function, Module, Node, reachable
from deepx_graph.ir.rebuild import rebuild
from deepx_graph.ir.structure import CALL, CALL_VALUE, PARAM, PHI, PROJ, REGION, TUPLE, index_of
from deepx_graph.ops import field, ref_read
from deepx_graph.ops.vjp.accumulate import carries
from deepx_graph.passes.interprocedural.inline import Inline
from deepx_graph.passes.interprocedural.internalize import Internalize
from deepx_graph.passes.interprocedural.promote import Promote
from deepx_graph.passes.interprocedural.specialise import PartialEvaluation
from deepx_graph.passes.interprocedural.tail_calls import TailCalls
from deepx_graph.passes.scalar.dce import references
from deepx_graph.passes.scalar.simplify import Simplify
from deepx_graph.types import ANY, StateType, TensorType, TupleType, Type, is_state


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
        inside = node.op is PROJ and inputs[0].op is TUPLE
        return inputs[0].inputs[index_of(node)] if inside else b.make(node.op, inputs, node.attrs, node.type)

    rebuild(function.nodes, new, step)
    called = tuple(function.result_name(k) for k in range(len(function.results)))
    return function.with_(params=tuple(params), results=tuple(new[r] for r in function.results), result_names=called)


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
            if node.op is field and carries(node.type):
                yield node, "the fields of data"
            elif node.op is PROJ and node.inputs[0].op is ref_read and index_of(node) == 0 and carries(node.type):
                yield node.inputs[0], "what references hold"


def straightened(module: Module) -> Module:
    """The functions that the entry needs: calls inlined as far as they can be, for what is known of their arguments, and tail
    recursion as loops, as a loop keeps less than calls do. The entry takes tensors, not tuples.
    """
    module = with_plain_entry(module)
    if any(n.op is CALL or n.op is CALL_VALUE for n in module.entry.nodes):
        inline = Inline(max_nodes=sum(len(f.nodes) for f in module.functions))
        for step in (Internalize(), inline, PartialEvaluation(), TailCalls(), inline):
            module = step.run(module)
    called = _called(module, module.entry) | {module.entry_name}
    return without_data(module.with_functions(f for f in module.functions if f.name in called))


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
    wanted = _called(module, new)
    if old.name in wanted:
        new = replace(new, name=unused_name(f"{prefix}_{old.name}", {f.name for f in module.functions}))
    rest = (f for f in module.functions if f.name in wanted and f.name != new.name)
    return replace(module, functions=(new, *rest), entry_name=new.name)


def _called(module: Module, entry: Function) -> set[str]:
    """The names of the functions that a function may come to call."""
    wanted: set[str] = set()
    stack = [entry]
    while stack:
        for name in references(stack.pop()):
            if name not in wanted:
                wanted.add(name)
                stack.append(module[name])
    return wanted
