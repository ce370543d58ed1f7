"""StableHLO's and CHLO's operations in terms of ours: the rows of the dialect's table, and what MLIR says in a way of its own.

A rule gives the list of results. Attribute names are those of the dialect, and of the pretty form where that has its own. An
operation that a dialect has and no rule reads is kept opaque; one that it does not have is a mistake. Other dialects are unknown
here, and all their operations are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from deepx_graph import ops
from deepx_graph.errors import suggest
from deepx_graph.ir import Node
from deepx_graph.text.stablehlo.reader import dynamic
from deepx_graph.text.stablehlo.reader.context import OperationContext
from deepx_graph.text.stablehlo.reader.devices import DEVICES, call
from deepx_graph.text.stablehlo.reader.effects import callees
from deepx_graph.text.stablehlo.reader.shardy import SHARDY
from deepx_graph.text.stablehlo.syntax import Dense
from deepx_graph.text.xla.table import ROWS, TABLE, drawn
from deepx_graph.types import as_tensor

Rule = Callable[[OperationContext], list[Node]]


def _constant(c: OperationContext) -> list[Node]:
    value = c.op.attributes.get("value")
    if not isinstance(value, Dense):
        raise c.fail("a constant needs a value", "dense<...> : type")
    return [c.b.literal(c.dense(value, c.op.result_types[0] if c.op.result_types else None))]


def _get_tuple_element(c: OperationContext) -> list[Node]:
    index = int(c.op.extra["slice"].strip("[]")) if "slice" in c.op.extra else c.number("index")
    return [c.lowering.item(c.inputs[0], index)]


def _broadcast_sizes(c: OperationContext) -> list[Node]:
    leading = len(c.ints("broadcast_sizes", "sizes"))
    return ROWS[ops.broadcast_in_dim].results(c, broadcast_dimensions=tuple(range(leading, len(c.tensor.shape))))


def _dot(c: OperationContext) -> list[Node]:
    """A product of vectors and matrices."""
    rank = len(as_tensor(c.inputs[0].type).shape)
    c.op = replace(c.op, attributes=c.op.attributes | {"contracting_dims": ([rank - 1], [0])})
    return ROWS[ops.dot_general].results(c)


def _sort(c: OperationContext) -> list[Node]:
    """A dimension below 0 counts from the end."""
    rank, dimension = as_tensor(c.inputs[0].type).rank or 0, c.number("dimension", default=-1)
    return ROWS[ops.sort].results(c, dimension=dimension + rank if dimension < 0 else dimension)


def _rng(c: OperationContext) -> list[Node]:
    return [drawn(c, {"UNIFORM": ops.rng_uniform, "NORMAL": ops.rng_normal}[c.word("rng_distribution", "distribution")])]


# --- control ------------------------------------------------------------------------------------------------------


def _while(c: OperationContext) -> list[Node]:
    """A loop; a size that goes through it unchanged stands outside of it, so that it stays known."""
    fixed = {k: x for k, x in enumerate(c.inputs) if dynamic.depends_on_sizes(x) and c.passes_on(1, k)}

    def iterate(variables: Sequence[Node]) -> tuple[Node, Sequence[Node]]:
        rest = iter(variables)
        whole = [fixed[k] if k in fixed else next(rest) for k in range(len(c.inputs))]
        (go_on,) = c.region(0, whole)
        return go_on, [x for k, x in enumerate(c.region(1, whole)) if k not in fixed]

    ends = iter(c.loop([x for k, x in enumerate(c.inputs) if k not in fixed], iterate))
    return [fixed[k] if k in fixed else next(ends) for k in range(len(c.inputs))]


def _branches(c: OperationContext) -> list[Node]:
    return c.branch(c.inputs[0], [partial(c.region, k, ()) for k in range(len(c.op.regions))])


def _call(c: OperationContext) -> list[Node]:
    return call(c, callees(c.op)[0], c.inputs)


def _barrier(c: OperationContext) -> list[Node]:
    return [c(ops.identity, x, role=c.word("role", default="optimization_barrier")) for x in c.inputs]


def _unchanged(role: str) -> Rule:
    """The first operand; a token beside it orders nothing that the state does not."""
    return lambda c: [c(ops.identity, c.inputs[0], role=role)]


# --- the table ----------------------------------------------------------------------------------------------------

_CHLO_BROADCAST = (
    ops.add, ops.and_, ops.atan2, ops.compare, ops.complex_, ops.divide, ops.maximum, ops.minimum, ops.multiply, ops.next_after,
    ops.or_, ops.polygamma, ops.power, ops.remainder, ops.select, ops.shift_left, ops.shift_right_arithmetic,
    ops.shift_right_logical, ops.subtract, ops.xor, ops.zeta,
)  # fmt: skip

RULES: dict[str, Rule] = {
    "opaque": OperationContext.opaque,
    **{row.mlir: row.results for row in TABLE},
    **DEVICES,
    **SHARDY,
    **{f"chlo.broadcast_{op.name}": dynamic.broadcasting(ROWS[op].results) for op in _CHLO_BROADCAST},
    **dict.fromkeys(("stablehlo.constant", "sdy.constant"), _constant),
    "stablehlo.dynamic_iota": dynamic.of_result(ops.iota),
    "stablehlo.dynamic_broadcast_in_dim": dynamic.of_result(ops.broadcast_in_dim),
    "stablehlo.dynamic_reshape": dynamic.of_result(ops.reshape),
    "stablehlo.dot": _dot,
    "stablehlo.sort": _sort,
    "stablehlo.tuple": lambda c: [c.b.pack(*c.inputs)],
    "stablehlo.get_tuple_element": _get_tuple_element,
    "stablehlo.while": _while,
    "stablehlo.if": _branches,
    "stablehlo.case": _branches,
    "func.call": _call,
    "mhlo.fusion": lambda c: c.region(0, c.inputs),
    **{f"mhlo.{word}": _unchanged(word) for word in ("add_dependency", "copy", "domain")},
    "mhlo.topk": lambda c: ROWS[ops.top_k].results(c) if c.flag("largest", default=True) else c.opaque(),
    "stablehlo.composite": _call,
    "stablehlo.optimization_barrier": _barrier,
    "stablehlo.rng": _rng,
    "stablehlo.torch_index_select": dynamic.index_select,
    "stablehlo.dynamic_conv": dynamic.convolution,
    "stablehlo.dynamic_pad": dynamic.with_values(
        ops.pad, edge_padding_low=2, edge_padding_high=3, interior_padding=4),
    "stablehlo.dynamic_gather": dynamic.gather,
    "stablehlo.real_dynamic_slice": dynamic.real_slice,
    "stablehlo.set_dimension_size": dynamic.set_dimension_size,
    "stablehlo.broadcast": _broadcast_sizes,
    "stablehlo.uniform_quantize": lambda c: c.inputs,
    "stablehlo.uniform_dequantize": lambda c: c.inputs,
    "chlo.tan": ROWS[ops.tan].results,
    "chlo.constant": _constant,
}
"""Every operation that is read; others are kept opaque."""


KEPT = frozenset({
    "stablehlo.cross-replica-sum", "stablehlo.einsum", "stablehlo.unary_einsum",
    "chlo._asin_acos_kernel", "chlo.constant_like", "chlo.dynamic_reshape", "chlo.minimum_broadcast_shapes", "chlo.ragged_dot",
    "chlo.rank_specialization_cluster", "chlo.rank_specialization_cluster_yield", "chlo.scan", "chlo.broadcast_nextafter",
    "mhlo.async_update", "mhlo.bitcast", "mhlo.stochastic_convert", "mhlo.trace", "mhlo.xla.rng_get_and_update_state",
    "func.call_indirect", "func.constant", "builtin.unrealized_conversion_cast",
})  # fmt: skip
"""Operations of these dialects that are kept as they stand."""

STRUCTURE = frozenset({"stablehlo.return", "mhlo.return", "func.return", "func.func", "builtin.module"})
"""Operations that are part of others."""

_DIALECTS = ("stablehlo", "chlo", "check", "func", "mhlo", "builtin", "interpreter")
_VERSIONED = re.compile(r"vhlo\.\w+_v\d+")
_STANDS_FOR = ("stablehlo", "chlo")


def canonical(name: str) -> str:
    """The StableHLO or CHLO name of an MHLO operation that has the same meaning there; any other name as it is."""
    dialect, _, word = name.partition(".")
    if dialect != "mhlo" or name in RULES:
        return name
    return next((n for d in _STANDS_FOR if (n := f"{d}.{word}") in RULES or n in KEPT), name)


def is_mistaken(name: str) -> bool:
    """Whether the operation's dialect is one of ours and has no such operation."""
    if name.partition(".")[0] == "vhlo":
        return not _VERSIONED.fullmatch(name)
    return ("." not in name or name.partition(".")[0] in _DIALECTS) and not (name in RULES or name in KEPT or name in STRUCTURE)


def nearest(name: str) -> str | None:
    """A hint with the operation that was probably meant."""
    return suggest(name, (*RULES, *STRUCTURE, *KEPT, *_of_mhlo(name)))


def _of_mhlo(name: str) -> Iterator[str]:
    """The MHLO names of what is read, for a mistaken one of that dialect."""
    if name.startswith("mhlo."):
        yield from (f"mhlo.{n.partition('.')[2]}" for n in RULES if n.partition(".")[0] in _STANDS_FOR)
