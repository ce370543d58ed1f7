"""Writing one computation of HLO text: an instruction per line, in the order of the graph, each name once.

A value is made where it is first asked for only if it is a helper (the broadcast of a scalar, a small tuple); helpers are shared.
What each operation looks like is in `ops.py`, which nodes stand here in `place.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from deepx_graph.errors import Diagnostic, InferError, VerifyError, an
from deepx_graph.ir import Function, Node
from deepx_graph.ir.node import NOWHERE, Origin
from deepx_graph.ir.structure import CALL, CALL_VALUE, LOOP_END, PARAM, PROJ, REGION, index_of, is_loop_variable, value_of
from deepx_graph.literal import Literal
from deepx_graph.ops.data.tape import tape_hint
from deepx_graph.text.hlo.notes import noted_shape, shape_text
from deepx_graph.text.hlo.printer.place import REPEATED, ClosedComputation, Computations, is_item
from deepx_graph.text.hlo.shapes import NoWord, legal, tuple_text, type_text
from deepx_graph.types import STATE, Dims, DType, TensorType, TupleType, Type, is_state, scalar, tensor

if TYPE_CHECKING:
    from deepx_graph.text.hlo.printer.module import HloPrinter

Emit = Callable[["ComputationWriter", Node], str | None]
"""Writes a node's instructions and gives the name of its value; None for a node that has no value in HLO."""


class ComputationWriter:
    """One computation. `values` are the names of nodes, `lines` the instructions."""

    def __init__(self, printer: HloPrinter, name: str, placement: Computations) -> None:
        self.printer, self.name, self.placement = printer, name, placement
        self.lines: list[str] = []
        self.values: dict[Node, str] = {}
        self.parts: dict[Node, Sequence[str]] = {}
        """Of nodes whose results are not the items of one value: the name of each."""
        self.line_of: dict[str, int] = {}
        self._next: dict[str, int] = {}
        self._helpers: dict[tuple[Any, ...], str] = {}
        self._node: Node | None = None
        self._root: Node | None = None

    # --- instructions

    def fresh(self, base: str) -> str:
        """A name of this computation that no other instruction has."""
        name = base
        while name in self.line_of:
            count = self._next[base] = self._next.get(base, 0) + 1
            name = f"{base}.{count}"
        return name

    def put(self, base: str, shape: str, opcode: str, operands: Sequence[str], attributes: str = "",
            origin: Origin | None = None) -> str:
        """Writes an instruction; its name. `origin` is that of the node whose value it is; helpers have no notes."""
        name = self.fresh(base)
        tail = f", {attributes}" if attributes else ""
        if origin is not None:
            tail += self.printer.notes.of(origin, self.line_of)
        elif self._node is not None:
            tail += self.printer.notes.place(self._node.origin)
        self.line_of[name] = len(self.lines)
        self.lines.append(f"{name} = {shape} {opcode}({', '.join(operands)}){tail}")
        return name

    def write(self, node: Node, opcode: str, operands: Sequence[str], attributes: str = "", shape: str = "") -> str:
        """Writes the instruction of a node, under the node's name, with its notes; the shape is the node's unless it is given."""
        return self.put(legal(node.name or opcode), shape or shape_text(node), opcode, operands, attributes, node.origin)

    def apply(self, node: Node, opcode: str, attributes: str = "") -> str:
        """Writes the instruction of a node on its inputs as they are."""
        return self.write(node, opcode, [self.value(i) for i in node.inputs], attributes)

    def step(self, opcode: str, type: Type, *operands: str, attributes: str = "") -> str:
        """Writes an instruction on the way to a node's value."""
        return self.put(opcode, type_text(type), opcode, operands, attributes)

    # --- values

    def value(self, node: Node) -> str:
        """The name of a node's value. Raises VerifyError for one that HLO has none of."""
        name = self.values.get(node)
        if name is None and node.type == STATE:
            return self._token(node)
        if name is None:
            raise self.fail(node, f"HLO has no value for '{node.op.name}'")
        if node.op in (CALL, CALL_VALUE) and isinstance(node.type, TupleType) and len(node.type.items) == 1:
            return self.helper("tuple", node.type, name)  # HLO calls give a single result bare
        return name

    def _token(self, node: Node) -> str:
        """The token for a state that no instruction gives: that before it, or a first one."""
        while node not in self.values and node.inputs:
            node = node.inputs[0].inputs[0] if node.op is PROJ else node.inputs[0]
        if node not in self.values and node.op is not PARAM:
            raise self.fail(node, f"HLO has no value for '{node.op.name}'")
        return self.values.get(node) or self.helper("after-all", STATE)

    def helper(self, opcode: str, type: Type, *operands: str, attributes: str = "") -> str:
        """An instruction that is written once, however often it is asked for."""
        key = (opcode, type, operands, attributes)
        name = self._helpers.get(key)
        if name is None:
            name = self._helpers[key] = self.step(opcode, type, *operands, attributes=attributes)
        return name

    def spread(self, node: Node, dims: Dims | None) -> str:
        """The value, a scalar broadcast to `dims`."""
        assert isinstance(node.type, TensorType)
        value = self.value(node)
        if node.type.dims == dims:
            return value
        if node.type.dims != () or dims is None:
            raise self.fail(node, f"{an(node.type)} stands where a shape of {dims} is needed")
        return self.helper("broadcast", node.type.with_dims(dims), value, attributes="dimensions={}")

    def number(self, value: Any, dtype: DType, dims: Dims | None = ()) -> str:
        """A constant with the same value everywhere."""
        text = self.printer.literal(Literal(np.asarray(value).astype(dtype.np)))
        name = self.helper("constant", scalar(dtype), text)
        return self.helper("broadcast", tensor(dtype, dims), name, attributes="dimensions={}") if dims else name

    def constant(self, node: Node) -> str:
        """A constant in full, a large one of equal elements as the broadcast of one."""
        literal = value_of(node)
        if literal.array.size > REPEATED and literal.array.ndim and (one := literal.splat_value) is not None:
            element = self.step("constant", scalar(literal.dtype), self.printer.literal(Literal(np.asarray(one))))
            return self.write(node, "broadcast", [element], "dimensions={}")
        return self.write(node, "constant", [self.printer.literal(literal)])

    def pack(self, base: str, values: Sequence[Node]) -> str:
        """A tuple of values."""
        return self.put(base, tuple_text(type_text(v.type) for v in values), "tuple", [self.value(v) for v in values])

    def item(self, base: str, type: Type, whole: str, index: int) -> str:
        return self.put(base, type_text(type), "get-tuple-element", [whole], f"index={index}")

    def body(self, function: Function, node: Node) -> str:
        """The computation of a function that is an attribute of `node`."""
        return self.printer.use(self.name, self.printer.body(function), node)

    def fail(self, node: Node, message: str, expected: str | None = None, hint: str | None = None) -> VerifyError:
        """The error of a node that HLO cannot express."""
        called = f" (%{node.name})" if node.name else ""
        return VerifyError(Diagnostic(message + called, node.span, expected=expected, hint=hint or tape_hint(node)))

    # --- a whole computation

    def parameters(self, params: Sequence[Node]) -> None:
        """A parameter for each param node."""
        is_entry = self.printer.is_entry(self.name)
        for k, p in enumerate(params):
            self._node = p
            if is_entry and p.type == STATE:
                continue
            self.values[p] = self.put(legal(p.name or f"p{k}"), shape_text(p), "parameter", [str(k)], "", p.origin)
        self._node = None

    def taken(self, captures: Sequence[Node]) -> None:
        """The parameter of a branch: what it captures, as a tuple unless it is one value."""
        self._node = None
        shape = tuple_text(type_text(c.type) for c in captures) if len(captures) != 1 else type_text(captures[0].type)
        whole = self.put("arg", shape, "parameter", ["0"])
        for k, c in enumerate(captures):
            self.values[c] = self.item(f"arg.{k}", c.type, whole, k) if len(captures) != 1 else whole

    def state(self, end: Node, scope: ClosedComputation, captures: Sequence[Node], used_here: Container[Node]) -> None:
        """The parameter of a condition or body: the loop's variables, then what it captures. Only what is used is taken out."""
        begin = end.inputs[0]
        whole = self.put("arg", state_text(end, captures), "parameter", ["0"])
        used: dict[int, list[Node]] = {}
        for n in scope.members:
            if is_loop_variable(n) and n.inputs[0] is begin:
                used.setdefault(index_of(n), []).append(n)
        for k in sorted(used):
            name = self.item(f"arg.{k}", used[k][0].type, whole, k)
            self.values.update((n, name) for n in used[k])
        for k, c in enumerate(captures, len(begin.inputs)):
            if c in used_here:
                self.values[c] = self.item(f"arg.{k}", c.type, whole, k)

    def run(self, scope: ClosedComputation) -> None:
        """The instructions of the scope's nodes, after the parameters. Raises VerifyError."""
        emitters, values, items = self.printer.emitters, self.values, scope.items
        for node in scope.members:
            if node not in values and node.op is not PARAM and not is_loop_variable(node):
                self._node = node
                emit = emitters.get(node.op)
                if emit is None:
                    raise self.fail(node, f"HLO has no operation for '{node.op.name}'")
                name = emit(self, node)
                if name is not None:
                    values[node] = name
            if node in items:
                self._items(node, scope)

    def _items(self, node: Node, scope: ClosedComputation) -> None:
        known: dict[int, str] = {}
        if node is self._root:  # as a whole it is the root, and nothing asks for its items
            return
        parts = self.parts.get(node)
        for item in scope.items.get(node, ()):
            index = index_of(item)
            if parts is not None:
                if index < len(parts):
                    self.values[item] = parts[index]
                continue
            if index not in known:
                known[index] = self._item(node, item, index)
            self.values[item] = known[index]
            self._items(item, scope)

    def _item(self, node: Node, item: Node, index: int) -> str:
        whole = self.values.get(node)
        if whole is None:
            raise self.fail(node, f"HLO has no value for '{node.op.name}'")
        bare = node.op in (CALL, CALL_VALUE) and len(node.type.items) == 1  # type: ignore[attr-defined]
        if bare or (node.op is REGION and len(self.placement.of_branches[node][0].roots) == 1):
            return whole
        own = item.name and item.name != node.name and node.op not in self.printer.unnamed_items
        return self.item(legal(item.name) if own else f"{whole}.{index}", item.type, whole, index)

    def finish(self, results: Sequence[Node], whole: Origin = NOWHERE) -> None:
        """Marks the root: the one result, or a tuple of all, of which `whole` tells."""
        self._node = None
        if self._root is not None:
            self.root(self.values[self._root])
            return
        if self.printer.is_entry(self.name):
            results = shown_results(results)
        self.root(self.value(results[0]) if len(results) == 1 else self._all(results, whole))

    def function(self, function: Function) -> None:
        """The whole computation of a function. Where its results are just those of one node, that is the root."""
        self._root = _root(function)
        self.parameters(function.params)
        self.run(self.placement.main)
        self.finish(function.results, function.whole)

    def _all(self, results: Sequence[Node], whole: Origin) -> str:
        type = TupleType(tuple(r.type for r in results))
        shape = noted_shape(whole, type) if whole.notes else tuple_text(map(shape_text, results))
        return self.put(legal(whole.name or "tuple"), shape, "tuple", [self.value(r) for r in results], "", whole)

    def root(self, name: str) -> None:
        at = self.line_of[name]
        self.lines[at] = "ROOT " + self.lines[at]

    def text(self) -> str:
        lines = "\n  ".join(self.lines)
        return f"{self.name} {{\n  {lines}\n}}\n"

    def guard(self, write: Callable[[], None]) -> None:
        """Runs `write`; what has no word in HLO becomes an error at the node being written."""
        try:
            write()
        except (NoWord, InferError) as e:
            node = self._node
            raise VerifyError(Diagnostic(str(e), node.span if node else None,
                                         notes=(f"written for {node!r}",) if node else ())) from None


def _root(function: Function) -> Node | None:
    """The node whose results, all of them, in order and for nothing else, are those of the function."""
    results = function.results
    whole = results[0].inputs[0] if results and is_item(results[0]) else None
    if whole is None or whole.op is LOOP_END or len(results) < 2 or function.whole.name not in ("", whole.name):
        return None
    if is_state(whole.type):  # of which a token is no part everywhere
        return None
    assert isinstance(whole.type, TupleType)
    plain = [r for k, r in enumerate(results)
             if is_item(r) and r.inputs[0] is whole and index_of(r) == k and not function.users[r]]
    return whole if len(plain) == len(whole.type.items) == len(results) == len(function.users[whole]) else None


def shown_results(results: Sequence[Node]) -> Sequence[Node]:
    """What an entry gives: its results, and a token only where that is all."""
    return [r for r in results if r.type != STATE] or results


def state_text(end: Node, captures: Sequence[Node]) -> str:
    """The shape of a loop's state."""
    assert isinstance(end.type, TupleType)
    return tuple_text(type_text(t) for t in (*end.type.items, *(c.type for c in captures)))
