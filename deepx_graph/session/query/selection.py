"""A part of a program, chosen by a query, by what lies on the way from one node to another, or by both.

A part belongs to one function when it is to become a program of its own; to be looked at it may be anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deepx_graph.errors import Diagnostic, UsageError, printable
from deepx_graph.ir import Function, Module, Node
from deepx_graph.passes.fusion.why import find_node
from deepx_graph.session.query.extract import cut
from deepx_graph.session.query.language import parse_query
from deepx_graph.session.query.node_facts import Facts


@dataclass(frozen=True)
class Subgraph:
    """What is chosen: nodes that fit the query `where`, that depend on `start`, and that `end` depends on; the ends included."""

    where: str | None = None
    start: str | None = None
    end: str | None = None
    function: str | None = None
    """The only function to choose from."""

    def __bool__(self) -> bool:
        return self.where is not None or self.start is not None or self.end is not None

    def nodes(self, module: Module) -> dict[Function, list[Node]]:
        """The chosen nodes by function, the entry first.

        Raises UsageError for a query that is none, a node that is not there, ends in two functions, or when nothing is chosen.
        """
        if self.function is not None:
            function = module[self.function]
            module = Module((function,), function.name, module.source, module.format)
        ends = {which: find_node(module, text) for which, text in (("from", self.start), ("to", self.end)) if text is not None}
        functions = {f.name: f for f, _ in ends.values()}
        if len(functions) > 1:
            raise UsageError(f"'{printable(self.start or '')}' and '{printable(self.end or '')}' are in two functions")
        query = parse_query(self.where or "")
        if query.measured:
            raise UsageError(Diagnostic(f"'{query.measured[0]}' is measured, and there is no run to take it from",
                                        hint="the terminal browser (deepx-graph tui) knows it of what it has run"))
        found: dict[Function, list[Node]] = {}
        for f in functions.values() or (module.entry, *(g for g in module.functions if g is not module.entry)):
            facts = Facts(f)
            between = _between(facts, {which: n for which, (_, n) in ends.items()})
            chosen = [n for n in f.nodes if n in between and query.matches(facts, n)]
            if chosen:
                found[f] = chosen
        if not found:
            hint = "the terminal browser (deepx-graph tui) tries queries as you type"
            raise UsageError(Diagnostic(f"no node matches: {self}", hint=hint))
        return found

    def addresses(self, module: Module) -> frozenset[str]:
        """How pictures name the chosen nodes."""
        found: set[str] = set()
        for f, chosen in self.nodes(module).items():
            number = {n: k for k, n in enumerate(f.nodes)}
            prefix = "" if f.name == module.entry_name else f.name
            found.update(f"{prefix}#{number[n]}" for n in chosen)
        return frozenset(found)

    def extracted(self, module: Module) -> Module:
        """The chosen nodes as a program of their own. Raises UsageError as `nodes` and `cut` do, and for several functions."""
        found = self.nodes(module)
        if len(found) > 1:
            names = ", ".join(printable(f.name) for f in found)
            message = f"what is chosen is in {len(found)} functions: {names}"
            raise UsageError(Diagnostic(message, hint="add function:NAME to the query"))
        ((function, nodes),) = found.items()
        return cut(module, function, nodes)

    def __str__(self) -> str:
        parts = (("from", self.start), ("to", self.end), ("where", self.where))
        return " ".join(f"{word} '{printable(text)}'" for word, text in parts if text) or "chosen"


def _between(facts: Facts, ends: Mapping[str, Node]) -> frozenset[Node]:
    found = frozenset(facts.function.nodes)
    if "from" in ends:
        found &= facts.after(ends["from"])
    if "to" in ends:
        found &= facts.before(ends["to"])
    return found
