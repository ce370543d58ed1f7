"""What each operation looks like in HLO: structure, the rows of the dialect's table, and what HLO says in a way of its own.

Loops are `while`, regions `conditional`; their computations are asked for once, whichever computations they stand in. `TARGET`
tells the legaliser what is here; an op without a row that has no decomposition into others cannot be written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from deepx_graph import ops
from deepx_graph.errors import an
from deepx_graph.ir import Node, Op
from deepx_graph.ir.structure import CALL, CALL_VALUE, CONSTANT, LOOP_END, PARTIAL, REGION, STRUCTURAL, TUPLE, callee_of
from deepx_graph.ops.host import custom_calls
from deepx_graph.rewrite.legalise import ConversionTarget
from deepx_graph.text.hlo.printer.body import ComputationWriter, Emit, state_text
from deepx_graph.text.hlo.printer.devices import DEVICES, custom_call
from deepx_graph.text.hlo.printer.place import call_arguments
from deepx_graph.text.hlo.reader.rules import IDENTITY, RULES
from deepx_graph.text.hlo.shapes import legal, type_text
from deepx_graph.text.xla.hlo_text import ints_text, string_text
from deepx_graph.text.xla.table import LACKING_IN_BOTH, LEGAL_FORMS, ROWS
from deepx_graph.types import BOOL, TensorType, as_tensor

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
    """No value until something asks for it in vain; a seed is written with the draw that takes it."""


# --- rows, and what HLO says in a way of its own ------------------------------------------------------------------


def _by_row(w: ComputationWriter, node: Node) -> str:
    """The opcode on the operands; of an elementwise op on operands of one shape, scalars being broadcast."""
    row = ROWS[node.op]
    if not node.op.elementwise:
        return w.apply(node, row.hlo, row.hlo_text(w, node))
    dims = as_tensor(node.type).dims
    return w.write(node, row.hlo, [w.spread(i, dims) for i in node.inputs], row.hlo_text(w, node))


_ROLES = {role: opcode for opcode, role in reversed(IDENTITY.items())}


def _identity(w: ComputationWriter, node: Node) -> str:
    role = node.attr("role")
    if role in custom_calls.UNCHANGED:
        return w.apply(node, "custom-call", f"custom_call_target={string_text(role)}")
    return w.apply(node, _ROLES.get(role, "copy"))


def _broadcast(w: ComputationWriter, node: Node) -> str:
    """HLO's broadcast does not stretch dimensions of size 1: those are dropped first. A size may meet an open dimension."""
    x, shape, at = node.inputs[0], node.attr("shape"), node.attr("broadcast_dimensions")
    source = as_tensor(x.type)
    dims = source.dims or ()
    wide = [k for k, d in enumerate(dims) if d != 1 or shape[at[k]] == 1]
    value = w.value(x)
    if len(wide) < len(dims):
        value = w.step("reshape", source.with_dims(dims[k] for k in wide), value)
    return w.write(node, "broadcast", [value], f"dimensions={ints_text(at[k] for k in wide)}")


def _rng(distribution: str) -> Emit:
    """HLO's draw has no seed of its own: only one that is the module's to choose can be left out."""

    def emit(w: ComputationWriter, node: Node) -> str:
        low, high, seed = node.inputs
        if seed.op is not ops.module_seed:
            raise w.fail(node, f"HLO's rng takes no seed, and this {node.op.name} has one", hint="write sea, which keeps it")
        return w.write(node, "rng", [w.value(low), w.value(high)], f"distribution={distribution}")

    return emit


def _ensure_type(w: ComputationWriter, node: Node) -> str:
    if node.type != node.inputs[0].type:
        raise w.fail(node, f"{an(node.inputs[0].type)} is taken for {an(node.type)} only when the program runs",
                     hint="give the inputs' types first")
    return w.value(node.inputs[0])


EMITTERS: dict[Op, Emit] = {
    **{op: _by_row for op, row in ROWS.items() if row.hlo},
    ops.broadcast_in_dim: _broadcast,
    CONSTANT: ComputationWriter.constant, TUPLE: _tuple, LOOP_END: _loop, REGION: _region, CALL: _call, CALL_VALUE: _call_value,
    PARTIAL: _nothing, ops.opaque: _opaque, ops.fusion: _fusion,
    **DEVICES,
    **dict.fromkeys((ops.custom_call, ops.custom_effect), custom_call(kept)),
    ops.rng_uniform: _rng("rng_uniform"),
    ops.rng_normal: _rng("rng_normal"),
    ops.module_seed: _nothing,
    ops.identity: _identity,
    ops.ensure_type: _ensure_type,
}
"""Every op that can be written."""


def _is_real(node: Node) -> bool:
    return as_tensor(node.type).dtype.kind != "complex"


def _drops_imaginary(node: Node) -> bool:
    return as_tensor(node.inputs[0].type).dtype.kind == "complex" and _is_real(node)


LACKING: dict[Op, Callable[[Node], bool]] = {
    **LACKING_IN_BOTH, ops.pad: lambda node: not node.attr("edge_padding_low"), ops.convert: _drops_imaginary,
    **dict.fromkeys((ops.cosh, ops.sinh), lambda node: True),
    **dict.fromkeys((ops.asin, ops.acos, ops.acosh, ops.asinh, ops.atanh), _is_real),
}  # fmt: skip
"""Which uses of ops that have an opcode HLO has not, or XLA parses and cannot run."""


def _has(node: Node) -> bool:
    lacking = LACKING.get(node.op)
    return (node.op in EMITTERS or node.op in STRUCTURAL) and not (lacking and lacking(node))


TARGET = ConversionTarget(_has, {**LEGAL_FORMS, ops.pad: lambda b, node: node.inputs[0]})
"""What HLO has."""
