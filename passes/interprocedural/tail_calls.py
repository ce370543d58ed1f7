"""`tail-calls`: a function that calls itself last of all, whatever branches it takes, becomes a loop.

The results are a tree of branches whose leaves are either other values or the results of a call of the function itself. Where one
side of one branch calls again, the branch's condition becomes that of the loop, and the other side runs after it; any other tree
becomes a loop that carries the results and whether they are there yet. Functions that call each other become one first, as far as
each is called from a single place. Source: G. Steele, Lambda: The Ultimate GOTO (1977).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.rebuild import copied, on_demand, with_results
from deepx_graph.ir.structure import CALL, PARTIAL, PHI, PROJ, REGION, branches_of, callee_of, index_of
from deepx_graph.ops import not_
from deepx_graph.passes.interprocedural.inline import call_order, with_calls_inlined
from deepx_graph.rewrite.base import Pass, RewriteControl
from deepx_graph.types import BOOL, StateType, TensorType, as_tensor, is_static


@dataclass(frozen=True)
class TailCalls(Pass):
    """Turns tail recursion, of one function or of several that call each other in turn, into loops."""

    name: ClassVar[str] = "tail-calls"

    def run_under(self, module: Module, control: RewriteControl) -> Module:
        """The module with loops in the place of tail recursion; itself where there is none."""
        if not call_order(module)[1]:
            return module
        module = _joined(module, control)
        return module.with_functions(_looped(f, control) for f in module.functions)


# --- functions that call each other -----------------------------------------------------------------------------------


def _joined(module: Module, control: RewriteControl) -> Module:
    """Recursive functions with those that only they call, from one place, put into them."""
    for _ in range(len(module.functions)):
        step = _one_joined(module, control)
        if step is module:
            break
        module = step
    return module


def _one_joined(module: Module, control: RewriteControl) -> Module:
    _, recursive = call_order(module)
    callers: dict[str, list[str]] = {}
    for f in module.functions:
        for node in f.nodes:
            if node.op is CALL or node.op is PARTIAL:
                callers.setdefault(callee_of(node), []).append(f.name if node.op is CALL else "")
    for name in sorted(recursive):
        once = callers.get(name, [])
        if len(once) == 1 and once[0] not in ("", name) and once[0] in recursive and not module[name].public:
            caller = with_calls_inlined(module[once[0]], {name: module[name]}, control)
            if caller is not module[once[0]]:
                return module.with_functions(caller if f.name == once[0] else f for f in module.functions if f.name != name)
    return module


# --- the tree of a function's results ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Again:
    """A call of the function itself, with these arguments."""

    call: Node


@dataclass(frozen=True)
class _Done:
    """The results, without a further call."""

    results: tuple[Node, ...]


@dataclass(frozen=True)
class _Fork:
    """A branch, with the tree of each side."""

    selector: Node
    sides: tuple[_Tree, ...]


_Tree = _Again | _Done | _Fork


def _tree(function: Function, tainted: set[Node]) -> _Tree | None:
    """The tree of the results; None where a call of the function itself is not the last thing done."""

    def grow(results: tuple[Node, ...], depth: int) -> _Tree | None:
        if not any(r in tainted for r in results):
            return _Done(results)
        first = next(r for r in results if r in tainted)
        if first.op is PROJ and _is_own(first.inputs[0], function):
            whole = all(r.op is PROJ and r.inputs[0] is first.inputs[0] and index_of(r) == k for k, r in enumerate(results))
            fits = not any(i in tainted for i in first.inputs[0].inputs)
            return _Again(first.inputs[0]) if whole and fits and len(results) == len(function.results) else None
        if first.op is PHI and first.inputs[0].op is REGION and depth < MAX_DEPTH:
            return fork(first.inputs[0], results, depth)
        return None

    def fork(region: Node, results: tuple[Node, ...], depth: int) -> _Tree | None:
        selector = region.inputs[0]
        if selector in tainted or any(r in tainted and not (r.op is PHI and r.inputs[0] is region) for r in results):
            return None
        sides = []
        for values in branches_of(region):
            side = grow(tuple(values[index_of(r)] if r.op is PHI and r.inputs[0] is region else r for r in results), depth + 1)
            if side is None:
                return None
            sides.append(side)
        return _Fork(selector, tuple(sides))

    return grow(function.results, 0)


MAX_DEPTH = 100
"""How deep a tree of branches may be."""


def _is_own(node: Node, function: Function) -> bool:
    return node.op is CALL and callee_of(node) == function.name


def _tainted(function: Function) -> set[Node]:
    """The nodes that depend on a call of the function itself."""
    found: set[Node] = set()
    for node in function.nodes:
        if _is_own(node, function) or any(i in found for i in node.inputs):
            found.add(node)
    return found


# --- loops ------------------------------------------------------------------------------------------------------------


def _looped(function: Function, control: RewriteControl) -> Function:
    tainted = _tainted(function)
    if not tainted or any(n.op is PARTIAL and callee_of(n) == function.name for n in function.nodes):
        return function
    tree = _tree(function, tainted)
    if not isinstance(tree, _Fork):
        return function
    results = _as_while(function, tree) or _as_flagged(function, tree)
    call = next(n for n in function.nodes if _is_own(n, function))
    if results is None or not control.permit("tail-call", call, results[0]):
        return function
    return with_results(function, tuple(results))


Copier = Callable[[Node], Node]


def _copier(function: Function, params: Sequence[Node]) -> Copier:
    """Gives the nodes of the function over other values of its parameters, each copied when it is first asked for."""
    made: dict[Node, Node] = dict(zip(function.params, params, strict=True))
    return lambda node: on_demand((node,), made, lambda n: n.inputs, copied)[0]


def _as_while(function: Function, tree: _Fork) -> list[Node] | None:
    """`while the condition leads to the call: arguments`; then the other side. None where the tree is more than that."""
    if len(tree.sides) != 2 or as_tensor(tree.selector.type).dtype is not BOOL:
        return None
    for k in range(2):
        again, done = tree.sides[k], tree.sides[1 - k]
        if isinstance(again, _Again) and isinstance(done, _Done):
            return _while(function, tree.selector, k == 0, again.call, done.results)
    return None


def _while(function: Function, selector: Node, when: bool, call: Node, results: Sequence[Node]) -> list[Node] | None:
    b = Builder(origin=call.origin)
    if not _same_types(function, call):
        return None

    def body(variables: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        copy = _copier(function, variables)
        condition = copy(selector)
        return condition if when else b(not_, condition), list(map(copy, call.inputs))

    ends = b.loop(function.params, body)
    return list(map(_copier(function, ends), results))


def _as_flagged(function: Function, tree: _Fork) -> list[Node] | None:
    """A loop that carries the parameters, the results, and whether to go on. None where the results have nothing to begin with."""
    b = Builder(origin=function.results[0].origin)
    begins = [_begin(b, function, r) for r in function.results]
    if any(x is None for x in begins) or not all(_same_types(function, call) for call in _calls(tree)):
        return None
    count = len(function.params)

    def body(variables: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        copy = _copier(function, variables[1 : 1 + count])
        return variables[0], _nexts(b, tree, copy, variables[1 : 1 + count], variables[1 + count :])

    starts = [b.constant(True), *function.params, *(x for x in begins if x is not None)]
    return list(b.loop(starts, body)[1 + count :])


def _nexts(b: Builder, tree: _Tree, copy: Copier, params: Sequence[Node], results: Sequence[Node]) -> list[Node]:
    match tree:
        case _Again(call):
            return [b.constant(True), *map(copy, call.inputs), *results]
        case _Done(values):
            return [b.constant(False), *params, *map(copy, values)]
        case _Fork(selector, sides):
            return list(b.branch(copy(selector), *(_nexts(b, side, copy, params, results) for side in sides)))


def _begin(b: Builder, function: Function, result: Node) -> Node | None:
    """Something of the result's type, to carry before it is there."""
    if isinstance(result.type, StateType):
        return next((p for p in function.params if isinstance(p.type, StateType)), None)
    if isinstance(result.type, TensorType) and is_static(result.type):
        return b.splat(0, result.type)
    return None


def _calls(tree: _Tree) -> Iterable[Node]:
    stack = [tree]
    while stack:
        part = stack.pop()
        if isinstance(part, _Again):
            yield part.call
        elif isinstance(part, _Fork):
            stack += part.sides


def _same_types(function: Function, call: Node) -> bool:
    return all(i.type == p.type for i, p in zip(call.inputs, function.params, strict=True))


