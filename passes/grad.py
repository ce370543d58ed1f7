"""`grad`: a module that computes the gradients of a module's outputs with respect to its inputs, as a graph like any other.

The new entry takes the inputs of the old one and a cotangent `ct_<output>` for each floating or complex output; it gives
`grad_<input>` for each floating or complex input. Reverse accumulation itself is `ops.pullback`; here calls are inlined, the
gradient is closed into a function, and what has no gradient yet (loops, branches, closures, recursion) is refused by name, place
and path. Effects contribute nothing; of them only the loads that a gradient needs are kept, with what comes before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from deepx_graph.errors import Diagnostic, UsageError, suggest
from deepx_graph.ir import Builder, Function, Module, Node, reachable
from deepx_graph.ir.structure import CALL, CALL_VALUE, PARAM, PHI, PROJ, REGION
from deepx_graph.passes.base import Pass, RewriteControl
from deepx_graph.passes.dce import references
from deepx_graph.passes.grad_calls import Derivatives
from deepx_graph.passes.grad_function import gradients_of, variants
from deepx_graph.passes.inline import Inline
from deepx_graph.passes.prune import prune
from deepx_graph.passes.rebuild import with_inputs
from deepx_graph.types import ANY, FunctionType, StateType, TensorType, TupleType, Type, is_state

LOOPS = ("keep", "recompute", "sqrt")
"""What to do about the values of a loop that its backward part needs: keep those of every turn; keep the loop's variables of every
turn and compute the rest again; do that for runs of about as many turns as there are runs."""

BUDGET = 1 << 30
"""Bytes that loops may keep before `auto` computes values again."""


@dataclass(frozen=True)
class Grad(Pass):
    """Replace the program by the one that computes its gradients.

    `wrt` names the inputs whose gradients are wanted, in order; all floating and complex ones when it is empty. `loop` is one of
    LOOPS or `auto`: the first of them under which loops keep no more than `budget` bytes, else the one that keeps least.
    """

    name: ClassVar[str] = "grad"
    wrt: tuple[str, ...] = ()
    loop: str = "auto"
    budget: int = BUDGET

    def run(self, module: Module) -> Module:
        """The gradient module; raises as `grad` does."""
        return grad(module, self.wrt or None, loop=self.loop, budget=self.budget)


@dataclass(frozen=True)
class Gradient:
    """A gradient program, and what its loops keep: bytes of all rows, and bytes that a turn of each loop of unknown length adds."""

    module: Module
    loop: str
    row_bytes: int
    turn_bytes: int


def grad(module: Module, wrt: Sequence[str] | None = None, *, loop: str = "auto", budget: int = BUDGET) -> Module:
    """The module whose entry maps inputs and cotangents of outputs to gradients of inputs.

    Raises UsageError for a name in `wrt` that is no input or an unknown `loop`, and VerifyError for an operation on the way that
    has no gradient.
    """
    if loop not in (*LOOPS, "auto"):
        known = (*LOOPS, "auto")
        raise UsageError(Diagnostic(f"no way '{loop}' to treat loops", expected=", ".join(known), hint=suggest(loop, known)))
    if loop != "auto":
        return _gradient(module, wrt, loop).module
    found: list[Gradient] = []
    for way in LOOPS:
        found.append(_gradient(module, wrt, way))
        if found[-1].row_bytes <= budget:
            return found[-1].module
    return min(found, key=lambda g: g.row_bytes).module


def choices(module: Module, wrt: Sequence[str] | None = None) -> list[Gradient]:
    """The gradient program under each of LOOPS. Raises as `grad` does."""
    return [_gradient(module, wrt, way) for way in LOOPS]


def _gradient(module: Module, wrt: Sequence[str] | None, loop: str) -> Gradient:
    module = _straightened(module)
    derivatives = Derivatives(module, loop)
    entry = derivatives.prepared(module.entry)
    inputs = _wanted(entry, wrt)
    b = Builder(peephole=True)
    roots = [leaf for k, r in enumerate(entry.results) for leaf in _leaves(b, r, entry.result_name(k))]
    roots = [(n, name) for n, name in roots if _is_differentiable(n.type)]
    taken = {p.name for p in entry.params}
    given = [p for p in entry.params if not is_state(p.type)]
    names = [_unused(f"ct_{name}", taken) for _, name in roots]
    cotangents = [b.param(len(given) + k, n.type, names[k]) for k, (n, _) in enumerate(roots)]
    gradients = gradients_of(derivatives, b, entry, [n for n, _ in roots], cotangents, inputs)
    result_names = tuple(f"grad_{_name(entry, x)}" for x in inputs)
    function = _closed(entry, [*given, *cotangents], gradients, result_names)
    module = replace(module, functions=(*module.functions, *variants(derivatives)))
    module = _with_entry(module, entry, prune(function, RewriteControl(), invariants=True))
    return Gradient(module, loop, derivatives.row_bytes, derivatives.turn_bytes)


# --- before -------------------------------------------------------------------------------------------------------


def _straightened(module: Module) -> Module:
    """The functions that the entry needs, with calls inlined as far as they can be."""
    if any(n.op is CALL or n.op is CALL_VALUE for n in module.entry.nodes):
        module = Inline(max_nodes=sum(len(f.nodes) for f in module.functions)).run(module)
    called = _called(module, module.entry) | {module.entry_name}
    return module.with_functions(f for f in module.functions if f.name in called)


def _wanted(entry: Function, wrt: Sequence[str] | None) -> list[Node]:
    """The inputs whose gradients are wanted."""
    if wrt is None:
        return [p for p in entry.params if _is_differentiable(p.type)]
    by_name = {_name(entry, p): p for p in entry.params}
    for name in wrt:
        if name not in by_name:
            known = [n for n, p in by_name.items() if not is_state(p.type)]
            raise UsageError(Diagnostic(f"no input '{name}' to differentiate with respect to", entry.span,
                                        expected="one of " + ", ".join(known), hint=suggest(name, known)))  # fmt: skip
        if not _is_differentiable(by_name[name].type):
            raise UsageError(Diagnostic(f"'{name}' is a {by_name[name].type}, which has no gradient", by_name[name].span,
                                        expected="an input of floating or complex numbers"))  # fmt: skip
    return [by_name[name] for name in wrt]


def _name(function: Function, param: Node) -> str:
    return param.name or f"arg{function.params.index(param)}"


def _unused(name: str, taken: set[str]) -> str:
    """The name, with underscores until nothing else has it."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _is_differentiable(type: Type) -> bool:
    return isinstance(type, TensorType) and (type.dtype.is_differentiable or type.dtype is ANY)


def _carries(type: Type) -> bool:
    """Whether a derivative can pass through a value of the type."""
    if isinstance(type, TupleType):
        return any(map(_carries, type.items))
    return _is_differentiable(type) or isinstance(type, FunctionType)


def _leaves(b: Builder, node: Node, name: str) -> list[tuple[Node, str]]:
    """The tensors of a result, with names."""
    if not isinstance(node.type, TupleType):
        return [(node, name)]
    return [leaf for k, item in enumerate(b.items(node)) for leaf in _leaves(b, item, f"{name}_{k}")]


# --- what is refused ----------------------------------------------------------------------------------------------


# --- after --------------------------------------------------------------------------------------------------------


def _closed(entry: Function, params: list[Node], results: list[Node], names: tuple[str, ...]) -> Function:
    """The function of these parameters and results; the state, where a load needs it, goes last in both."""
    nodes = reachable(results)
    states = [p for p in entry.params if is_state(p.type) and p in set(nodes)]
    if states:
        results, names = [*results, _last_state(nodes)], (*names, "state")
    new: dict[Node, Node] = {}
    for k, p in enumerate((*params, *states)):
        new[p] = p if p.attr("index") == k else Node(PARAM, (), (k, p.type), p.type, p.origin)
    for node in reachable(results):
        if node not in new:
            new[node] = with_inputs(node, tuple(new[i] for i in node.inputs))
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


def _with_entry(module: Module, old: Function, new: Function) -> Module:
    """The module of the new entry and the functions it still names."""
    wanted = _called(module, new)
    if old.name in wanted:
        new = replace(new, name=_unused(f"grad_{old.name}", {f.name for f in module.functions}))
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
