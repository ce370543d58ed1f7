"""Laws over a whole function: loops are closed once and left only through their end; the state is passed on like a baton.

Both take functions whose nodes are sound one by one, and are near-linear: distinct sets of loops are kept once, and uses of a
state are followed to where they meet.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from deepx_graph.errors import Diagnostic
from deepx_graph.ir import Function, Node, describe, problem
from deepx_graph.ir.structure import LOOP_BEGIN, LOOP_END, PHI, PROJ, REGION, branch_width, is_loop_variable
from deepx_graph.types import is_state

MAX_LOOP_DEPTH = 1000
"""More loops around one value than this are refused: the checks need the set of loops of each value."""

Report = Callable[[Diagnostic], None]


# --- loops: closed once, left through the end ----------------------------------------------------------------------


@dataclass
class LoopDependences:
    """The loops that each value depends on: those of the phis it reaches, a loop_end taking its own out.

    Sets of loops are shared: each distinct one is kept once, and the union of two is computed once.
    """

    function: Function
    report: Report
    _sets: list[frozenset[Node]] = field(default_factory=lambda: [frozenset()])
    _number: dict[frozenset[Node], int] = field(default_factory=lambda: {frozenset(): 0})
    _unions: dict[tuple[int, int], int] = field(default_factory=dict)

    def check(self) -> None:
        """Reports loops closed twice, nested too deep, or left by a value other than through their end."""
        if not any(n.op is LOOP_BEGIN for n in self.function.nodes):
            return
        ends: dict[Node, Node] = {}
        depends: dict[Node, int] = {}
        for node in self.function.nodes:
            at = 0
            for i in node.inputs:
                at = self._union(at, depends[i])
            if is_loop_variable(node):
                at = self._union(at, self._intern(frozenset((node.inputs[0],))))
            elif node.op is LOOP_END:
                begin = node.inputs[0]
                if ends.setdefault(begin, node) is not node:
                    self.report(problem(node, "closes a loop that is closed already",
                                         hint=f"first closed by {describe(ends[begin])}"))
                at = self._intern(self._sets[at] - {begin})
            if len(self._sets[at]) > MAX_LOOP_DEPTH:
                self.report(problem(node, f"is inside more than {MAX_LOOP_DEPTH} loops"))
                return
            depends[node] = at
        self._check_results(depends, ends)

    def _check_results(self, depends: dict[Node, int], ends: dict[Node, Node]) -> None:
        for k, result in enumerate(self.function.results):
            for begin in sorted(self._sets[depends[result]], key=lambda n: n.serial):
                why = "is never closed" if begin not in ends else f"is left only through {describe(ends[begin])}"
                self.report(problem(result, f"result '{self.function.result_name(k)}' depends on a variable of a loop "
                                             f"that {why}", expected="proj of the loop's loop_end"))

    def _intern(self, loops: frozenset[Node]) -> int:
        number = self._number.setdefault(loops, len(self._sets))
        if number == len(self._sets):
            self._sets.append(loops)
        return number

    def _union(self, a: int, b: int) -> int:
        if a == b or b == 0:
            return a
        if a == 0:
            return b
        key = (a, b) if a < b else (b, a)
        if key not in self._unions:
            self._unions[key] = self._intern(self._sets[a] | self._sets[b])
        return self._unions[key]


# --- state: passed on like a baton --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fate:
    """The end of a state: branch `branch` of a region, or (`branch` is -1) an end that nothing rejoins."""

    at: Node
    branch: int = -1

    @property
    def order(self) -> float:
        return math.inf if self.branch < 0 else self.at.serial


@dataclass
class Threads:
    """The state as it passes from effect to effect; `carrier` names a state by the node that produced it."""

    function: Function
    report: Report

    def check(self) -> None:
        """Reports states that are used twice, or that come from somewhere else than the loop or branch they are given to."""
        self._check_sources()
        self._check_uses()

    def _check_sources(self) -> None:
        """Each state descends from the parameter, or from its loop's variable inside a loop."""
        source: dict[Node, Node] = {}
        for node in self.function.nodes:
            if node.op is PROJ or node.op is PHI:
                continue
            states = [carrier(i) for i in node.inputs if is_state(i.type) and i.op is not LOOP_BEGIN]
            given = list(dict.fromkeys(source[s] for s in states))
            if node.op is LOOP_END:
                begin = node.inputs[0]
                if given and given != [begin]:
                    self.report(problem(node, "the next state is not made from the loop's own state variable"))
                outer = [carrier(i) for i in begin.inputs if is_state(i.type)]
                source[node] = source[outer[0]] if outer else node
            elif node.op is LOOP_BEGIN:
                source[node] = node
            else:
                if len(given) > 1 or (len(states) > 1 and node.op is not REGION):
                    self.report(problem(node, "takes several states", expected="the one state that is current there"))
                source[node] = given[0] if given else node
        for k, result in enumerate(self.function.results):
            if is_state(result.type) and source[carrier(result)] not in self.function.params:
                self.report(problem(result, f"result '{self.function.result_name(k)}' is a state that does not come "
                                             "from the function's state parameter"))

    def _check_uses(self) -> None:
        """Users before inputs: the uses of a state must meet again, each in another branch of the same region."""
        nodes = self.function.nodes
        ends = {n.inputs[0]: n for n in nodes if n.op is LOOP_END}
        read = {carrier(n) for n in nodes if n.op in (PROJ, PHI) and is_state(n.type)}
        fates: dict[Node, list[Fate]] = {n: [] for n in nodes}
        settled: dict[Node, Fate] = {}
        for result in self.function.results:
            if is_state(result.type):
                fates[carrier(result)].append(Fate(result))
        for node in reversed(nodes):
            if node.op is PROJ or node.op is PHI:
                continue
            settled[node] = self._settle(node, fates[node], settled)
            if not _is_idle(ends.get(node, node), read):
                for k, i in enumerate(node.inputs):
                    if is_state(i.type) and i.op is not LOOP_BEGIN:
                        fates[carrier(i)].append(_fate_of_use(node, k, settled, ends))

    def _settle(self, node: Node, fates: list[Fate], settled: dict[Node, Fate]) -> Fate:
        """The one fate of a state with these uses; inner regions, which are older than those around them, join first."""
        if len(fates) < 2:
            return fates[0] if fates else Fate(node)
        heap = [(f.order, k, f) for k, f in enumerate(fates)]
        heapq.heapify(heap)
        while True:
            order, k, first = heapq.heappop(heap)
            if not heap:
                return first
            branches = [first.branch]
            while heap and heap[0][0] == order:
                branches.append(heapq.heappop(heap)[2].branch)
            if first.branch < 0 or len(set(branches)) < len(branches):
                self.report(problem(node, "its state is used by two effects",
                                     expected="each effect takes the state that the one before it gives"))
                return first
            joined = settled[first.at]
            if not heap:
                return joined
            heapq.heappush(heap, (joined.order, k, joined))


def carrier(node: Node) -> Node:
    """The node that produced a state, seen through projections; a loop's own variable is named by its loop_begin."""
    while node.op is PROJ or node.op is PHI:
        node = node.inputs[0]
    return node


def _fate_of_use(user: Node, operand: int, settled: dict[Node, Fate], ends: dict[Node, Node]) -> Fate:
    if user.op is REGION and operand > 0:
        return Fate(user, (operand - 1) // branch_width(user))
    if user.op is LOOP_BEGIN and user in ends:
        return settled[ends[user]]
    if user.op is LOOP_END:
        return Fate(user)
    return settled[user]


def _is_idle(node: Node, read: set[Node]) -> bool:
    """A region or loop that hands a state through unchanged, while what comes after has the state from elsewhere."""
    if node in read or node.op not in (REGION, LOOP_END):
        return False
    given = {carrier(i) for i in node.inputs if is_state(i.type) and i.op is not LOOP_BEGIN}
    return given == {node.inputs[0]} if node.op is LOOP_END else len(given) == 1
