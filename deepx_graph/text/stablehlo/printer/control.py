"""Writing branches as `if` and `case`, loops as `while`: their heads at once, their regions as work for later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from deepx_graph.ir import Node
from deepx_graph.ir.structure import PHI, branch_count, branch_width, index_of
from deepx_graph.text.stablehlo.printer.values import type_text
from deepx_graph.types import BOOL, TupleType, as_tensor

if TYPE_CHECKING:
    from deepx_graph.text.stablehlo.printer.function import FunctionWriter


def region(w: FunctionWriter, node: Node) -> None:
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


def loop(w: FunctionWriter, node: Node) -> None:
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


def _variables(w: FunctionWriter, begin: Node) -> None:
    """The label of a loop's region, whose arguments are the loop variables."""
    names = [w.claims.claim("iterArg") if i not in w.hidden else "" for i in begin.inputs]
    w.parts[begin] = names
    for user in w.function.users[begin]:
        if user.op is PHI and user not in w.hidden:
            w.names[user] = names[index_of(user)]
    shown = (f"{name}: {w.type(i)}" for name, i in zip(names, begin.inputs, strict=True) if name)
    w.put(f"^bb0({', '.join(shown)}):")
