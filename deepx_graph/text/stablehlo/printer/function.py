"""`MlirWriter`: the lines of one function, its loops and branches as nested regions.

Every value has one name in the whole function. A node with several results is written as `%r:n`; as a whole it is used by making a
tuple of them. The state that orders checks has no text: order in the text is order. Problems are collected, each at its node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import Diagnostic, InferError
from deepx_graph.ir import Function, Node, Op
from deepx_graph.ir.structure import (
    CALL,
    LOOP_END,
    PARTIAL,
    PHI,
    PROJ,
    REGION,
    TUPLE,
    branch_count,
    branch_width,
    callee_of,
    index_of,
    signature_of,
)
from deepx_graph.literal import Literal
from deepx_graph.sharding.by_hand.found import found_by_hand
from deepx_graph.text.common.regions import TextRegions
from deepx_graph.text.stablehlo.literals import dense_text, type_text
from deepx_graph.text.stablehlo.notes import LocationTable, notes_text
from deepx_graph.text.stablehlo.printer.by_hand import by_hand
from deepx_graph.text.stablehlo.printer.legal import flattened
from deepx_graph.text.stablehlo.printer.names import ValueNames, hidden_states, is_legal
from deepx_graph.text.stablehlo.printer.ops import FORMS, TOKENS, grouped, identity, programs, respell
from deepx_graph.text.xla.fields import GenericForm
from deepx_graph.text.xla.mlir_text import NoText, string_text
from deepx_graph.types import BOOL, STATE, TupleType, Type, as_tensor, is_state

DEEPEST = 30
"""Deeper regions are not indented further."""

_LOST = "%lost"
"""Stands for a value that could not be written; the text is never seen."""

Work = Callable[[], None] | Iterator[Node]


class MlirWriter:
    """Writes one function, which is legal; `symbols` are the functions' names in the text, `checking` those that hide a state.

    One that `starts` makes the first token itself, and keeps the last one. `devices` are the functions, legal, too, that are
    written as regions of computations by hand.
    """

    def __init__(self, function: Function, symbols: Mapping[str, str], checking: set[str], locations: LocationTable,
                 names: ValueNames | None = None, level: int = 2, starts: bool = False,
                 devices: Mapping[str, Function] = MappingProxyType({})) -> None:
        self.symbols, self.checking, self.level, self.starts = symbols, checking, level, starts
        self.locations = locations
        self.claims = names or ValueNames()
        self.lines: list[str] = []
        self.problems: list[Diagnostic] = []
        self.names: dict[Node, str] = {}
        self.parts: dict[Node, Sequence[str]] = {}
        self.work: list[Work] = []
        self.function = function
        self.hidden = hidden_states(function, checking)
        self.devices = devices
        self.by_hand = {n: found for n, found in found_by_hand(function).items() if found.callee in devices} if devices else {}
        self.apart = frozenset[Node]().union(*(found.apart for found in self.by_hand.values()))

    # --- whole functions

    def declared(self) -> str:
        """`%x: tensor<f32>, ...`: the parameters, which get their names."""
        shown = []
        for k, p in enumerate(self.function.params):
            if self.starts and p.type == STATE:
                self.names[p] = name = self.claims.claim(p.name)
                self.put(f'{name} = "stablehlo.create_token"() : () -> !stablehlo.token')
            elif p not in self.hidden:
                self.names[p] = self.claims.claim(p.name if is_legal(p.name) else f"arg{k}")
                notes = notes_text(p.origin.notes)
                shown.append(f"{self.names[p]}: {self.type(p)}{f' {{{notes}}}' if notes else ''}{self.at(p)}")
        return ", ".join(shown)

    def body(self, keyword: str) -> None:
        """The lines of the function after its declaration; `keyword` returns its results."""
        placement = self.placement = TextRegions(self.function)
        for p in self.function.params:
            grouped(self, p, p)
        self.work = [lambda: self.give_back(self.given(self.function.results), keyword), reversed(placement.root.nodes)]
        while self.work:
            item = self.work.pop()
            if isinstance(item, Iterator):
                self._nodes(item)
            else:
                item()

    def _nodes(self, nodes: Iterator[Node]) -> None:
        """Writes nodes up to the next one with regions, which leaves its parts and the rest as work."""
        for node in nodes:
            if node in self.apart:
                continue
            structure = _STRUCTURES.get(node.op)
            try:
                if structure is not None:
                    self.work.append(nodes)
                    structure(self, node)
                    return
                _WRITERS.get(node.op, MlirWriter.operation)(self, node)
            except (NoText, InferError) as e:
                told = e.diagnostic(node.span, node) if isinstance(e, NoText) else e.diagnostic(node.span, f"{node.op.name}: ")
                self.problems.append(told)
                self.names[node] = _LOST
                if structure is not None:
                    return

    # --- pieces

    @property
    def indent(self) -> str:
        return "  " * min(self.level, DEEPEST)

    def put(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def at(self, node: Node) -> str:
        """` loc(...)`, where the node's text says what it was made from."""
        return self.locations.of(node.span.place) if node.span and node.span.place else ""

    def type(self, node: Node) -> str:
        try:
            return type_text(node.type)
        except NoText as e:
            self.problems.append(e.diagnostic(node.span, node))
            return _LOST

    def use(self, node: Node) -> str:
        """The name of a node's value; of a tuple of its results where it has several."""
        name = self.names.get(node)
        if name is None:
            if node not in self.parts:
                raise NoText(f"StableHLO cannot express {node.op.name} as a value")
            assert isinstance(node.type, TupleType)
            name = self.claims.claim("")
            types = ", ".join(map(type_text, node.type.items))
            parts = ", ".join(p for p in self.parts[node] if p)
            self.put(f'{name} = "stablehlo.tuple"({parts}) : ({types}) -> {type_text(node.type)}')
        return name

    def shown(self, nodes: Iterable[Node]) -> list[Node]:
        """Those that the text shows: all but states that only order checks."""
        return [n for n in nodes if n not in self.hidden] if self.hidden else list(nodes)

    def given(self, results: Iterable[Node]) -> list[Node]:
        """The results that the text of the function gives."""
        return [r for r in self.shown(results) if not (self.starts and r.type == STATE)]

    def give_back(self, nodes: Sequence[Node], keyword: str) -> None:
        """`keyword %a, %b : types`."""
        shown = self.shown(nodes)
        values = ", ".join(map(self._used, shown))
        self.put(f"{keyword} {values} : {', '.join(map(self.type, shown))}" if shown else keyword)

    def _used(self, node: Node) -> str:
        try:
            return self.use(node)
        except NoText as e:
            self.problems.append(e.diagnostic(node.span, node))
            return _LOST

    def results(self, node: Node, types: Sequence[Type], hidden: Sequence[bool] = ()) -> tuple[str, str]:
        """`%r:2 = ` and the types in brackets, for a node with several results; these get their names."""
        visible = [not (hidden and hidden[k]) for k in range(len(types))]
        count = sum(visible)
        name = self.claims.claim(node.name) if count else ""
        each = iter([name] if count == 1 else [f"{name}#{k}" for k in range(count)])
        self.parts[node] = [next(each) if v else "" for v in visible]
        head = f"{name} = " if count == 1 else f"{name}:{count} = " if count else ""
        return head, f"({', '.join(type_text(t) for t, v in zip(types, visible, strict=True) if v)})"

    # --- nodes

    def operation(self, node: Node) -> None:
        """An operation of the table."""
        rule = FORMS.get(node.op)
        if rule is None:
            raise NoText(f"StableHLO has no operation '{node.op.name}'")
        form = rule(node)
        if node.inputs and node.inputs[0].type == STATE:
            self.effect(node, form)
            return
        notes = _dictionary(form.notes, notes_text(node.origin.notes)) if form.notes or node.origin.notes else ""
        self.line(node, form, self.shown(node.inputs), notes=notes)

    def generic(self, form: GenericForm, inputs: Sequence[Node], more: str = "", more_type: str = "") -> tuple[str, str]:
        """`"name"(operands) <{attributes}> ({regions})`, and the types of the operands; `more` are operands that are no nodes."""
        operands = ", ".join(map(self.use, inputs)) + more
        attributes = f" <{{{form.attributes}}}>" if form.attributes else ""
        regions = self.bodies(form.bodies) if form.bodies else ""
        types = ", ".join([type_text(i.type) for i in inputs]) + more_type
        return f'"{form.name}"({operands}){attributes}{regions}', f"({types})"

    def effect(self, node: Node, form: GenericForm) -> None:
        """An operation on the state, which is a token for some operations and has no text for others."""
        state, *inputs = node.inputs
        is_token, before = node.op in TOKENS, self.names.get(state, "")
        text, types = self.generic(form, [*inputs, state] if is_token else inputs)
        said = [(k, v) for k, v in node.origin.notes if k != "sdy.sharding" or "token" not in _kept_text(node)]
        notes = _dictionary(form.notes, notes_text(tuple(said)))
        if isinstance(node.type, TupleType):
            head, result = self.results(node, node.type.items, [t == STATE and not is_token for t in node.type.items])
            self.parts[node] = [p or before for p in self.parts[node]]
        else:
            self.names[node] = name = self.claims.claim(node.origin.name) if is_token else before
            head, result = (f"{name} = ", type_text(STATE)) if is_token else ("", "()")
        self.put(f"{head}{text}{notes} : {types} -> {result}{self.at(node)}")

    def probe(self, node: Node) -> None:
        """A probe gives in text what it is given."""
        form = GenericForm("interpreter.probe", f"probe_id = {string_text(node.attr('probe_id'))}")
        text, types = self.generic(form, node.inputs[1:])
        self.put(f"{self.claims.claim('')} = {text} : {types} -> {types.strip('()')}")
        self.names[node] = self.names.get(node.inputs[0], "")

    def parallel(self, node: Node) -> None:
        """Devices side by side: their programs are named; where tokens are shown each is given one and gives one back."""
        if (found := self.by_hand.get(node)) is not None:
            device = self.devices[found.callee]
            body = MlirWriter(device, self.symbols, self.checking, self.locations, self.claims, self.level + 1)
            by_hand(self, node, found, body)
            return
        given = node.op.named(node.inputs, node.attrs)
        state, args = given["state"], iter(given["args"])
        operands: list[Node] = []
        results: list[Type] = []
        for program in given["programs"]:
            signature = signature_of(program)
            shown = [t for t in signature.params if t != STATE or state not in self.hidden]
            operands += (state if t == STATE else next(args) for t in shown)
            results += (t for t in signature.results if t != STATE or state not in self.hidden)
        head, types = self.results(node, results)
        self.parts[node] = [p for p, t in zip(self.parts[node], results, strict=True) if t != STATE] + [self.names.get(state, "")]
        text, before = self.generic(GenericForm("interpreter.run_parallel", programs(node, dict(self.symbols))), operands)
        self.put(f"{head}{text} : {before} -> {types}")

    def custom(self, node: Node) -> None:
        """A custom call as its text has it; by what is known of it where that text is of another language or has tokens."""
        acts = node.op is ops.custom_effect
        inputs = node.inputs[1:] if acts else node.inputs
        if node.attr("language") != "stablehlo" or "token" in node.attr("text"):
            self.operation(node)
            return
        text, count = respell("stablehlo.custom_call", node.attr("text"), [self.use(i) for i in inputs], self.claims.claim)
        self._kept(node, text, count)
        if acts:
            results = self.parts[node] if count != 1 else [self.names[node]]
            self.parts[node] = [*results, self.names.get(node.inputs[0], "")]

    def line(self, node: Node, form: GenericForm, inputs: Sequence[Node], more: str = "", more_type: str = "",
             notes: str = "") -> None:
        """The line of a node, whose results get their names."""
        text, types = self.generic(form, inputs, more, more_type)
        if node in self.hidden:
            head, result = "", "()"
        elif isinstance(node.type, TupleType):
            head, result = self.results(node, node.type.items)
        else:
            result = type_text(node.type)
            self.names[node] = given = self.claims.claim(node.origin.name)
            head = f"{given} = "
        self.put(f"{head}{text}{notes} : {types} -> {result}{self.at(node)}")

    def bodies(self, functions: Sequence[Function]) -> str:
        """Closed functions as regions."""
        texts = []
        for f in functions:
            inner = MlirWriter(flattened(f), self.symbols, set(), self.locations, self.claims, self.level + 1)
            label = f"{self.indent}^bb0({inner.declared()}):"
            inner.body("stablehlo.return")
            self.problems += inner.problems
            texts.append("{\n" + "\n".join([label, *inner.lines]) + f"\n{self.indent}}}")
        return f" ({', '.join(texts)})"

    def item(self, node: Node) -> None:
        """Item k of what has several results, or of a tuple."""
        whole, k = node.inputs[0], index_of(node)
        if node in self.hidden:
            return
        if whole in self.parts:
            self.names[node] = self.parts[whole][k]
        else:
            self.line(node, GenericForm("stablehlo.get_tuple_element", f"index = {k} : i32"), [whole])

    def tuple(self, node: Node) -> None:
        self.parts[node] = [self.use(i) for i in node.inputs]

    def nothing(self, node: Node) -> None:
        """What has no line of its own."""

    def call(self, node: Node) -> None:
        callee, signature = callee_of(node), signature_of(node)
        inputs = self.shown(node.inputs)
        operands = ", ".join(map(self.use, inputs))
        types = ", ".join(type_text(i.type) for i in inputs)
        hidden = [k == len(signature.results) - 1 and callee in self.checking for k in range(len(signature.results))]
        head, results = self.results(node, signature.results, hidden)
        self.put(f"{head}func.call @{self.symbols[callee]}({operands}) : ({types}) -> {results}{self.at(node)}")

    def draw(self, node: Node) -> None:
        """A random draw: StableHLO's has no seed, so the module's own must be meant; the shape is an operand."""
        if node.inputs[2].op is not ops.module_seed:
            raise NoText(f"StableHLO has no {node.op.name} from a given seed")
        shape = self.claims.claim("")
        dims = Literal(np.array(as_tensor(node.type).shape, np.int64))
        self.put(f"{shape} = stablehlo.constant {dense_text(dims)} : {type_text(dims.type)}")
        self.line(node, FORMS[node.op](node), node.inputs[:2], more=f", {shape}", more_type=f", {type_text(dims.type)}")

    def opaque(self, node: Node) -> None:
        """What this package does not know, as it stood, on the new names."""
        if any(i in self.hidden for i in node.inputs) or (node.op is ops.deferred and node.attr("language") != "stablehlo"):
            raise NoText(f"StableHLO cannot express '{node.attr('name')}'")
        text, count = respell(node.attr("name"), node.attr("attributes"), [self.use(i) for i in node.inputs], self.claims.claim)
        self._kept(node, text, count)

    def _kept(self, node: Node, text: str, count: int) -> None:
        """Writes an operation as it stood, with so many results."""
        name = self.claims.claim(node.name) if count else ""
        if isinstance(node.type, TupleType) and count >= len(node.type.items) - is_state(node.type) and count != 1:
            self.parts[node] = [f"{name}#{k}" for k in range(count)]
        else:
            self.names[node] = name
        self.put((f"{name} = " if count == 1 else f"{name}:{count} = " if count else "") + text + self.at(node))

    # --- nesting

    def deeper(self) -> None:
        self.level += 1

    def shallower(self) -> None:
        self.level -= 1


def _kept_text(node: Node) -> str:
    """The text of a custom call; a sharding of its tokens does not fit without them."""
    return str(node.attr("text")) if node.op is ops.custom_effect else ""


def _dictionary(*parts: str) -> str:
    """` {a = 1, b = 2}`; nothing for nothing."""
    inner = ", ".join(p for p in parts if p)
    return f" {{{inner}}}" if inner else ""


# --- branches as `if` and `case`, loops as `while`: their heads at once, their regions as work for later --------------


def _region(w: MlirWriter, node: Node) -> None:
    """A branch, as `if` or `case`; its own work is left behind."""
    selector, *values = node.inputs
    width = branch_width(node)
    assert isinstance(node.type, TupleType)
    head, results = w.results(node, node.type.items, [v in w.hidden for v in values[:width]])
    name = "if" if as_tensor(selector.type).dtype is BOOL else "case"
    w.put(f'{head}"stablehlo.{name}"({w.use(selector)}) ({{')
    steps: list[Callable[[], None] | Iterator[Node]] = []
    for k, block in enumerate(w.placement.branches[node]):
        given = values[k * width : (k + 1) * width]
        steps += [w.deeper, reversed(block.nodes), partial(w.give_back, given, "stablehlo.return"), w.shallower]
        if k < branch_count(node) - 1:
            steps.append(partial(w.put, "}, {"))
    steps.append(partial(w.put, f"}}) : ({type_text(selector.type)}) -> {results}{w.at(node)}"))
    w.work += reversed(steps)


def _loop(w: MlirWriter, node: Node) -> None:
    """A loop, as `while`; what both its regions need is written in each."""
    begin, condition, *nexts = node.inputs
    place = w.placement
    inits = w.shown(begin.inputs)
    assert isinstance(node.type, TupleType)
    operands = ", ".join(map(w.use, inits))
    head, types = w.results(node, node.type.items, [i in w.hidden for i in begin.inputs])
    w.put(f'{head}"stablehlo.while"({operands}) ({{')
    nexts = [n for n, i in zip(nexts, begin.inputs, strict=True) if i not in w.hidden]
    returned = "stablehlo.return"
    w.work += reversed([
        partial(_variables, w, begin), w.deeper, iter(place.iteration(place.headers[node])),
        partial(w.give_back, (condition,), returned), w.shallower, partial(w.put, "}, {"),
        partial(_variables, w, begin), w.deeper, iter(place.iteration(place.bodies[node])),
        partial(w.give_back, nexts, returned), w.shallower, partial(w.put, f"}}) : {types} -> {types}{w.at(node)}"),
    ])  # fmt: skip


def _variables(w: MlirWriter, begin: Node) -> None:
    """The label of a loop's region, whose arguments are the loop variables."""
    names = [w.claims.claim("iterArg") if i not in w.hidden else "" for i in begin.inputs]
    w.parts[begin] = names
    for user in w.function.users[begin]:
        if user.op is PHI and user not in w.hidden:
            w.names[user] = names[index_of(user)]
    shown = (f"{name}: {w.type(i)}" for name, i in zip(names, begin.inputs, strict=True) if name)
    w.put(f"^bb0({', '.join(shown)}):")


_WRITERS: dict[Op, Callable[[MlirWriter, Node], None]] = {
    PROJ: MlirWriter.item, PHI: MlirWriter.item, TUPLE: MlirWriter.tuple, CALL: MlirWriter.call, ops.identity: identity,
    ops.rng_uniform: MlirWriter.draw, ops.rng_normal: MlirWriter.draw,
    ops.opaque: MlirWriter.opaque, ops.deferred: MlirWriter.opaque,
    ops.probe: MlirWriter.probe, ops.run_parallel: MlirWriter.parallel, ops.custom_call: MlirWriter.custom,
    ops.custom_effect: MlirWriter.custom,
    ops.module_seed: MlirWriter.nothing, PARTIAL: MlirWriter.nothing,
}  # fmt: skip
_STRUCTURES: dict[Op, Callable[[MlirWriter, Node], None]] = {REGION: _region, LOOP_END: _loop}
