"""The loop programs of kernels, with the places in the text that they compute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from deepx_graph.errors import Diagnostic, Span, UsageError, counted, printable, suggest
from deepx_graph.ir import Function, Module, Node
from deepx_graph.loops.printer import show
from deepx_graph.loops.program import LoopProgram
from deepx_graph.ops import FAMILY_OF
from deepx_graph.runtime import engines
from deepx_graph.runtime.engines.base import Engine
from deepx_graph.session.report.kernels import called, computes, row
from deepx_graph.session.report.placing import origins_inside
from deepx_graph.types import is_static

SHOWN_SOURCES = 6
"""Lines of the text that are shown of a kernel."""

QUOTED = 100
"""Characters that are shown of a line."""


@dataclass(frozen=True)
class KernelLoops:
    """A kernel, and the loops that it is machine code of: None where it was made in another way, or is none.

    `outer` is the kernel inside which it runs, a loop or a whole program; `sources` are the places in the text that it computes.
    """

    kernel: str
    type: str
    lowering: str
    outer: str
    sources: tuple[str, ...]
    names: frozenset[str]
    program: str | None

    def __str__(self) -> str:
        inside = f" in {printable(self.outer)}" if self.outer else ""
        head = f"{printable(self.kernel)}: {self.type}{inside} [{self.lowering}]"
        lines = [head, *(f"  from {printable(s)}" for s in self.sources[:SHOWN_SOURCES])]
        lines += [f"  and {counted(left, 'more line')}"] if (left := len(self.sources) - SHOWN_SOURCES) > 0 else []
        return "\n".join([*lines, *(f"    {line}" for line in (self.program or "").splitlines())])

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self) | {"names": sorted(self.names)}


def loop_programs(module: Module, engine: str = "auto", threads: int | None = None, node: str | None = None) -> list[KernelLoops]:
    """The kernels of a module as an engine would run them, in order, with their loops; with a name, those that compute that node.

    Raises UsageError for unknown sizes, an engine that writes no loop programs, and a name that no kernel computes.
    """
    chosen = engines.get(engine, threads)
    if not chosen.writes_loops:
        raise UsageError(f"the engine {chosen.name} writes no loops: native does")
    if not all(is_static(n.type) for f in module.functions for n in f.nodes):
        raise UsageError("sizes are not known: there are no kernels yet")
    found = [k for f in module.functions for n in chosen.canonicalize(f).nodes if computes(n) for k in _loops_of(f, n, chosen)]
    if node is None:
        return found
    named = [k for k in found if node in k.names]
    if not named:
        names = {name for k in found for name in k.names}
        raise UsageError(Diagnostic(f"no kernel computes '{node}'", hint=suggest(node, names)))
    return named


def _loops_of(function: Function, node: Node, engine: Engine) -> Iterator[KernelLoops]:
    """A kernel, and those inside it where it is a loop or a whole program."""
    made = row(engine, function, node)
    program = engine.loop_program(node)
    inner = [] if program is not None or FAMILY_OF.get(node.op) != "fusion" else [
        (n, p) for n in node.attr("body").nodes if (p := engine.loop_program(n)) is not None]
    yield _kernel_loops(node, made.kernel, made.lowering, "", program)
    yield from (_kernel_loops(n, called(n), "machine code of loops", made.kernel, p) for n, p in inner)


def _kernel_loops(node: Node, kernel: str, lowering: str, outer: str, program: LoopProgram | None) -> KernelLoops:
    origins = list(origins_inside(node))
    spans = {(s.line, _quoted(s)) for o in origins for s in o.spans}
    return KernelLoops(kernel, str(node.type), lowering, outer, tuple(text for _, text in sorted(spans)),
                       frozenset(o.name for o in origins if o.name), None if program is None else show(program))


def _quoted(span: Span) -> str:
    """A place and the line that stands there."""
    if span.source.binary:
        return span.described
    start, end = span.source.line_bounds(span.line)
    line = span.source.text[start:end].strip()
    return f"{span.described}: {line if len(line) <= QUOTED else line[:QUOTED] + ' ...'}"
