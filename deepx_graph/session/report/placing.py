"""Which kernel computes a node after fusion, as an engine would run it, and why two nodes share one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from deepx_graph.analysis.work import NEVER, Times, node_times
from deepx_graph.errors import printable, sized
from deepx_graph.ir import Function, Module, Node, Origin
from deepx_graph.ir.rebuild import rebuilt
from deepx_graph.ir.structure import PARAM
from deepx_graph.ops import FAMILY_OF
from deepx_graph.ops.data.fusion import kernel_body
from deepx_graph.passes.fusion.fuse import Fuse
from deepx_graph.passes.fusion.why import Kind, Reason, explain, find_node
from deepx_graph.runtime import engines
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.cost.counts import function_times
from deepx_graph.runtime.engines.base import canonicalized
from deepx_graph.runtime.engines.whole_function import is_program
from deepx_graph.runtime.program import is_kernel
from deepx_graph.session.inputs import random_inputs
from deepx_graph.session.report.kernels import KernelRow, computes, row
from deepx_graph.types import is_static

RUNS = 5
"""Calls that a measurement takes the mean of, after one to warm up."""


@dataclass(frozen=True)
class Placed:
    """A node and its kernel; `measured_us` is the mean of a call, None where nothing was measured."""

    node: str
    kernel: KernelRow
    measured_us: float | None = None

    def __str__(self) -> str:
        k = self.kernel
        predicted = "nothing is predicted" if k.predicted_us is None else f"predicted {k.predicted_us:,.2f} us ({k.bound})"
        measured = "" if self.measured_us is None else f", measured {self.measured_us:,.2f} us"
        return (f"{printable(self.node)} is in {printable(k.kernel)}: {k.type} [{k.lowering}], {sized(k.bytes)}, "
                f"{k.flops:,} operations: {predicted}{measured}")

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self)


@dataclass(frozen=True)
class PlacedKernel:
    """A kernel where it stands: in a function called `owner`, or in the body of `outer`, a loop or program that is one kernel; and
    how often one run of the program runs it."""

    owner: str
    function: Function
    node: Node
    outer: Node | None
    times: Times


class Placing:
    """The kernels of a module after fusion as an engine would run them, and which of them computes what.

    Raises UsageError for an engine that is none.
    """

    def __init__(self, module: Module, engine: str = "auto", threads: int | None = None) -> None:
        self.module, self._choice = module, (engine, threads)
        self._engine = engines.get(engine, threads)
        self._origins: dict[Node, Origin] = {}
        self._fused = Fuse().run(module.with_functions(map(self._marked, module.functions)))
        self._functions = {f.name: f for f in canonicalized(self._fused, self._engine, apart=True).functions}
        self._computing: dict[int, Node] = {}
        self._holders: dict[int, list[Node]] = {}
        for function in self._functions.values():
            for node in function.nodes:
                for origin in origins_inside(node):
                    self._holders.setdefault(id(origin), []).append(node)

    def _marked(self, function: Function) -> Function:
        """The function with an origin of its own for each node, by which it is found again: passes and engines hand origins on."""

        def step(node: Node, inputs: tuple[Node, ...]) -> Node:
            self._origins[node] = replace(node.origin)
            return node if node.op is PARAM else Node(node.op, inputs, node.attrs, node.type, self._origins[node])

        return rebuilt(function, step)

    def why(self, a: str | Node, b: str | Node) -> Reason:
        """Why two nodes are, or are not, in one kernel: by fusion, or by the engine, which joins more. Raises as `explain` does."""
        reason = explain(self.module, a, b)
        if reason.fused or len(reason.nodes) < 1 or reason.kind in (Kind.SAME_NODE, Kind.DEAD, Kind.FUNCTIONS):
            return reason
        nodes = [n if isinstance(n, Node) else find_node(self.module, n)[1] for n in (a, b)]
        nodes.sort(key=lambda n: n.serial)
        shared = [h for h in self.holders(nodes[0]) if h in self.holders(nodes[1])]
        if not shared:
            return reason
        function = next(f for f in self.module.functions if nodes[0] in f.users)
        return Reason(Kind.JOINED, tuple(nodes), f"{self._engine.name}: {self.lowering(shared[0])}").labelled(function)

    @property
    def engine_name(self) -> str:
        """What the engine is called."""
        return self._engine.name

    def origin(self, node: Node) -> Origin | None:
        """The origin that a node of the module has in the kernels; None for one that is not computed."""
        return self._origins.get(node)

    @property
    def fused(self) -> Module:
        """The module after fusion, before the engine arranges it."""
        return self._fused

    def fused_node(self, node: Node) -> Node:
        """The node of the fused module that computes a node of the module, which is computed."""
        if not self._computing:
            self._computing = {id(o): n for f in self._fused.functions for n in f.nodes for o in origins_inside(n)}
        return self._computing[id(self._origins[node])]

    def lowering(self, node: Node) -> str:
        """How the engine runs a kernel."""
        self._engine.kernel(node)
        return self._engine.lowering(node)

    def kernels(self) -> Iterator[PlacedKernel]:
        """The kernels that something runs, those inside of whole programs and loops instead of these."""
        runs = function_times(self.module)
        stack: list[tuple[str, Function, Node | None, Times]] = [
            (name, f, None, runs[name]) for name, f in self._functions.items() if name in runs]
        while stack:
            owner, function, outer, times = stack.pop()
            each = node_times(function)
            for node in function.nodes:
                if computes(node) and each.get(node, NEVER).count:
                    body = kernel_body(node)
                    if body is not None and (is_program(body) or any(map(kernel_body, body.nodes))):
                        stack.append((owner, body, outer or node, times * each[node]))
                    else:
                        yield PlacedKernel(owner, function, node, outer, times * each[node])

    def holders(self, node: Node) -> list[Node]:
        """The kernels, one or several, that compute a node of the module: it is that node, or stands inside."""
        return [h for h in self._holders.get(id(self._origins[node]), ()) if is_kernel(h)] if node in self._origins else []

    def placed(self, names: Sequence[str], *, measure: bool = False) -> list[Placed]:
        """The kernels of the nodes of these names (see `why.find_node`), but for those that no kernel computes or of unknown size.

        With `measure` the program runs, on generated inputs. Raises UsageError for a node that there is none of.
        """
        times = _measured_us(self._fused, *self._choice) if measure else {}
        found = []
        for name in names:
            owner, node = find_node(self.module, name)
            holder = next(iter(self.holders(node)), None)
            if holder is None or not is_sized(holder):
                continue
            origin = self._origins[node]
            ran = next((t for n, t in times.items() if any(o is origin for o in origins_inside(n))), None)
            found.append(Placed(name, row(self._engine, self._functions[owner.name], holder), ran))
        return found


def origins_inside(node: Node) -> Iterator[Origin]:
    """The origins of a node and of all that stands in its body, bodies of bodies included."""
    stack = [node]
    while stack:
        n = stack.pop()
        yield n.origin
        if FAMILY_OF.get(n.op) == "fusion":
            stack += (m for m in n.attr("body").nodes if m.op is not PARAM)  # a parameter has the origin of what it stands for


def is_sized(node: Node) -> bool:
    """Whether a kernel computes the node, and all sizes that it meets are known."""
    return computes(node) and all(is_static(n.type) for n in (node, *node.inputs))


def _measured_us(module: Module, engine: str, threads: int | None) -> dict[Node, float]:
    """Microseconds of a call of every kernel."""
    f = compile(module, engine=engine, threads=threads, profile=True)
    inputs: dict[str, Any] = random_inputs(f.inputs, 0)
    f(**inputs)
    assert f.profile is not None
    warm = f.profile.seconds()
    for _ in range(RUNS):
        f(**inputs)
    return {n: (s - warm[n][0]) * 1e6 / (calls - warm[n][1])
            for n, (s, calls, _) in f.profile.seconds().items() if n in warm and calls > warm[n][1]}
