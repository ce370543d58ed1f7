"""In which kernel a node of a program runs after fusion, what that kernel should take by the cost model, and what it takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from deepx_graph.errors import printable
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ops import fusion
from deepx_graph.passes.fuse import Fuse
from deepx_graph.passes.why import find_node
from deepx_graph.runtime import engines
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.engine import Arranging
from deepx_graph.session.inputs import random_inputs
from deepx_graph.session.kernels import KernelRow, computes, row
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
        return (f"{printable(self.node)} is in {printable(k.kernel)}: {k.type} [{k.way}], {k.bytes:,} bytes, "
                f"{k.flops:,} operations: {predicted}{measured}")

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self)


def placed(module: Module, names: Sequence[str], engine: str = "auto", threads: int | None = None, *,
           measure: bool = False) -> list[Placed]:
    """The kernels of the nodes of these names (see `why.find_node`), but for those that no kernel computes or of unknown size.

    With `measure` the program runs, on inputs made up. Raises UsageError for an engine or node that there is none of.
    """
    chosen = engines.get(engine, threads)
    fused = Fuse().run(module)
    times = _times(fused, engine, threads) if measure else {}
    found = []
    for name in names:
        owner, node = find_node(module, name)
        function = fused[owner.name]
        function = chosen.arrange(function) if isinstance(chosen, Arranging) else function
        holder = _holder(function.nodes, node)
        if holder is None or not _is_known(function, holder):
            continue
        ran = _holder(times, node)
        found.append(Placed(name, row(chosen, function, holder), None if ran is None else times[ran]))
    return found


def _holder(nodes: Iterable[Node], wanted: Node) -> Node | None:
    """The first of the nodes that computes another one: it is that one, or a kernel with it inside."""
    for n in nodes:
        inside = n.attrs[0].nodes if n.op is fusion else (n,)
        if any(m.op is wanted.op and m.origin == wanted.origin and m.attrs == wanted.attrs for m in inside):
            return n
    return None


def _is_known(function: Function, node: Node) -> bool:
    return computes(node) and all(is_static(n.type) for n in (node, *node.inputs))


def _times(module: Module, engine: str, threads: int | None) -> dict[Node, float]:
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
