"""A part of a program, chosen by a query, by what lies on a path between two nodes, or by both; and it as a program of its own.

What is cut out belongs to one function; what is only looked at may be anywhere. Parameters of the new program are what the chosen
nodes read from outside. Constants come along. A value of a branch or loop needs its region or loop, and a loop needs all that it
computes in each iteration: these are added. Results are the chosen nodes that are read outside, or nowhere. The state of effects
is the last parameter and the last result, as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from deepx_graph.errors import Diagnostic, UsageError, printable
from deepx_graph.ir import Function, Module, Node, Origin
from deepx_graph.ir.rebuild import copied, rebuild
from deepx_graph.ir.structure import CONSTANT, LOOP_BEGIN, LOOP_END, PARAM, PHI, REGION, is_loop_variable
from deepx_graph.passes.autodiff.prepare import unused_name
from deepx_graph.passes.fusion.why import find_node
from deepx_graph.passes.scalar.dce import called
from deepx_graph.session.query.facts import Facts
from deepx_graph.session.query.language import parse_query
from deepx_graph.types import StateType


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
        for f in functions.values() or module.entry_first:
            facts = Facts(f)
            between = [facts.after(n) if which == "from" else facts.before(n) for which, (_, n) in ends.items()]
            chosen = [n for n in f.nodes if all(n in part for part in between) and query.matches(facts, n)]
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


# --- as a program of its own ----------------------------------------------------------------------------------------


def cut(module: Module, function: Function, nodes: Iterable[Node]) -> Module:
    """The module whose entry computes the chosen nodes of `function`; of other functions those that it calls stay.

    Raises UsageError when nothing is chosen, or when what is chosen needs two states at once.
    """
    chosen = closed(function, nodes)
    if not any(n.op is not CONSTANT and n.op is not PARAM for n in chosen):
        raise UsageError("nothing is cut out: no operation is chosen")
    own = [n for n in function.nodes if n in chosen and n.op is not PARAM]
    outside = [i for i in dict.fromkeys(i for n in own for i in n.inputs) if i not in chosen or i.op is PARAM]
    params = _params(outside, function)
    made = rebuild(own, dict(params), copied)
    read = [n for n in own if _is_read_outside(function, n, chosen)]
    results = sorted(read, key=lambda n: isinstance(n.type, StateType))
    states = sum(isinstance(n.type, StateType) for n in results)
    if states > 1:
        raise UsageError("the part that is cut out gives more than one state")
    if not states and any(isinstance(p.type, StateType) for p in params.values()):
        raise UsageError("the part that is cut out takes a state and gives none: it needs the effects on the way")
    entry = Function(function.name, tuple(params.values()), tuple(made[n] for n in results), tuple(n.name for n in results))
    needed = called(module, (entry,))
    if function.name in needed:  # it calls itself, as it was
        entry = replace(entry, name=unused_name(function.name, {f.name for f in module.functions}))
    others = (f for f in module.functions if f.name in needed)
    return Module((entry, *others), entry.name, module.source, module.format, datas=module.datas)


def closed(function: Function, nodes: Iterable[Node]) -> set[Node]:
    """The nodes, with the constants that they read and the control that they cannot be without."""
    chosen: set[Node] = set()
    stack, facts = list(nodes), Facts(function)
    ends = {n.inputs[0]: n for n in function.nodes if n.op is LOOP_END}
    while stack:
        n = stack.pop()
        if n in chosen:
            continue
        chosen.add(n)
        stack += (i for i in n.inputs if i.op is CONSTANT or n.op is PHI)
        if n.op is LOOP_BEGIN and n in ends:
            stack.append(ends[n])
        elif n.op is LOOP_END:
            stack += facts.after(n.inputs[0]) & facts.before(n)  # what each iteration computes
        if n.op is LOOP_END or n.op is REGION:  # its values leave it one by one
            stack += function.users[n]
    return chosen


def _params(outside: list[Node], function: Function) -> dict[Node, Node]:
    """A parameter for each value from outside, the state last, each with a name of its own."""
    number = {n: k for k, n in enumerate(function.nodes)}
    ordered = sorted(outside, key=lambda n: (isinstance(n.type, StateType), number[n]))
    if sum(isinstance(n.type, StateType) for n in ordered) > 1:
        raise UsageError("the part that is cut out takes more than one state")
    names: dict[str, None] = {}
    made: dict[Node, Node] = {}
    for k, n in enumerate(ordered):
        name = n.name if n.name and n.name not in names else f"v{number[n]}"
        names[name] = None
        made[n] = Node(PARAM, (), (k, n.type), n.type, Origin(name, n.origin.spans))
    return made


def _is_read_outside(function: Function, node: Node, chosen: set[Node]) -> bool:
    if node.op in (CONSTANT, LOOP_BEGIN) or is_loop_variable(node):
        return False
    users = function.users[node]
    return node in function.results or not users or any(u not in chosen for u in users)
