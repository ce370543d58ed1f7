"""What each operation looks like in HLO: the rows of the dialect's table, and what HLO says in a way of its own.

`TARGET` tells the legaliser what is here; an op without a row that has no decomposition into others cannot be written.
"""

from __future__ import annotations

from collections.abc import Callable

from deepx_graph import ops
from deepx_graph.errors import an
from deepx_graph.ir import Node, Op
from deepx_graph.ir.structure import STRUCTURAL
from deepx_graph.ops.host import custom_calls
from deepx_graph.rewrite.legalise import ConversionTarget
from deepx_graph.text.hlo.printer.body import ComputationWriter, Emit
from deepx_graph.text.hlo.printer.control import CONTROL, kept
from deepx_graph.text.hlo.printer.devices import DEVICES, custom_call
from deepx_graph.text.hlo.reader.rules import IDENTITY
from deepx_graph.text.xla.hlo_text import ints_text, string_text
from deepx_graph.text.xla.table import LACKING_IN_BOTH, LEGAL_FORMS, ROWS, TABLE
from deepx_graph.types import as_tensor


def _by_row(w: ComputationWriter, node: Node) -> str:
    """The opcode on the operands; of an elementwise op on operands of one shape, scalars being broadcast."""
    row = ROWS[node.op]
    if not node.op.elementwise:
        return w.apply(node, row.hlo, row.hlo_text(w, node))
    dims = as_tensor(node.type).dims
    return w.write(node, row.hlo, [w.spread(i, dims) for i in node.inputs], row.hlo_text(w, node))


# --- what HLO says in a way of its own ----------------------------------------------------------------------------

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


def _seed(w: ComputationWriter, node: Node) -> None:
    """Written with the draw that takes it."""


EMITTERS: dict[Op, Emit] = {
    **{row.op: _by_row for row in TABLE if row.hlo},
    ops.broadcast_in_dim: _broadcast,
    **CONTROL,
    **DEVICES,
    **dict.fromkeys((ops.custom_call, ops.custom_effect), custom_call(kept)),
    ops.rng_uniform: _rng("rng_uniform"),
    ops.rng_normal: _rng("rng_normal"),
    ops.module_seed: _seed,
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
