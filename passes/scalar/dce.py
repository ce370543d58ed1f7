"""Dead code elimination. Nodes that nothing needs are not part of a function to begin with; what else is dead goes here.

Private functions that no public one reaches; and unused loop variables and branch values, with all that only they need, which no
rule sees as it takes the whole function: what the results depend on is marked, loop variables and branch values one by one, and the
rest built anew with narrower regions and loops. A loop keeps its identity. Near-linear; nothing is evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.rebuild import replaced, with_inputs
from deepx_graph.ir.structure import (
    CALL,
    LOOP_BEGIN,
    LOOP_END,
    PARTIAL,
    PHI,
    PROJ,
    REGION,
    branch_width,
    branches_of,
    callee_of,
    index_of,
    phi_choices,
)
from deepx_graph.rewrite.base import Pass, RewriteControl
from deepx_graph.types import TupleType, Type


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
    if control.exhausted or not any(n.op is REGION or n.op is LOOP_END for n in function.nodes):
        return function
    pruner = _Pruner(function, control, invariants)
    return pruner.rebuilt() if pruner.narrows() else function


class _Pruner:
    """What is needed of one function. A region or loop that is used as a whole, as a tuple, is left as it is."""

    def __init__(self, function: Function, control: RewriteControl, invariants: bool) -> None:
        self.function, self.control = function, control
        self.ends = {n.inputs[0]: n for n in function.nodes if n.op is LOOP_END}
        self.whole = self._used_as_tuples()
        self.constant: set[tuple[Node, int]] = set()  # loop_begin, variable
        self.alias: dict[tuple[Node, int], int] = {}  # region, value -> the earlier value that it equals
        if invariants:
            self._find_invariants()
            self._find_equal_values()
        self.needed: set[Node] = set()
        self.kept: dict[Node, set[int]] = {}
        self._mark()

    def _used_as_tuples(self) -> set[Node]:
        used = {n for n in self.function.results if n.op in (REGION, LOOP_END, LOOP_BEGIN)}
        for node in self.function.nodes:
            for k, i in enumerate(node.inputs):
                if i.op in (REGION, LOOP_END, LOOP_BEGIN) and node.op not in (PHI, PROJ) and not (node.op is LOOP_END and k == 0):
                    used.add(i)
        return used | {e.inputs[0] for e in used if e.op is LOOP_END} | {self.ends[b] for b in used if b in self.ends}

    def _find_invariants(self) -> None:
        for begin, end in self.ends.items():
            if begin in self.whole:
                continue
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
                if self.control.permit("unchanging-loop-variable", begin, begin.inputs[k]):
                    self.constant.add((begin, k))
                    work += copies.pop(k, [])

    def _find_equal_values(self) -> None:
        for region in self.function.nodes:
            if region.op is not REGION or region in self.whole:
                continue
            first: dict[tuple[Node, ...], int] = {}
            for k in range(branch_width(region)):
                j = first.setdefault(phi_choices(region, k), k)
                if j != k and self.control.permit("equal-branch-values", region, region):
                    self.alias[region, k] = j

    def _mark(self) -> None:
        work = list(self.function.results)
        while work:
            node = work.pop()
            if node not in self.needed:
                self.needed.add(node)
                work += self._needs(node)

    def _needs(self, node: Node) -> list[Node]:
        """What a needed node needs: of a loop or region only what belongs to the value that is asked for."""
        source = node.inputs[0] if node.inputs else node
        if source in self.whole or node in self.whole:
            return list(node.inputs)
        if node.op is PHI and source.op is REGION:
            k = self.alias.get((source, index_of(node)), index_of(node))
            self.kept.setdefault(source, set()).add(k)
            return [source.inputs[0], *phi_choices(source, k)]
        if node.op is PHI or (node.op is PROJ and source.op is LOOP_END):
            return self._variable(source if node.op is PHI else source.inputs[0], index_of(node))
        return list(node.inputs)

    def _variable(self, begin: Node, k: int) -> list[Node]:
        if (begin, k) in self.constant:
            return [begin.inputs[k]]
        end = self.ends[begin]
        self.kept.setdefault(begin, set()).add(k)
        return [begin.inputs[k], end.inputs[1], end.inputs[2 + k]]

    def narrows(self) -> bool:
        """Whether anything goes, and is allowed to: all of it counts as one application."""
        if self.constant or self.alias:
            return True
        narrower = (n for n in self.kept if len(self.kept[n]) < len(_items(n)))
        found = next(narrower, None)
        return found is not None and self.control.permit("unused-control-value", found, found)

    def rebuilt(self) -> Function:
        """The function over narrower regions and loops."""
        made: dict[Node, Node] = {}
        for node in self.function.nodes:
            begin = node.inputs[0] if node.op is LOOP_END else node
            if begin in self.kept:
                made[node] = self._narrowed(node, sorted(self.kept[begin]), made)
            elif node in self.needed:
                made[node] = self._item(node, made) or with_inputs(node, tuple([made[i] for i in node.inputs]))
        return replaced(self.function, made)

    def _narrowed(self, node: Node, kept: list[int], made: dict[Node, Node]) -> Node:
        if node.op is REGION:
            inputs = (node.inputs[0], *(values[k] for values in branches_of(node) for k in kept))
        elif node.op is LOOP_END:
            inputs = (*node.inputs[:2], *(node.inputs[2 + k] for k in kept))
        else:
            inputs = tuple(node.inputs[k] for k in kept)
        over = tuple([made[i] for i in inputs])
        type = TupleType(tuple(_items(node)[k] for k in kept))
        return node if over == node.inputs else Node(node.op, over, node.attrs, type, node.origin)

    def _item(self, node: Node, made: dict[Node, Node]) -> Node | None:
        """The phi or projection of a narrowed construct; None for any other node."""
        if node.op not in (PHI, PROJ) or node.inputs[0] in self.whole:
            return None
        source = node.inputs[0]
        begin = source.inputs[0] if source.op is LOOP_END else source
        k = index_of(node)
        if (begin, k) in self.constant and (node.op is PHI or source.op is LOOP_END):
            return made[begin.inputs[k]]
        if begin not in self.kept:
            return None
        k = self.position[begin][self.alias.get((begin, k), k)]
        same = made[source] is source and k == index_of(node)
        return node if same else Node(node.op, (made[source],), (k,), node.type, node.origin)

    @cached_property
    def position(self) -> dict[Node, dict[int, int]]:
        """For each narrowed construct the new number of each value that it keeps."""
        return {n: {k: at for at, k in enumerate(sorted(kept))} for n, kept in self.kept.items()}


def _items(node: Node) -> tuple[Type, ...]:
    assert isinstance(node.type, TupleType)
    return node.type.items
