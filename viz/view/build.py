"""From a module to its picture: every node a box, every operand an edge, and the control that the graph only implies made visible.

A region becomes If, one side per branch, and Region; its values go to their phis. A loop's first values go to its phis, its next
values to the loop_end, and a back edge returns to the head. Rank-0 constants are written into the boxes that use them. A fusion is
a frame around its body, or one box. Which nodes stand in which frame is the schedule's word, not decided here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from deepx_graph.analysis.name_scopes import ROOT, NameScope, name_scopes, parameter_name, parameter_path, within
from deepx_graph.errors import UsageError
from deepx_graph.ir import Function, Module, Node, Op
from deepx_graph.ir.structure import (
    CALL,
    CONSTANT,
    LOOP_BEGIN,
    LOOP_END,
    PARAM,
    PARTIAL,
    PHI,
    PROJ,
    REGION,
    branch_count,
    branch_width,
    callee_of,
    index_of,
    phi_choices,
    value_of,
)
from deepx_graph.types import TensorType, is_state
from deepx_graph.viz.view.frames import Head, Helpers, frames
from deepx_graph.viz.view.labels import (
    constant_text,
    family_of,
    op_title,
    parameter_title,
    scalar_text,
    selects_by_bool,
    short,
    side_name,
    subtitle,
    tooltip,
    type_text,
)
from deepx_graph.viz.view.model import Canvas, EdgeKind, NodeKind, SourceOperator, Told, View


def build_view(module: Module, functions: Sequence[str] | None = None, *, collapse: bool = False, open_calls: bool = False,
               title: str = "", tooltips: bool = True) -> View:
    """The whole picture of a module, or of the named functions; `collapse` draws a fusion as one box.

    Without `tooltips` nodes have none: whoever has all that is known of them by other means saves the time.

    With `open_calls` helpers are drawn where they are called (`Helpers`), and functions that the entry does not reach not at all.

    Raises UsageError for a function that is not there, VerifyError for one that has no schedule.
    """
    canvas, painters = Canvas(), dict[str, _Painter]()
    if functions is not None and not functions:
        raise UsageError("no function to draw")
    helpers = Helpers(module) if open_calls else None
    choice = _Choice(collapse, helpers, tooltips)
    everything = helpers.drawn() if helpers else module.functions
    for function in everything if functions is None else [module[name] for name in functions]:
        root = canvas.cluster("function", f"function {short(function.name, 60)}", None)
        painters[function.name] = _Painter(canvas, function, _prefix(module, function), choice, root)
        painters[function.name].paint()
    for painter in painters.values():
        painter.captures(painters)
    return canvas.view(title)


def _prefix(module: Module, function: Function) -> str:
    """What the addresses of a function's nodes begin with."""
    return "" if function.name == module.entry_name else function.name


def is_backward(node: Node) -> bool:
    """Whether `grad` made the node."""
    return "grad" in node.origin.rewrites


def _weights(function: Function) -> frozenset[Node]:
    """The parameters whose names are paths; where all have such names and constants hold what was learnt, these are inputs."""
    named = frozenset(p for p in function.params if len(parameter_path(parameter_name(p))) > 1)
    stored = sum(n.op is CONSTANT and bool(n.type.rank) for n in function.nodes if isinstance(n.type, TensorType))
    return frozenset() if len(named) == len(function.params) < stored else named


def _operator(node: Node) -> SourceOperator | None:
    """What of the source the node was read from."""
    span = node.span
    return None if span is None else SourceOperator(span.start, span.place.kind if span.place else "")


def _called(title: str, node: Node) -> str:
    """Below the name of the source's operator: what a node is called, and what else there is to say of it."""
    return f"{title}\n{subtitle(node)}".strip()


@dataclass(frozen=True)
class _Choice:
    """What is drawn as one box, what is opened, and whether tooltips are made."""

    collapse: bool
    helpers: Helpers | None
    tooltips: bool


class _Painter:
    """Draws one function in the frame `root`; with a `caller`, in place of its call, whose operands its parameters are."""

    def __init__(self, canvas: Canvas, function: Function, prefix: str, choice: _Choice, root: int,
                 caller: tuple[_Painter, Node] | None = None) -> None:
        self.canvas, self.function, self.prefix, self.choice, self.root = canvas, function, prefix, choice, root
        self.caller = caller
        self.bound = dict(zip(function.params, caller[1].inputs, strict=True)) if caller else {}
        self.scopes = name_scopes(function)
        self.weights = _weights(function)
        self.operators = {n: _operator(n) for n in function.nodes}
        times = Counter(o for n, o in self.operators.items() if o is not None and o.kind and n.op not in (PARAM, CONSTANT))
        self.alone = {operator for operator, count in times.items() if count == 1}
        """Operators of the source that are one operation: it is called as they are."""
        self.around = caller[0].scope(caller[1]) if caller else ROOT
        self.frames = frames(function, canvas, root)
        self.number = {n: k for k, n in enumerate(function.nodes)}
        self.at: dict[Node, int] = {}
        self.parts: dict[Node, list[int]] = {}
        self.heads: dict[Head, int] = {}
        self.variables: dict[Node, dict[int, str]] = {}
        self.pending: list[tuple[Head, int]] = []

    def scope(self, node: Node) -> NameScope:
        """The name scope of a node, below that of the call whose body this is."""
        return within(self.around, self.scopes[node])

    def paint(self) -> None:
        for node in self.function.nodes:
            if node in self.bound:
                continue
            handler = _HANDLERS.get(node.op)
            if handler is not None:
                handler(self, node)
            elif family_of(node.op) == "fusion" and not self.choice.collapse:
                self._fusion(node)
            else:
                self._op(node)
        if self.caller is None:
            for k, result in enumerate(self.function.results):
                self._result(k, result)
            self._start()
        for head, target in self.pending:
            if head in self.heads:  # an open call does not say what leads to it
                self.canvas.edge(self.heads[head], target, "control")

    # --- pieces

    def _box(self, node: Node, kind: NodeKind, title: str, below: Told = "") -> int:
        """A box for the node in its frame; the node's value comes out of it."""
        home = self.frames.home.get(node, self.root)
        self.at[node] = self._add(node, kind, title, below, home, f"{self.prefix}#{self.number[node]}")
        return self.at[node]

    def _add(self, node: Node, kind: NodeKind, title: str, below: Told, cluster: int, address: str, extra: str = "") -> int:
        scope = self.scope(node) if node in self.scopes else ROOT
        operator = self.operators[node] if node in self.operators else _operator(node)
        span = node.span
        return self.canvas.node(
            kind, title, below, cluster=cluster, family=family_of(node.op), shape=type_text(node.type),
            tip=partial(tooltip, node, address, extra) if self.choice.tooltips else "", name=node.name, address=address,
            scope=scope.path, op=node.op.name,
            weight=node.op is PARAM and node in self.weights, operator=operator,
            line=span.line if span else 0, backward=is_backward(node) or scope.phase == "backward",
        )  # fmt: skip

    def _source(self, node: Node) -> int:
        """The box that a value comes out of, made now for a constant or bundle that is drawn only when asked for."""
        if node in self.bound and self.caller:
            return self.caller[0]._source(self.bound[node])
        if node not in self.at and node in self.parts:
            bundle = self._box(node, "op", "tuple")
            for part in self.parts[node]:
                self.canvas.edge(part, bundle, "data")
        elif node not in self.at:
            self._box(node, "constant", scalar_text(node) or "constant", short(node.name))
        return self.at[node]

    def _edge(self, source: Node, target: int, label: str = "", kind: EdgeKind | None = None) -> None:
        """An edge for an operand, labelled with its type; nothing for a number, which stands in the box."""
        if self._number(source) is None:
            kind = kind or ("effect" if is_state(source.type) else "data")
            text = type_text(source.type)
            self.canvas.edge(self._source(source), target, kind, f"{label} {text}".strip() if label else text)

    def _seen(self, node: Node) -> Node:
        """The value that a parameter of an open call stands for; any other node itself."""
        painter = self
        while node in painter.bound and painter.caller:
            node, painter = painter.bound[node], painter.caller[0]
        return node

    def _number(self, node: Node) -> str | None:
        """The number that a value is, which stands in the box of whoever takes it."""
        seen = self._seen(node) if self.bound else node
        return scalar_text(seen) if seen.op is CONSTANT else None

    # --- ordinary nodes

    def _param(self, node: Node) -> None:
        self._box(node, "param", parameter_title(node), type_text(node.type))

    def _constant(self, node: Node) -> None:
        if self._number(node) is None:
            self._box(node, "constant", constant_text(value_of(node)) or "constant", short(node.name) or type_text(node.type))

    def _op(self, node: Node) -> None:
        kind: NodeKind = "fusion" if family_of(node.op) == "fusion" else "op"
        title, below = op_title(node, list(map(self._seen, node.inputs)) if self.bound else node.inputs), partial(subtitle, node)
        operator = self.operators[node]
        if operator in self.alone and operator is not None and operator.kind.lower() != node.op.name:
            title, below = short(operator.kind, 40), partial(_called, title, node)
        id = self._box(node, kind, title, below)
        for i in node.inputs:
            self._edge(i, id)

    def _call(self, node: Node) -> None:
        callee = self.choice.helpers.opened(node) if self.choice.helpers else None
        if callee is not None:
            self._open(node, callee)
            return
        id = self._box(node, "call", short(f"{node.op.name} {callee_of(node)}"), short(node.name))
        for i in node.inputs:
            self._edge(i, id)

    def _open(self, call: Node, callee: Function) -> None:
        """The nodes of a function in the frame of its call."""
        body = _Painter(self.canvas, callee, callee.name, self.choice, self.frames.home.get(call, self.root), (self, call))
        body.paint()
        self.parts[call] = [body._source(r) for r in callee.results]

    def captures(self, painters: Mapping[str, _Painter]) -> None:
        """From each closure to the parameters that it binds, where the function is in the picture."""
        for node in self.function.nodes:
            callee = painters.get(callee_of(node)) if node.op is PARTIAL else None
            if callee is not None:
                for param in callee.function.params[: len(node.inputs)]:
                    self.canvas.edge(self.at[node], callee.at[param], "capture")

    def _proj(self, node: Node) -> None:
        whole, index = node.inputs[0], index_of(node)
        if whole in self.parts:
            self.at[node] = self.parts[whole][index]
            return
        title = f"exit {index}" if whole.op is LOOP_END else f"item {index}"
        name = "" if node.name.isdigit() else node.name  # a number of the text says nothing
        id = self._box(node, "proj", short(name) or title, title if name else "")
        self.canvas.edge(self._source(whole), id, "effect" if is_state(node.type) else "data", type_text(node.type))

    def _result(self, k: int, node: Node) -> None:
        number = self._number(node)
        name = self.function.result_name(k)
        only = len(self.function.results) == 1
        title = short(name) if not name.isdigit() else "result" if only else f"result {k}"  # a number of the text says nothing
        id = self.canvas.node(
            "result", title, number or type_text(node.type), cluster=self.root,
            family="structure", tip=f"result {k} of {short(self.function.name, 200)}: {short(str(node.type), 200)}",
            name=name,
        )  # fmt: skip
        self._edge(node, id)

    def _fusion(self, node: Node) -> None:
        body: Function = node.attr("body")
        home = self.frames.home.get(node, self.root)
        address = f"{self.prefix}#{self.number[node]}"
        cluster = self.canvas.cluster("fusion", short(f"fusion {node.name}".strip(), 60), home)
        bound = dict(zip(body.params, node.inputs, strict=True))
        inner: dict[Node, int] = {}
        for k, n in enumerate(body.nodes):
            if n in bound or self._number(n) is not None:
                continue
            inputs = [bound.get(i, i) for i in n.inputs]
            seen = list(map(self._seen, inputs))
            title = (constant_text(value_of(n)) or "constant") if n.op is CONSTANT else op_title(n, seen)
            id = inner[n] = self._add(n, "op" if n.inputs else "constant", title, partial(subtitle, n), cluster, f"{address}.{k}",
                                      "in one kernel with its frame")
            for given, i in zip(inputs, n.inputs, strict=True):
                if i in inner:
                    self.canvas.edge(inner[i], id, "data", type_text(i.type))
                else:
                    self._edge(given, id)
        results = [inner[r] if r in inner else self._source(bound.get(r, r)) for r in body.results]
        if len(results) == 1:
            self.at[node] = results[0]
        else:
            self.parts[node] = results

    # --- control

    def _region(self, node: Node) -> None:
        selector, branches = node.inputs[0], branch_count(node)
        by_bool = selects_by_bool(node)
        choose = self.canvas.node(
            "if", "if" if by_bool else "switch", self._number(selector) or "", family="structure",
            cluster=self.frames.home.get(node, self.root), tip="chooses the branch that runs", backward=is_backward(node),
        )  # fmt: skip
        self._edge(selector, choose, kind="control")
        self.pending.append((self.frames.control.get(node), choose))
        region = self._box(node, "region", "region")
        clusters = self.frames.sides.get(node, (self.root,) * branches)
        for b in range(branches):
            name = side_name(b, branches, by_bool)
            side = self.heads[node, b] = self.canvas.node(
                "side", name, family="structure", cluster=clusters[b], tip=f"what follows runs only if {name}"
            )
            self.canvas.edge(choose, side, "control")
            self.canvas.edge(side, region, "control")
        self._unmerged(node, region)

    def _unmerged(self, region: Node, id: int) -> None:
        """Edges for the values of a region that no phi reads."""
        merged = {index_of(u) for u in self.function.users[region] if u.op is PHI}
        width = branch_width(region)
        for at, value in enumerate(region.inputs[1:]):
            if at % width not in merged:
                self._edge(value, id, side_name(at // width, branch_count(region), selects_by_bool(region)))

    def _phi(self, node: Node) -> None:
        control, index, name = node.inputs[0], index_of(node), node.name
        if control.op is LOOP_BEGIN:
            name = self._variables(control)[index]
            operands = [("first", control.inputs[index])]
        else:
            by_bool = selects_by_bool(control)
            operands = [(side_name(b, branch_count(control), by_bool), value)
                        for b, value in enumerate(phi_choices(control, index))]  # fmt: skip
        numbers = [f"{label} {text}" for label, value in operands if (text := self._number(value)) is not None]
        id = self._box(node, "phi", "φ " + short(name) if name else "φ", short(", ".join(numbers)))
        self.canvas.edge(self._source(control), id, "control")
        for label, value in operands:
            self._edge(value, id, label)

    def _variables(self, begin: Node) -> dict[int, str]:
        """What the variables of a loop that are read are called: by number where all have the name of the loop, or none."""
        if begin not in self.variables:
            phis = [p for p in self.function.users[begin] if p.op is PHI]
            alike = Counter(p.name for p in phis)
            self.variables[begin] = {index_of(p): p.name if p.name and alike[p.name] == 1 else str(index_of(p)) for p in phis}
        return self.variables[begin]

    def _loop_begin(self, node: Node) -> None:
        id = self.heads[node] = self._box(node, "loop_begin", "loop begin")
        read = {index_of(u) for u in self.function.users[node] if u.op is PHI}
        for k, value in enumerate(node.inputs):
            if k not in read:
                self._edge(value, id, "first")

    def _loop_end(self, node: Node) -> None:
        begin, condition, *nexts = node.inputs
        names = self._variables(begin)
        steady = [f"{names.get(k, k)} ← {text}" for k, n in enumerate(nexts) if (text := self._number(n)) is not None]
        always = self._number(condition)
        id = self._box(node, "loop_end", f"loop end{f' (while {always})' if always else ''}", short(", ".join(steady)))
        self._edge(condition, id, "while", kind="control")
        for k, value in enumerate(nexts):
            self._edge(value, id, f"next {short(names.get(k, str(k)), 16)}")
        self.canvas.edge(id, self._source(begin), "back")
        self.pending.append((self.frames.control.get(node), self._source(begin)))

    def _start(self) -> None:
        """The start of the function, where control or effects begin; a function of pure data has none."""
        states = [p for p in self.function.params if is_state(p.type)]
        if not self.pending and not states:
            return
        self.heads[None] = self.canvas.node("start", "start", cluster=self.root, family="structure",
                                            tip=f"{short(self.function.name, 200)} starts here")  # fmt: skip
        for state in states:
            self.canvas.edge(self.heads[None], self._source(state), "effect")


_HANDLERS: dict[Op, Callable[[_Painter, Node], None]] = {
    PARAM: _Painter._param, CONSTANT: _Painter._constant, REGION: _Painter._region, PHI: _Painter._phi, PROJ: _Painter._proj,
    LOOP_BEGIN: _Painter._loop_begin, LOOP_END: _Painter._loop_end, CALL: _Painter._call, PARTIAL: _Painter._call,
}  # fmt: skip
"""What draws nodes of each of these operations. A painter that had its own methods among its fields would keep the program until
cycles are looked for."""
