"""Writing what is structure and not arithmetic: loops as `while`, regions as `conditional`, calls, fusions and kept instructions.

The computations of a loop or region are asked for once, whichever computations it stands in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from deepx_graph import ops
from deepx_graph.ir import Node, Op
from deepx_graph.ir.structure import CALL, CALL_VALUE, CONSTANT, LOOP_END, PARTIAL, REGION, TUPLE, callee_of
from deepx_graph.text.hlo.printer.body import ComputationWriter, Emit, state_text
from deepx_graph.text.hlo.printer.place import call_arguments
from deepx_graph.text.hlo.reader.rules import RULES
from deepx_graph.text.hlo.shapes import legal, type_text
from deepx_graph.types import BOOL, TensorType

_STRING = r"\"(?:[^\"\\]|\\.)*\""
_NAMED = re.compile(_STRING + r"|\b(to_apply|calls|called_computations|select|scatter|condition|body|true_computation"
                    r"|false_computation|branch_computations|comparator)=(\{[^{}]*\}|%?[\w.\-]+)")


def _ordered(w: ComputationWriter, captures: Sequence[Node]) -> list[Node]:
    """What is captured, in the order in which it stands in this computation."""
    return sorted(captures, key=lambda c: (w.line_of[w.value(c)], c.serial))


def _loop(w: ComputationWriter, node: Node) -> str:
    inits = node.inputs[0].inputs
    base = w.fresh(legal(node.name or "while"))
    captures, condition, body = w.printer.loop(w, node, base, lambda c: _ordered(w, c))
    state = state_text(node, captures)
    values = [w.value(i) for i in (*inits, *captures)]
    packed = w.put("init", state, "tuple", values)
    return w.put(base, state, "while", [packed], f"condition={condition}, body={body}", node.origin)


def _region(w: ComputationWriter, node: Node) -> str:
    selector = node.inputs[0]
    assert isinstance(selector.type, TensorType)
    base = w.fresh(legal(node.name or "conditional"))
    taken = w.printer.region(w, node, base, lambda c: _ordered(w, c))
    args = [w.value(c[0]) if len(c) == 1 else w.pack("arg", c) for c, _ in taken]
    names = [name for _, name in taken]
    if selector.type.dtype is BOOL:
        named = f"true_computation={names[0]}, false_computation={names[1]}"
    else:
        named = f"branch_computations={{{', '.join(names)}}}"
    values = w.placement.of_branches[node][0].roots
    shape = type_text(values[0].type if len(values) == 1 else node.type)
    return w.put(base, shape, "conditional", [w.value(selector), *args], named, node.origin)


def _call(w: ComputationWriter, node: Node) -> str:
    return _called(w, node, callee_of(node), node.inputs)


def _call_value(w: ComputationWriter, node: Node) -> str:
    function, args = call_arguments(node)
    if function.op is not PARTIAL:
        raise w.fail(node, "HLO has no function values, and which function this calls is not known", hint="inline it first")
    return _called(w, node, callee_of(function), args)


def _called(w: ComputationWriter, node: Node, callee: str, args: Sequence[Node]) -> str:
    function = w.printer.module[callee]
    name = w.printer.use(w.name, w.printer.function(function), node)
    results = function.results
    shape = type_text(results[0].type if len(results) == 1 else node.type)
    return w.write(node, "call", [w.value(a) for a in args], f"to_apply={name}", shape)


def _fusion(w: ComputationWriter, node: Node) -> str:
    return w.apply(node, "fusion", f"kind=kLoop, calls={w.body(node.attr('body'), node)}")


def _tuple(w: ComputationWriter, node: Node) -> str:
    return w.write(node, "tuple", [w.value(i) for i in node.inputs])


def _opaque(w: ComputationWriter, node: Node) -> str:
    """The instruction as it stood, with the computations it names."""
    name, attributes = node.attr("name"), node.attr("attributes")
    opcode = name.partition(" ")[0]
    if node.attr("language") != "hlo" or opcode not in RULES or opcode == "parameter":
        raise w.fail(node, f"HLO cannot write '{name}'", "an operation that was read from HLO, or one of this package")
    if opcode == "constant":
        return _kept_constant(w, node)
    return w.apply(node, opcode, kept(w, node, attributes))


def kept(w: ComputationWriter, node: Node, attributes: str) -> str:
    """Attributes as they stood, the computations that they name under their new names."""
    return _NAMED.sub(lambda m: _foreign(w, node, m), attributes)


def _kept_constant(w: ComputationWriter, node: Node) -> str:
    """A constant whose values were left out of the text."""
    text = node.span.text if node.span else ""
    found = re.search(r"\bconstant\((.*)\)", text.partition(", metadata=")[0], re.DOTALL)
    if found is None:
        raise w.fail(node, "the values of this constant are not known")
    return w.write(node, "constant", [" ".join(found[1].split())])


def _foreign(w: ComputationWriter, node: Node, match: re.Match[str]) -> str:
    if match[1] is None:
        return match[0]
    words = match[2].strip("{} ").split(",") if match[2].strip("{} ") else []
    names = [w.printer.use(w.name, w.printer.foreign(n.strip().removeprefix("%"), w, node), node) for n in words]
    return f"{match[1]}={{{', '.join(names)}}}" if match[2].startswith("{") else f"{match[1]}={names[0]}"


def _nothing(w: ComputationWriter, node: Node) -> None:
    """No value until something asks for it in vain."""


CONTROL: dict[Op, Emit] = {
    CONSTANT: ComputationWriter.constant, TUPLE: _tuple, LOOP_END: _loop, REGION: _region, CALL: _call, CALL_VALUE: _call_value,
    PARTIAL: _nothing, ops.opaque: _opaque, ops.fusion: _fusion,
}  # fmt: skip
"""The emitters of structural ops, and of those that hold computations."""
