"""`promote`: a reference that never leaves its function becomes the values that it holds, one after the other.

The state of effects says in what order a reference is written and read; going along it, what each reference holds is known at every
state, so that a read is that value and a write nothing at all. Where the state passes a branch or a loop, what is held passes as
one more value of it. A reference that is given away, put into something or taken from a branch stays as it is.
Source: the mem2reg pass of LLVM; Cytron et al., Efficiently Computing Static Single Assignment Form (1991).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.rebuild import rebuild, replaced, with_inputs
from deepx_graph.ir.structure import LOOP_BEGIN, LOOP_END, PHI, PROJ, REGION, branch_count, branches_of, index_of, loop_of
from deepx_graph.ops.host.ref import access_of
from deepx_graph.passes.scalar.dce import prune
from deepx_graph.rewrite.base import Pass, RewriteControl
from deepx_graph.types import StateType

_JOINS = (REGION, LOOP_BEGIN, LOOP_END)

Held = dict[Node, Node]
"""What each reference (by the node that makes it) holds, as nodes of the new function."""


@dataclass(frozen=True)
class Promote(Pass):
    """Replaces references that do not escape by the values they hold."""

    name: ClassVar[str] = "promote"

    def run_under(self, module: Module, control: RewriteControl) -> Module:
        """The module without such references; itself where it has none."""
        return module.with_functions(promoted(f, control) for f in module.functions)


def promoted(function: Function, control: RewriteControl) -> Function:
    """The function without references that stay within it; itself where there are none.

    A reference that a loop carries and that is always the same one does not leave the function: such loop variables go first.
    """
    if not any(map(_is_cell, function.nodes)):
        return function
    function = prune(function, control, invariants=True)
    cells = [c for c in _local(function) if control.permit("promote", c, c.inputs[1])]
    if not cells:
        return function
    return _Promotion(function, cells).run()


def _local(function: Function) -> list[Node]:
    """The nodes that make references which are only read and written, and whose states are all seen."""
    found: list[Node] = []
    if any(sum(isinstance(i.type, StateType) for i in n.inputs) > 1 for n in function.nodes if n.op not in _JOINS):
        return found  # orders that run side by side: what is held after them is not one thing
    for node in function.nodes:
        if _is_cell(node):
            refs = [u for u in function.users[node] if u.op is PROJ and index_of(u) == 0]
            if len(refs) == 0 or all(_is_access(u, r) for r in refs for u in function.users[r]):
                found.append(node)
    results = set(function.results)
    return [c for c in found if not any(u in results for u in function.users[c] if u.op is PROJ and index_of(u) == 0)]


def _is_cell(node: Node) -> bool:
    """Whether the node makes a reference."""
    access = access_of(node)
    return access is not None and access.ref is None


def _is_access(user: Node, ref: Node) -> bool:
    access = access_of(user)
    return access is not None and access.ref is ref and access.value is not ref


class _Promotion:
    """One function being rebuilt. `held` tells what the references hold at a state, by the old node of that state."""

    def __init__(self, function: Function, cells: list[Node]) -> None:
        self.function, self.cells = function, set(cells)
        self.new: dict[Node, Node] = {}
        self.held: dict[Node, Held] = {}
        self.extra: dict[Node, dict[Node, int]] = {}
        """For a rebuilt region or loop, at which number among its values each reference's stands."""

    def run(self) -> Function:
        return replaced(self.function, rebuild(self.function.nodes, self.new, self._step))

    def _step(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        if isinstance(node.type, StateType):
            self.held[node] = self._held_after(node)
        return self._rebuilt(node, inputs)

    # --- nodes

    def _rebuilt(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        if node in self.cells:
            return inputs[0]  # stands for the state after it; its reference is never asked for
        if node.op is PROJ and node.inputs[0] in self.cells:
            return self.new[node.inputs[0]]
        if self._cell(node) is not None:
            return inputs[0]
        if node.op is PROJ and (cell := self._cell(node.inputs[0])) is not None:  # of a read
            before = node.inputs[0].inputs[0]
            return self.held[before][cell] if index_of(node) == 0 else self.new[before]
        if node.op is REGION:
            return self._region(node, inputs)
        if node.op is LOOP_BEGIN:
            return self._loop_begin(node, inputs)
        if node.op is LOOP_END:
            return self._loop_end(node, inputs)
        return with_inputs(node, inputs)

    def _cell(self, node: Node) -> Node | None:
        """The promoted reference that a node reads or writes; None for any other node."""
        access = access_of(node)
        ref = access.ref if access is not None else None
        return ref.inputs[0] if ref is not None and ref.op is PROJ and ref.inputs[0] in self.cells else None

    def _states(self, values: tuple[Node, ...]) -> Held:
        """What is held at the state among these old values."""
        return next((self.held[v] for v in values if isinstance(v.type, StateType)), {})

    def _region(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        branches = branch_count(node)
        width = (len(inputs) - 1) // branches
        at = [slice(1 + k * width, 1 + (k + 1) * width) for k in range(branches)]
        held = [self._states(node.inputs[s]) for s in at]
        cells = [c for c in held[0] if all(c in h for h in held) and any(h[c] is not held[0][c] for h in held)]
        self.extra[node] = {c: width + k for k, c in enumerate(cells)}
        if not cells:
            return with_inputs(node, inputs)
        values = [v for k, s in enumerate(at) for v in (*inputs[s], *(held[k][c] for c in cells))]
        return Builder(origin=node.origin)(REGION, inputs[0], *values, branches=branches)

    def _loop_begin(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        held = self._states(node.inputs)
        self.extra[node] = {c: len(inputs) + k for k, c in enumerate(held)}
        if not held:
            return with_inputs(node, inputs)
        return Builder(origin=node.origin)(LOOP_BEGIN, *inputs, *held.values(), loop=loop_of(node))

    def _loop_end(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        extra = self.extra[node.inputs[0]]
        held = self._states(node.inputs[2:])
        self.extra[node] = extra
        if not extra:
            return with_inputs(node, inputs)
        return Builder(origin=node.origin)(LOOP_END, *inputs, *(held[c] for c in extra))

    # --- states

    def _held_after(self, node: Node) -> Held:
        """What is held at a state: as at the state it follows, but for what the node between them does."""
        if node.op is PROJ or node.op is PHI:
            maker = node.inputs[0]
            if maker in self.cells:
                return {**self.held[maker.inputs[0]], maker: self.new[maker.inputs[1]]}
            if maker.op in (REGION, LOOP_BEGIN, LOOP_END):
                return self._held_of(maker, node)
            return self._before(maker)
        access, cell = access_of(node), self._cell(node)
        if access is not None and access.value is not None and cell is not None:
            return {**self.held[node.inputs[0]], cell: self.new[access.value]}
        return self._before(node)

    def _before(self, node: Node) -> Held:
        return self._states(node.inputs)

    def _held_of(self, maker: Node, item: Node) -> Held:
        """What is held where a region or loop gives its state."""
        b = Builder(origin=item.origin)
        op = PROJ if maker.op is LOOP_END else PHI
        found = {c: b(op, self.new[maker], index=k) for c, k in self.extra[maker].items()}
        if maker.op is REGION:
            first = self._states(branches_of(maker)[0])
            return {c: found.get(c, first[c]) for c in first if c in found or self._same(maker, c)}
        return found

    def _same(self, region: Node, cell: Node) -> bool:
        """Whether every branch leaves the reference with one and the same value."""
        held = [self._states(values) for values in branches_of(region)]
        return all(cell in h and h[cell] is held[0].get(cell) for h in held)
