"""Dead code elimination. Nodes that nothing needs are not part of a function to begin with; what else is dead goes here.

Private functions that no public one reaches; and unused loop variables and branch values, with all that only they need, which no
rule sees as it takes the whole function: what the results depend on is marked, loop variables and branch values one by one, and the
rest built anew with narrower regions and loops. A loop keeps its identity. Near-linear; nothing is evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from deepx_graph.analysis.liveness import has_control, liveness
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.rebuild import rebuilt, with_inputs
from deepx_graph.ir.structure import CALL, LOOP_END, PARTIAL, PHI, PROJ, REGION, branch_width, callee_of, index_of, phi_choices
from deepx_graph.rewrite.base import Pass, RewriteControl
from deepx_graph.rewrite.control.live_columns import unread, with_live_columns


@dataclass(frozen=True)
class Dce(Pass):
    """Drops unused loop variables, branch values and private functions."""

    name: ClassVar[str] = "dce"

    def run_under(self, module: Module, control: RewriteControl) -> Module:
        module = module.with_functions(prune(f, control, invariants=False) for f in module.functions)
        return module if control.exhausted else reached(module)


def reached(module: Module) -> Module:
    """The functions that are public or the entry, and those that they may call."""
    roots = [f for f in module.functions if f.public or f.name == module.entry_name]
    needed = called(module, roots) | {f.name for f in roots}
    return module.with_functions(f for f in module.functions if f.name in needed)


def called(module: Module, roots: Iterable[Function]) -> set[str]:
    """The names of the functions of the module that these may come to call."""
    names: set[str] = set()
    work = list(roots)
    while work:
        found = [n for n in references(work.pop()) if n in module and n not in names]
        names.update(found)
        work += map(module.__getitem__, dict.fromkeys(found))
    return names


def references(function: Function) -> list[str]:
    """The functions that this one calls, binds, or names as its derivative; those of functions in attributes included."""
    found = [callee_of(n) for n in function.nodes if n.op in (CALL, PARTIAL)]
    for body in bodies(function):
        found += references(body)
    return found + ([function.vjp] if function.vjp else [])


def bodies(function: Function) -> Iterator[Function]:
    """The functions in attributes of the function's nodes."""
    for node in function.nodes:
        for k in node.op.function_attrs:
            yield node.attrs[k]


# --- branch values and loop variables -------------------------------------------------------------------------------


def prune(function: Function, control: RewriteControl, *, invariants: bool) -> Function:
    """The function without unused loop variables and branch values; itself when there are none.

    With `invariants`, a loop variable that no iteration changes is its initial value, and equal branch values are one.
    """
    if control.exhausted or not has_control(function):
        return function
    found = _without_repeated(function, control) if invariants else function
    live = liveness(found)
    dead = unread(live)  # what goes now that a value is another one belongs to the application that found this
    if dead is None or (found is function and not control.permit("unused-control-value", dead, dead)):
        return found
    return with_live_columns(found, live)


def _without_repeated(function: Function, control: RewriteControl) -> Function:
    """The function with loop variables that no iteration changes read as their initial values, and branch values as the first that
    each equals. A region or loop that is used as a whole, as a tuple, is left as it is."""
    constant, first = _invariants(function, control), _equal_values(function, control)

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        if node.op is not PHI and node.op is not PROJ:
            return with_inputs(node, inputs)
        (old,), (source,), k = node.inputs, inputs, index_of(node)
        if (old, k) in first:
            return Node(node.op, inputs, (first[old, k],), node.type, node.origin)
        begin, new = (old.inputs[0], source.inputs[0]) if old.op is LOOP_END else (old, source)
        return new.inputs[k] if (begin, k) in constant else with_inputs(node, inputs)

    return rebuilt(function, step) if constant or first else function


def _invariants(function: Function, control: RewriteControl) -> set[tuple[Node, int]]:
    """The variables that no iteration changes, by their loop_begin and number."""
    found: set[tuple[Node, int]] = set()
    for end in (n for n in function.nodes if n.op is LOOP_END and not _is_used_whole(function, n)):
        begin = end.inputs[0]
        copies: dict[int, list[int]] = {}  # variable -> those that take its value next iteration, from the same start
        work = []
        for k, after in enumerate(end.inputs[2:]):
            copied = index_of(after) if after.op is PHI and after.inputs[0] is begin else None
            if after is begin.inputs[k] or copied == k:
                work.append(k)
            elif copied is not None and begin.inputs[copied] is begin.inputs[k]:
                copies.setdefault(copied, []).append(k)
        while work:
            k = work.pop()
            if control.permit("unchanging-loop-variable", begin, begin.inputs[k]):
                found.add((begin, k))
                work += copies.pop(k, [])
    return found


def _equal_values(function: Function, control: RewriteControl) -> dict[tuple[Node, int], int]:
    """Branch values, by their region and number, that equal an earlier one in every branch: the number of that."""
    found: dict[tuple[Node, int], int] = {}
    for region in (n for n in function.nodes if n.op is REGION and not _is_used_whole(function, n)):
        first: dict[tuple[Node, ...], int] = {}
        for k in range(branch_width(region)):
            j = first.setdefault(phi_choices(region, k), k)
            if j != k and control.permit("equal-branch-values", region, region):
                found[region, k] = j
    return found


def _is_used_whole(function: Function, control: Node) -> bool:
    """Whether a region or loop is used otherwise than value by value."""
    return control in function.results or any(u.op is not PHI and u.op is not PROJ for u in function.users[control])
