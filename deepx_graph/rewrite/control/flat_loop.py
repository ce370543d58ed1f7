"""A loop in whose iterations loops of unknown length run, one after the other, as one loop of short iterations (A. V.
Polychronopoulos, "Loop coalescing", 1987, for loops without bounds: a number that is carried says what an iteration goes on with).

Stage 0 tests the loop and starts the first of those within; stage k does an iteration of the k-th, or where that has ended starts
the next one, or ends the outer iteration. What each stage computes is computed there only. Where a variable of an inner loop starts
as what nobody reads later, it takes the place of that: an array that is passed from loop to loop stays one variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from deepx_graph.analysis.liveness import Live, liveness
from deepx_graph.analysis.scopes import Placement
from deepx_graph.analysis.trip_count import trip_count
from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.rebuild import copied, on_demand, with_results
from deepx_graph.ir.structure import LOOP_END, PHI, PROJ, index_of
from deepx_graph.ops.math.elementwise import compare, or_
from deepx_graph.types import TensorType, Type, leaves

MOST_KEPT = 16
"""The elements of a value that is carried, instead of computed again, from where an outer iteration starts to its inner loops."""

Variable = tuple[Node, int]
"""A variable of a loop, which its `loop_begin` stands for, by number."""


def flat_loop(function: Function) -> Function | None:
    """A function that is one loop, with no loop of unknown length in its iterations; None where that cannot be said of it, and
    where all loops within are counted: their iterations need no stage.

    >>> # for x in xs: while test(y): y = step(y)   becomes   while more: if test(y): y = step(y) else: x, y = next
    """
    outer = {r.inputs[0] for r in function.results if r.op is PROJ and r.inputs[0].op is LOOP_END}
    if len(outer) != 1 or not all(r.op is PROJ for r in function.results):
        return None
    (end,) = outer
    live = liveness(function)
    placement = Placement(function, live)
    within = placement.headers.keys() - {end}
    if not within:
        return function
    inner = [n for n in function.nodes if n in within and trip_count(n) is None]
    if not inner:
        return None
    body = placement.bodies[end]
    if any(placement.headers[e].parent is not body for e in inner) or not all(n.op.total for n in function.nodes):
        return None
    flattening = _Flattening(function, live, end, inner)
    return flattening.function_of_one_loop() if flattening.is_of_tensors else None


@dataclass
class _Flattening:
    function: Function
    live: Live
    outer: Node
    inner: Sequence[Node]

    def __post_init__(self) -> None:
        self.b = Builder()
        self.ends = self.outer, *self.inner
        self.begins = [e.inputs[0] for e in self.ends]
        self.nodes = [n for n in self.function.nodes if n is not self.outer]
        self.varying = varying_with(self.nodes, self.begins[0])
        self.kept = self._kept()
        self.places = self._places()

    @property
    def is_of_tensors(self) -> bool:
        """Whether all variables are tensors: of others, such as tapes, there is none before the first is made."""
        variables = [t for e in self.ends for t in leaves(e.type)] + [n.type for n in self.kept]
        return all(isinstance(t, TensorType) for t in variables)

    def function_of_one_loop(self) -> Function:
        """The variables: a value for each place, what is kept, and the stage."""
        count = max(self.places.values(), default=-1) + 1
        starts = {place: begin.inputs[k] for (begin, k), place in reversed(self.places.items())}
        firsts = {self.places[self.begins[0], k] for k in self.live.columns[self.outer]}
        inits = [starts[k] if k in firsts else self._any(starts[k]) for k in range(count)]
        last = self.b.loop([*inits, *map(self._any, self.kept), self.b.constant(np.int32(0))], self._iteration)
        return with_results(self.function, tuple(last[self.places[self.begins[0], index_of(r)]] for r in self.function.results))

    def _any(self, node: Node) -> Node:
        """A value of the type of a node, which nobody reads."""
        assert isinstance(node.type, TensorType)
        return self.b.splat(0, node.type)

    def _iteration(self, v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        b, stage, count = self.b, v[-1], len(v) - 1 - len(self.kept)
        now = {n: n for n in self.nodes if n not in self.varying}
        now |= {n: v[self.places[key]] for n in self.varying if (key := self._variable(n)) in self.places}
        began = dict(now)
        now |= dict(zip(self.kept, v[count:-1], strict=True))

        def at(wanted: Iterable[Node], made: dict[Node, Node]) -> list[Node]:
            return on_demand(wanted, made, lambda n: n.inputs, copied)

        def state(number: int, end: Node, values: Sequence[Node], kept: Sequence[Node] = v[count:-1]) -> list[Node]:
            """All variables where the next stage is that of a number, those of a loop with these values."""
            found = dict(enumerate(v[:count])) | {self.places[end.inputs[0], k]: x
                                                  for k, x in zip(self.live.columns[end], values, strict=True)}
            return [*found.values(), *kept, b.constant(np.int32(number))]

        branches = [state(1, self.inner[0], at(self.live.inits(self.inner[0]), began), at(self.kept, began))]
        for number, end in enumerate(self.inner, 1):
            (test,) = at((end.inputs[1],), now)
            following = self.ends[(number + 1) % len(self.ends)]
            values = self.live.nexts(following) if following is self.outer else self.live.inits(following)
            branches.append(list(b.branch(test, state(number, end, at(self.live.nexts(end), now)),
                                          state((number + 1) % len(self.ends), following, at(values, now)))))
        (more,) = at((self.outer.inputs[1],), began)
        return b(or_, b(compare, stage, b.like(0, stage), direction="NE"), more), b.branch(stage, *branches)

    def _variable(self, node: Node) -> Variable | None:
        """The variable that a node is."""
        if node.op is PHI and node.inputs[0] in self.begins:
            return node.inputs[0], index_of(node)
        return (node.inputs[0].inputs[0], index_of(node)) if node.op is PROJ and node.inputs[0] in self.inner else None

    def _kept(self) -> list[Node]:
        """The small values that are computed where an outer iteration starts, and read after that."""
        later = set[Node]().union(*(varying_with(self.nodes, begin) for begin in self.begins[1:]))
        read = {i for n in later for i in n.inputs if n is not self.begins[1]} & self.varying - later
        return [n for n in sorted(read, key=lambda n: n.serial)
                if isinstance(n.type, TensorType) and n.type.size <= MOST_KEPT and self._variable(n) is None]

    # --- places

    def _places(self) -> dict[Variable, int]:
        """Where each variable is: in a place of its own, or in that of another, which nobody reads once this one has its value."""
        places = {(self.begins[0], k): place for place, k in enumerate(self.live.columns[self.outer])}
        free = dict(places)
        for number, end in enumerate(self.inner, 1):
            begin, read = self.begins[number], self._read_from(number)
            for k, init in zip(self.live.columns[end], self.live.inits(end), strict=True):
                taken = next((s for s in self._read((init,)) if s in free and s not in read and self._type(s) == init.type), None)
                places[begin, k] = free.pop(taken) if taken is not None else max(places.values(), default=-1) + 1
            free |= {(begin, k): places[begin, k] for k in self.live.columns[end]}
        return places

    def _type(self, variable: Variable) -> Type:
        begin, k = variable
        return begin.inputs[k].type

    def _read_from(self, number: int) -> set[Variable]:
        """The variables that are read in a stage or later, before the next outer iteration."""
        ends = self.inner[number - 1 :]
        wanted = [i for e in ends for i in (e.inputs[1], *self.live.nexts(e))] + list(self.live.nexts(self.outer))
        return set(self._read([*wanted, *(i for e in ends[1:] for i in self.live.inits(e))]))

    def _read(self, wanted: Iterable[Node]) -> list[Variable]:
        """The variables that these nodes are computed of."""
        found, seen, stack = list[Variable](), set(self.kept), list(wanted)
        while stack:
            node = stack.pop()
            if node in seen or node not in self.varying:
                continue
            seen.add(node)
            variable = self._variable(node)
            if variable is None:
                stack += node.inputs
            else:
                found.append(variable)
        return found


def varying_with(nodes: Sequence[Node], begin: Node) -> set[Node]:
    """Those of the nodes that depend on the variables of a loop, with its `loop_begin` and whole loops of which a part does."""
    found, size = {begin}, 0
    while len(found) > size:
        size = len(found)
        found.update(n for n in nodes if not found.isdisjoint(n.inputs))
        found.update(n.inputs[0] for n in list(found) if n.op is LOOP_END)
    return found
