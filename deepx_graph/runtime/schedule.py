"""The schedule of a function: its nodes as steps in nested blocks, as plain frozen data that prints.

The sea has no order; a schedule gives one. Steps of a block run in order; `If` runs one of its branches, `Loop` its header before
every turn and its body after every test that holds (so not on the last), `Once` its block in the first turn that gets there.
Parameters and constants are no steps: they are there from the start. A schedule never computes a value that nobody reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from deepx_graph.ir import Function, Node
from deepx_graph.ir.liveness import Live, liveness
from deepx_graph.ir.placement import BlockKind, Draft, Placement
from deepx_graph.ir.structure import CONSTANT, LOOP_BEGIN, LOOP_END, PHI, REGION


@dataclass(frozen=True, eq=False)
class Eval:
    """Compute one node from values computed before."""

    node: Node


@dataclass(frozen=True, eq=False)
class Branch:
    """One side of an If: its steps, and the values it gives, one per column of the region."""

    block: Block
    values: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class If:
    """Run the branch that the region's selector takes; `columns` are the numbers of the region's values that are read."""

    node: Node
    columns: tuple[int, ...]
    branches: tuple[Branch, ...]

    @property
    def selector(self) -> Node:
        return self.node.inputs[0]


@dataclass(frozen=True, eq=False)
class Loop:
    """Variables start as `inits`; run header, test `condition`; while it holds run body, go on with `nexts`.

    `columns` are the numbers of the loop variables that are read; `phis[c]` are the nodes that stand for column c in a turn (none
    when only its final value is read). Entering the loop makes the `once` blocks in `renews` run again.
    """

    node: Node
    columns: tuple[int, ...]
    phis: tuple[tuple[Node, ...], ...]
    inits: tuple[Node, ...]
    nexts: tuple[Node, ...]
    header: Block
    body: Block
    renews: tuple[Block, ...] = ()

    @property
    def condition(self) -> Node:
        return self.node.inputs[1]


@dataclass(frozen=True, eq=False)
class Once:
    """Run the block the first time only; `loop` is the outermost loop that does not make it run again."""

    block: Block
    loop: Node


Step = Eval | If | Loop | Once


@dataclass(frozen=True, eq=False)
class Block:
    """Steps in order."""

    kind: BlockKind
    steps: tuple[Step, ...]


@dataclass(frozen=True, eq=False)
class Schedule:
    """A function as steps. `str()` gives the text that golden tests compare; `order` are the live nodes, oldest first."""

    function: Function
    root: Block
    order: tuple[Node, ...]

    @property
    def constants(self) -> tuple[Node, ...]:
        """The constants that the steps and results use."""
        return tuple(n for n in self.order if n.op is CONSTANT)

    def __str__(self) -> str:
        from deepx_graph.runtime.show import show_schedule

        return show_schedule(self)


def schedule(function: Function) -> Schedule:
    """The schedule of a function (see `placement` for where each node goes).

    Raises VerifyError when a loop variable is used outside its loop or its loop is never closed.
    """
    live = liveness(function)
    return _Freezer(function, live).schedule()


class _Freezer:
    """Turns draft blocks into frozen ones, inner blocks first."""

    def __init__(self, function: Function, live: Live) -> None:
        self.function, self.live = function, live
        self.place = Placement(function, live)
        self.frozen: dict[Draft, Block] = {}
        self.phis: dict[tuple[Node, int], list[Node]] = {}
        for n in live.order:
            if n.op is PHI and n.inputs[0].op is LOOP_BEGIN:
                self.phis.setdefault((live.ends[n.inputs[0]], n.attrs[0]), []).append(n)
        self.renews: dict[Node, list[Draft]] = {}
        for draft in self.place.blocks:
            if draft.outermost is not None:
                self.renews.setdefault(draft.outermost, []).append(draft)

    def schedule(self) -> Schedule:
        for draft in reversed(self.place.blocks):
            self.frozen[draft] = self._block(draft)
        return Schedule(self.function, self.frozen[self.place.root], self.live.order)

    def _block(self, draft: Draft) -> Block:
        onces = sorted(draft.onces.items(), key=lambda item: -item[0].serial if item[0] else float("-inf"))
        steps: list[Step] = [Once(self.frozen[d], d.outermost) for _, d in onces if d.outermost]
        steps += (self._step(n) for n in reversed(draft.nodes))  # they were placed newest first
        return Block(draft.kind, tuple(steps))

    def _step(self, node: Node) -> Step:
        if node.op is REGION:
            blocks = self.place.branches[node]
            branches = (Branch(self.frozen[d], self.live.branch(node, b)) for b, d in enumerate(blocks))
            return If(node, self.live.columns[node], tuple(branches))
        if node.op is LOOP_END:
            columns = self.live.columns[node]
            return Loop(
                node, columns, tuple(tuple(self.phis.get((node, k), ())) for k in columns), self.live.inits(node),
                self.live.nexts(node), self.frozen[self.place.headers[node]], self.frozen[self.place.bodies[node]],
                tuple(self.frozen[d] for d in self.renews.get(node, ())),
            )  # fmt: skip
        return Eval(node)
