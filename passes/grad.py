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

from deepx_graph.errors import Diagnostic, InferError, UsageError, VerifyError, suggest
from deepx_graph.ir import Builder, Function, Module, Node, Op, Origin, reachable
from deepx_graph.ir.structure import CALL, CALL_VALUE, LOOP_BEGIN, LOOP_END, PARAM, PARTIAL, PHI, PROJ, REGION
from deepx_graph.ops.pullback import check_gradient
from deepx_graph.passes.base import Pass, RewriteControl
from deepx_graph.passes.fuse import unfused
from deepx_graph.passes.grad_rebuild import Rebuild
from deepx_graph.passes.grad_residuals import Residuals
from deepx_graph.passes.grad_scopes import Flow, Scopes
from deepx_graph.passes.grad_sweep import Sweep
from deepx_graph.passes.inline import Inline
from deepx_graph.passes.prune import prune
from deepx_graph.passes.rebuild import with_inputs
from deepx_graph.types import ANY, FunctionType, StateType, TensorType, TupleType, Type, is_state

_NOT_YET: dict[Op, str] = {CALL: "calls that do not inline", PARTIAL: "function values", CALL_VALUE: "function values"}
_SEEN_THROUGH = (PARAM, PROJ, PHI, REGION, LOOP_BEGIN, LOOP_END)


@dataclass(frozen=True)
class Grad(Pass):
    """Replace the program by the one that computes its gradients.

    `wrt` names the inputs whose gradients are wanted, in order; all floating and complex ones when it is empty.
    """

    name: ClassVar[str] = "grad"
    wrt: tuple[str, ...] = ()

    def run(self, module: Module) -> Module:
        """The gradient module; raises as `grad` does."""
        return grad(module, self.wrt or None)


def grad(module: Module, wrt: Sequence[str] | None = None) -> Module:
    """The module whose entry maps inputs and cotangents of outputs to gradients of inputs.

    Raises UsageError for a name in `wrt` that is no input, and VerifyError for an operation on the way that has no gradient.
    """
    entry = _straightened(module)
    inputs = _wanted(entry, wrt)
    b = Builder(peephole=True)
    roots = [leaf for k, r in enumerate(entry.results) for leaf in _leaves(b, r, entry.result_name(k))]
    roots = [(n, name) for n, name in roots if _is_differentiable(n.type)]
    taken = {p.name for p in entry.params}
    plain = [p for p in entry.params if not is_state(p.type)]
    names = [_unused(f"ct_{name}", taken) for _, name in roots]
    cotangents = [b.param(len(plain) + k, n.type, names[k]) for k, (n, _) in enumerate(roots)]
    gradients = _gradients(b, entry, [n for n, _ in roots], cotangents, inputs)
    result_names = tuple(f"grad_{_name(entry, x)}" for x in inputs)
    function = _closed(entry, [*plain, *cotangents], gradients, result_names)
    return _with_entry(module, entry, prune(function, RewriteControl(), invariants=True))


def _gradients(b: Builder, entry: Function, roots: list[Node], cotangents: list[Node], inputs: list[Node]) -> list[Node]:
    """The gradients of the inputs, as nodes over the parameters and cotangents."""
    whole = entry.with_(results=(*roots, *(r for r in entry.results if is_state(r.type))), result_names=())
    scopes = Scopes(whole)
    flow = Flow(whole, scopes.ends, inputs, roots)
    _check(whole, flow)
    sweep = Sweep(b, scopes, flow)
    frame = sweep.run(roots, cotangents)
    b.origin = Origin()
    results = [sweep.value(frame.found.get(x), x) for x in inputs]
    residuals = Residuals(sweep)
    residuals.settle(results)
    return Rebuild(sweep, residuals).nodes(results)


# --- before -------------------------------------------------------------------------------------------------------


def _straightened(module: Module) -> Function:
    """The entry without calls, as far as they can be inlined, and without kernels."""
    for function in module.functions:
        if function.vjp is not None and function is not module.entry:
            message = f"'{function.name}' names its own derivative, which grad does not use yet"
            raise VerifyError(Diagnostic(message, function.span))
    if any(n.op is CALL or n.op is CALL_VALUE for n in module.entry.nodes):
        module = Inline(max_nodes=sum(len(f.nodes) for f in module.functions)).run(module)
    return prune(unfused(module.entry), RewriteControl(), invariants=True)


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


def _check(function: Function, flow: Flow) -> None:
    """Raises VerifyError for the first node that a derivative must pass and that has no gradient."""
    for node in function.nodes:
        if flow.passes(node):
            try:
                _check_node(node, flow)
            except InferError as e:
                raise flow.refusal(node, e) from None


def _check_node(node: Node, flow: Flow) -> None:
    """Raises InferError when a derivative cannot pass the node."""
    if node.op in _NOT_YET:
        raise InferError(f"{node.op.name}: gradient through {_NOT_YET[node.op]} is not supported yet by grad")
    if isinstance(node.type, TensorType) and node.type.dtype is ANY:
        message = f"{node.op.name}: the gradient of a {node.type} is not known before its dtype is"
        raise InferError(message, hint="give the inputs' types first")
    if isinstance(node.type, TupleType) and node.op is PARAM:
        raise InferError("gradient of an input that is a tuple is not supported yet by grad")
    if node.op not in _SEEN_THROUGH:
        check_gradient(node, flow)


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
    wanted: dict[str, None] = {}
    stack = [new]
    while stack:
        for node in stack.pop().nodes:
            if (node.op is CALL or node.op is PARTIAL) and node.attr("callee") not in wanted:
                wanted[node.attr("callee")] = None
                stack.append(module[node.attr("callee")])
    if old.name in wanted:
        new = replace(new, name=_unused(f"grad_{old.name}", {f.name for f in module.functions}))
    rest = (f for f in module.functions if f.name in wanted)
    return replace(module, functions=(new, *rest), entry_name=new.name)
