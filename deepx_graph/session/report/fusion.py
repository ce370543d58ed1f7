"""What fusion made of a program: its kernels with what they hold and how they run, and the pairs that it left apart.

A pair is a value and a kernel that reads it from memory, or two kernels that read one input. What joining them would save is the
memory traffic of that value: its load, and its store where nobody else needs it. Reasons are those of `why`, a closed list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from deepx_graph.analysis.name_scopes import name_scopes, shares
from deepx_graph.analysis.work import NEVER, Times, bytes_moved, flops
from deepx_graph.errors import TextReport, counted, printable, sized
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ops.data.fusion import kernel_body
from deepx_graph.passes.fusion.fuse import Fuse
from deepx_graph.passes.fusion.grouping import Grouping
from deepx_graph.passes.fusion.iteration_space import dims
from deepx_graph.passes.fusion.why import Kind, Reason, decision
from deepx_graph.progress import stage
from deepx_graph.session.query.facts import Apart
from deepx_graph.session.report.kernels import run_times
from deepx_graph.session.report.placing import PlacedKernel, Placing, is_sized, origins_inside
from deepx_graph.types import is_state, is_static, nbytes

SHOWN_KERNELS, SHOWN_PAIRS, SHOWN_OPERATIONS, SHOWN_SCOPES = 20, 12, 4, 3
"""How many kernels and pairs a report lists, and of a kernel how many kinds of operations and scopes."""

NOT_DECLINED = frozenset((Kind.FUSED, Kind.JOINED, Kind.SAME_NODE, Kind.CONSTANT, Kind.PARAMETER, Kind.DEAD))
"""What is no refusal."""


@dataclass(frozen=True)
class FusedKernel:
    """One kernel: how often each operation is in it, the share that each name scope has of them, and how it runs.

    `outer` is how the loop or program that it is a part of runs; empty for one that is called by itself. `bytes` and `flops` are of
    one call; one run of the program makes `runs` calls, or an unknown number times that.
    """

    function: str
    name: str
    type: str
    operations: Mapping[str, int]
    scopes: Mapping[str, float]
    lowering: str
    outer: str
    bytes: int
    flops: int
    runs: int
    runs_known: bool

    def __str__(self) -> str:
        what = _listed([f"{n} {op}" if n > 1 else op for op, n in self.operations.items()], SHOWN_OPERATIONS)
        one = len(self.scopes) == 1
        where = _listed([name if one else f"{name} {share:.0%}" for name, share in self.scopes.items() if name], SHOWN_SCOPES)
        return (f"{printable(self.name)}: {self.type} = {what}{f' in {printable(where)}' if where else ''}"
                f" [{self.lowering or self.outer}]")

    @property
    def cost(self) -> int:
        """By which kernels are ranked: bytes and operations of all calls."""
        return (self.bytes + self.flops) * self.runs


def _listed(items: list[str], most: int) -> str:
    left = len(items) - most
    return ", ".join(items[:most]) + (f" and {left} more" if left > 0 else "")


@dataclass(frozen=True)
class DeclinedPair:
    """Two operations in different kernels of which one reads the other, or that read one value; and why they are apart.

    Both are called by what `why` finds them by. `saves` are the bytes of memory traffic that one kernel for both would save in a
    run, each time counted; `scope` is where in the model the later one is.
    """

    function: str
    first: str
    second: str
    operations: tuple[str, str]
    reads: bool
    scope: str
    saves: int
    kind: str
    message: str

    def __str__(self) -> str:
        a, b = (f"{name} ({op})" for name, op in zip((self.first, self.second), self.operations, strict=True))
        return f"{a} {'->' if self.reads else 'beside'} {b}{f' in {self.scope}' if self.scope else ''}: {self.kind}"


@dataclass(frozen=True, repr=False)
class FusionReport(TextReport):
    """The kernels of a program, those of most cost first, and the pairs left apart, those that would save most first."""

    engine: str
    kernels: tuple[FusedKernel, ...]
    declined: tuple[DeclinedPair, ...]
    module: Module
    """The fused module."""
    apart: Mapping[Node, Apart]
    """Of the nodes of `module` that others might have been joined with, what that would save."""

    @property
    def reasons(self) -> dict[str, tuple[int, int]]:
        """Of each reason, how many pairs it kept apart and the bytes that they would save; the most bytes first."""
        pairs: Counter[str] = Counter(p.kind for p in self.declined)
        saves: Counter[str] = Counter()
        for p in self.declined:
            saves[p.kind] += p.saves
        return {kind: (pairs[kind], saved) for kind, saved in sorted(saves.items(), key=lambda item: (-item[1], item[0]))}

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"engine": self.engine, "kernels": [asdict(k) for k in self.kernels], "declined": [asdict(p) for p in self.declined],
                "reasons": {kind: {"pairs": n, "saves": saved} for kind, (n, saved) in self.reasons.items()}}  # fmt: skip

    def lines(self, *, whole: bool = False) -> Iterator[str]:
        """The report as text; only the first of both lists unless the `whole` is asked for."""
        inside = sum(sum(k.operations.values()) for k in self.kernels)
        yield f"{counted(len(self.kernels), 'kernel')} on {self.engine} for {counted(inside, 'operation')}"
        ways = Counter((k.lowering or k.outer).partition(":")[0] for k in self.kernels)
        outer = Counter(k.outer for k in self.kernels if k.outer)
        yield "  " + ", ".join(f"{n} {how}" for how, n in ways.most_common())
        yield from (f"  {counted(n, 'kernel')} inside of {how}" for how, n in outer.most_common())
        shown = self.kernels if whole else self.kernels[:SHOWN_KERNELS]
        yield f"  {'runs':>9} {'bytes':>9} {'operations':>14}  kernel"
        for k in shown:
            yield f"  {Times(k.runs, k.runs_known)!s:>9} {sized(k.bytes):>9} {k.flops:>14,}  {k}"
        if len(shown) < len(self.kernels):
            yield f"  and {len(self.kernels) - len(shown)} more (--all lists them)"
        yield from self._declined_lines(len(self.declined) if whole else SHOWN_PAIRS)

    def _declined_lines(self, most: int) -> Iterator[str]:
        if not self.declined:
            yield "nothing was kept apart: no kernel reads what another one writes"
            return
        total = sum(p.saves for p in self.declined)
        yield f"{counted(len(self.declined), 'pair')} apart; joined they would move {sized(total)} less in a run"
        yield f"  {'saves':>9} {'pairs':>6}  reason"
        yield from (f"  {sized(saved):>9} {n:>6}  {kind}" for kind, (n, saved) in self.reasons.items())
        yield f"  {'saves':>9}  pair"
        yield from (f"  {sized(p.saves):>9}  {printable(str(p))}" for p in self.declined[:most])
        if most < len(self.declined):
            yield f"  and {len(self.declined) - most} more (--all lists them)"


def fusion_report(module: Module, engine: str = "auto", threads: int | None = None) -> FusionReport:
    """What fusing a module, which is not fused yet, gives on an engine; what has no known size is not counted.

    Raises UsageError for an engine that is none.
    """
    stage("fuse")
    placing = Placing(module, engine, threads)
    stage("kernels")
    found = list(placing.kernels())
    kernels = sorted((_row(placing, k) for k in found if is_sized(k.node)), key=lambda k: -k.cost)
    kernel_of = {id(o): k.node for k in found for o in origins_inside(k.node)}
    stage("declined pairs")
    declined: list[DeclinedPair] = []
    apart: dict[Node, Counter[str]] = {}
    times = run_times(module)
    for function in module.functions:
        grouping = Grouping(function, Fuse(), record=True)
        holders = {n: kernel_of.get(id(placing.origin(n))) for n in function.nodes}
        called = Named(module, function)
        for first, second, saves in _apart(grouping, holders, times):
            reason = decision(grouping, first, second)
            if saves and reason.kind not in NOT_DECLINED:
                declined.append(called.pair(first, second, saves, reason, reads=first in grouping.roots[second]))
                apart.setdefault(placing.fused_node(first), Counter())[reason.kind.value] += saves
    declined.sort(key=lambda p: -p.saves)
    most = {n: Apart(c.total(), c.most_common(1)[0][0]) for n, c in apart.items()}
    return FusionReport(placing.engine_name, tuple(kernels), tuple(declined), placing.fused, most)


def _row(placing: Placing, k: PlacedKernel) -> FusedKernel:
    body = kernel_body(k.node)
    held = [k.node] if body is None else [n for n in body.nodes if n.inputs]
    belongs = shares(body) if body is not None else Counter((name_scopes(k.function)[k.node],))
    total = sum(belongs.values())
    return FusedKernel(
        k.owner, k.node.op.name + (f" {k.node.reference}" if k.node.name else ""), str(k.node.type),
        dict(Counter(n.op.name for n in held).most_common()),
        {str(scope): n / total for scope, n in belongs.most_common()},
        "" if k.outer is not None else placing.lowering(k.node), "" if k.outer is None else placing.lowering(k.outer),
        bytes_moved(k.node), flops(k.node), k.times.count, k.times.is_known)  # fmt: skip


class Named:
    """The nodes of a function by what `why` finds them by."""

    def __init__(self, module: Module, function: Function) -> None:
        self.function = function
        self.outside = "" if function.name == module.entry_name else function.name
        self.number = {n: k for k, n in enumerate(function.nodes)}
        self.count = Counter(n.name for n in function.nodes)
        self.scopes = name_scopes(function)

    def name(self, node: Node) -> str:
        """The name where it is one node's; else the number."""
        return node.name if node.name and self.count[node.name] == 1 and not self.outside else f"{self.outside}#{self.number[node]}"

    def pair(self, first: Node, second: Node, saves: int, reason: Reason, *, reads: bool) -> DeclinedPair:
        """The refusal of two nodes."""
        return DeclinedPair(self.function.name, self.name(first), self.name(second), (first.op.name, second.op.name), reads,
                            str(self.scopes[second]), saves, reason.kind.value, reason.labelled(self.function).message)


def _apart(grouping: Grouping, holders: Mapping[Node, Node | None], times: Mapping[Node, Times]
           ) -> Iterator[tuple[Node, Node, int]]:  # fmt: skip
    """Pairs in different kernels, the older first, with the bytes that one kernel would save: of each value, one for every kernel
    that reads it; and of two kernels that fusion refused to join at a shared input, the first pair."""
    for node in grouping.function.nodes:
        readers: dict[int, Node] = {}
        for user in grouping.users.get(node, ()):
            holder = holders.get(user)
            if holder is not None and holder is not holders.get(node):
                readers.setdefault(id(holder), user)
        if holders.get(node) is None or not readers or not _has_size(node):
            continue
        alone = len(readers) == 1 and node not in grouping.function.results
        for user in readers.values():
            yield node, user, nbytes(node.type) * (times.get(user, NEVER).count + alone * times.get(node, NEVER).count)
    seen: set[frozenset[int]] = set()
    for first, second in grouping.declined or ():
        pair = frozenset((id(holders.get(first)), id(holders.get(second))))
        if first not in grouping.roots[second] and len(pair) == 2 and pair not in seen:
            seen.add(pair)
            g, h = grouping.group_of[first], grouping.group_of[second]
            shared = (k for k in g.inputs if k in h.inputs and dims(k) == h.space.full and _has_size(k))
            yield first, second, sum(nbytes(k.type) for k in shared) * times.get(second, NEVER).count


def _has_size(node: Node) -> bool:
    return is_static(node.type) and not is_state(node.type)
