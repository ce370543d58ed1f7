"""StableHLO's and CHLO's operations in terms of ours: one table, and the only place where they are named for reading.

A rule gives the list of results. Attribute names are those of the dialect, and of the pretty form where that has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from deepx_graph import ops
from deepx_graph.ir import Node, Op
from deepx_graph.ops.data.fusion import mapped
from deepx_graph.text.stablehlo.reader import dynamic
from deepx_graph.text.stablehlo.reader import rules_windows as windows
from deepx_graph.text.stablehlo.reader.context import Context
from deepx_graph.text.stablehlo.reader.effects import callees, target, without_tokens
from deepx_graph.text.stablehlo.reader.rules_custom import custom_call
from deepx_graph.text.stablehlo.reader.rules_devices import DEVICES, call, state_of, threaded
from deepx_graph.text.stablehlo.reader.rules_manual import manual_computation
from deepx_graph.text.stablehlo.syntax import Dense
from deepx_graph.types import Dims, TupleType, as_tensor

Rule = Callable[[Context], list[Node]]


def _same(op: Op) -> Rule:
    return lambda c: [c(op, *c.inputs)]


def opaque(c: Context) -> list[Node]:
    """The operation kept as it stands."""
    c.lowering.keeps(c.op)
    types = without_tokens(c.op.result_types)
    text = c.lowering.source.text[c.op.start : min(c.op.end, c.op.start + 2000)]
    if not types:
        return []
    type = types[0] if len(types) == 1 else TupleType(tuple(types))
    name = " ".join(filter(None, (c.op.name, c.op.extra.get("symbol", ""))))
    node = c(ops.opaque, *c.inputs, name=name, attributes=text, type=type, language="stablehlo")
    return [node] if len(types) == 1 else windows.several(c, node)


# --- leaves and types ---------------------------------------------------------------------------------------------


def _constant(c: Context) -> list[Node]:
    value = c.op.attributes.get("value")
    if not isinstance(value, Dense):
        raise c.fail("a constant needs a value", "dense<...> : type")
    return [c.b.literal(c.dense(value, c.op.result_types[0] if c.op.result_types else None))]


def _convert(c: Context) -> list[Node]:
    return [c(ops.convert, *c.inputs, dtype=c.tensor.dtype)]


def _iota(c: Context) -> list[Node]:
    return [c(ops.iota, dtype=c.tensor.dtype, shape=c.tensor.dims, iota_dimension=c.number("iota_dimension", "dim", default=0))]


def _compare(c: Context) -> list[Node]:
    words = [*c.op.words, "", ""]
    direction = c.word("comparison_direction", default=words[0])
    kind = c.word("compare_type", default=words[1])
    return [c(ops.compare, *c.inputs, direction=direction, compare_type="" if kind == "NOTYPE" else kind)]


def _clamp(c: Context) -> list[Node]:
    return [c(ops.clamp, *c.inputs)]


def _reduce_precision(c: Context) -> list[Node]:
    return [c(ops.reduce_precision, *c.inputs, exponent_bits=c.number("exponent_bits"), mantissa_bits=c.number("mantissa_bits"))]


# --- shapes -------------------------------------------------------------------------------------------------------


def _broadcast(c: Context) -> list[Node]:
    at = c.ints("broadcast_dimensions", "dims")
    return [c(ops.broadcast_in_dim, c.inputs[0], shape=c.tensor.dims, broadcast_dimensions=at)]


def _broadcast_sizes(c: Context) -> list[Node]:
    leading = len(c.ints("broadcast_sizes", "sizes"))
    at = tuple(range(leading, len(c.tensor.shape)))
    return [c(ops.broadcast_in_dim, c.inputs[0], shape=c.tensor.dims, broadcast_dimensions=at)]


def _reshape(c: Context) -> list[Node]:
    return [c(ops.reshape, c.inputs[0], shape=c.tensor.dims)]


def _slice(c: Context) -> list[Node]:
    if "slice" in c.op.extra:
        inner = c.op.extra["slice"].strip("[] ")
        rows = [[int(n) for n in part.split(":")] for part in inner.split(",")] if inner else []
        start, limit = tuple(r[0] for r in rows), tuple(r[1] for r in rows)
        strides = tuple(r[2] if len(r) > 2 else 1 for r in rows)
    else:
        start, limit, strides = c.ints("start_indices"), c.ints("limit_indices"), c.ints("strides")
    return [c(ops.slice_, c.inputs[0], start_indices=start, limit_indices=limit, strides=strides)]


def _pad(c: Context) -> list[Node]:
    low, high = c.ints("edge_padding_low", "low"), c.ints("edge_padding_high", "high")
    interior = c.ints("interior_padding", "interior", default=(0,) * len(low))
    return [c(ops.pad, *c.inputs, edge_padding_low=low, edge_padding_high=high, interior_padding=interior)]


_GATHER = ("offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims", "start_index_map")
_SCATTER = ("update_window_dims", "inserted_window_dims", "input_batching_dims", "scatter_indices_batching_dims",
            "scatter_dims_to_operand_dims")


def _gather(c: Context, sizes: Dims) -> list[Node]:
    numbers = c.need("dimension_numbers")
    attrs = {k: tuple(numbers.get(k, ())) for k in _GATHER}
    vector_dim = numbers.get("index_vector_dim", 0)
    return [c(ops.gather, *c.inputs, index_vector_dim=vector_dim, slice_sizes=sizes, **attrs)]


def _scatter(c: Context) -> list[Node]:
    numbers = c.need("scatter_dimension_numbers")
    attrs = {k: tuple(numbers.get(k, ())) for k in _SCATTER}
    node = c(ops.scatter, *c.inputs, index_vector_dim=numbers.get("index_vector_dim", 0), update_computation=c.body(), **attrs)
    return windows.several(c, node)


# --- control ------------------------------------------------------------------------------------------------------


def _while(c: Context) -> list[Node]:
    state = state_of(c)

    def turn(phis: tuple[Node, ...]) -> tuple[Node, list[Node]]:
        if state is None:
            (go_on,) = c.region(0, phis)
            return go_on, c.region(1, phis)
        go_on, tested = threaded(c, 0, phis[:-1], phis[-1])
        return go_on, threaded(c, 1, phis[:-1], tested)

    return _after(c, state, c.b.loop([*c.inputs, *([state] if state else [])], turn))


def _branches(c: Context) -> list[Node]:
    state = state_of(c)
    if state is None:
        return list(c.b.branch(c.inputs[0], *(c.region(k, ()) for k in range(len(c.op.regions)))))
    return _after(c, state, c.b.branch(c.inputs[0], *[threaded(c, k, (), state) for k in range(len(c.op.regions))]))


def _after(c: Context, state: Node | None, results: Sequence[Node]) -> list[Node]:
    """The results but for the state, which is current from here on."""
    if state is not None:
        *results, c.lowering.state = results
    return list(results)


def _call(c: Context) -> list[Node]:
    return call(c, callees(c.op)[0], c.inputs)


# --- checks and calls outside -------------------------------------------------------------------------------------


def _check(c: Context, name: str, in_custom_call: bool) -> list[Node]:
    state = c.lowering.state
    got, *rest = c.inputs
    value = c.op.attributes.get("value")
    want = rest[0] if rest else c.b.literal(c.dense(value, got.type)) if isinstance(value, Dense) else None
    if state is None or want is None:
        raise c.fail(f"{name} needs something to compare with")
    kind = name.removeprefix("check.").removesuffix("_const")
    if kind == "expect_eq":
        new = c(ops.expect_eq, state, got, want)
    elif kind == "expect_almost_eq":
        tolerance = c.raw("tolerance")
        new = c(ops.expect_almost_eq, state, got, want, tolerance=float(tolerance or (1e-3 if in_custom_call else 1e-4)))
    elif kind == "expect_close":
        new = c(ops.expect_close, state, got, want,
                max_ulp_difference=c.number("max_ulp_difference", default=3 if in_custom_call else 1),
                min_ulp_difference=c.number("min_ulp_difference", default=0))
    else:
        return opaque(c)
    c.lowering.state = new
    return []


def _plain_check(c: Context) -> list[Node]:
    return _check(c, c.op.name, in_custom_call=False)


def _custom_call(c: Context) -> list[Node]:
    name = target(c.op)
    return _check(c, name, in_custom_call=True) if name.startswith("check.") else custom_call(c)


def _barrier(c: Context) -> list[Node]:
    return [c(ops.identity, x, role=c.word("role", default="optimization_barrier")) for x in c.inputs]


def _sharding(c: Context) -> list[Node]:
    """The operand: where its parts lie does not change it. The constraint is kept as a note."""
    said = c.op.extra.get("form") or c.word("sharding", default="").removeprefix("#sdy.sharding")
    c.b.origin = replace(c.b.origin, notes=(*c.b.origin.notes, ("constraint", f"#sdy.sharding{said}")))
    return [c(ops.identity, c.inputs[0], role="sharding_constraint")]


def _get_dimension_size(c: Context) -> list[Node]:
    return [c(ops.get_dimension_size, c.inputs[0], dimension=c.number("dimension", "dim"))]


def _top_k(c: Context) -> list[Node]:
    return windows.several(c, c(ops.top_k, *c.inputs, k=c.number("k")))


def _largest(c: Context) -> list[Node]:
    return _top_k(c) if c.flag("largest", default=True) else opaque(c)


def _unchanged(role: str) -> Rule:
    """The first operand; a token beside it orders nothing that the state does not."""
    return lambda c: [c(ops.identity, c.inputs[0], role=role)]


def _rng(c: Context) -> list[Node]:
    op = {"UNIFORM": ops.rng_uniform, "NORMAL": ops.rng_normal}[c.word("rng_distribution", "distribution")]
    seed = c(ops.module_seed, index=c.lowering.next_seed())
    return [c(op, *c.inputs[:2], seed, shape=c.tensor.shape, dtype=c.tensor.dtype)]


def _rng_bits(c: Context) -> list[Node]:
    bits = as_tensor(c.op.result_types[1])
    algorithm = c.word("rng_algorithm", "algorithm")
    node = c(ops.rng_bit_generator, *c.inputs, rng_algorithm=algorithm, shape=bits.shape, dtype=bits.dtype)
    return windows.several(c, node)


def _map(c: Context) -> list[Node]:
    body = c.body()
    result = mapped(c.b, body, c.inputs, c.tensor)
    return [c(ops.map_, *c.inputs, computation=body) if result is None else result]


def _get_tuple_element(c: Context) -> list[Node]:
    index = int(c.op.extra["slice"].strip("[]")) if "slice" in c.op.extra else c.number("index")
    return [c.lowering.item(c.inputs[0], index)]


# --- the table ----------------------------------------------------------------------------------------------------

_STABLEHLO_SAME = (
    ops.abs_, ops.add, ops.and_, ops.atan2, ops.cbrt, ops.ceil, ops.complex_, ops.cosine, ops.count_leading_zeros, ops.divide,
    ops.exponential, ops.exponential_minus_one, ops.floor, ops.imag, ops.is_finite, ops.log, ops.log_plus_one, ops.logistic,
    ops.maximum, ops.minimum, ops.multiply, ops.negate, ops.not_, ops.or_, ops.popcnt, ops.power, ops.real, ops.remainder,
    ops.round_nearest_afz, ops.round_nearest_even, ops.rsqrt, ops.select, ops.shift_left, ops.shift_right_arithmetic,
    ops.shift_right_logical, ops.sign, ops.sine, ops.sqrt, ops.subtract, ops.tan, ops.tanh, ops.xor, ops.dynamic_update_slice,
)  # fmt: skip
_CHLO_SAME = (
    ops.acos, ops.acosh, ops.asin, ops.asinh, ops.atan, ops.atanh, ops.bessel_i1e, ops.conj, ops.cosh, ops.digamma, ops.erf,
    ops.erf_inv, ops.erfc, ops.is_inf, ops.is_neg_inf, ops.is_pos_inf, ops.lgamma, ops.next_after, ops.polygamma, ops.sinh,
    ops.mulhi, ops.square, ops.tan, ops.zeta,
)  # fmt: skip

_CHLO_BROADCAST = (
    ops.add, ops.and_, ops.atan2, ops.complex_, ops.divide, ops.maximum, ops.minimum, ops.multiply, ops.next_after, ops.or_,
    ops.polygamma, ops.power, ops.remainder, ops.select, ops.shift_left, ops.shift_right_arithmetic, ops.shift_right_logical,
    ops.subtract, ops.xor, ops.zeta,
)  # fmt: skip

RULES: dict[str, Rule] = {
    "opaque": opaque,
    **{f"stablehlo.{op.name}": _same(op) for op in _STABLEHLO_SAME},
    **{f"chlo.{op.name}": _same(op) for op in _CHLO_SAME},
    **DEVICES,
    "sdy.manual_computation": manual_computation,
    **{f"chlo.broadcast_{op.name}": dynamic.broadcasting(_same(op)) for op in _CHLO_BROADCAST},
    "chlo.broadcast_compare": dynamic.broadcasting(_compare),
    **{f"check.expect_{n}{suffix}": _plain_check for n in ("eq", "almost_eq", "close") for suffix in ("", "_const")},
    "stablehlo.constant": _constant,
    "stablehlo.convert": _convert,
    "stablehlo.bitcast_convert": lambda c: [c(ops.bitcast_convert, *c.inputs, dtype=c.tensor.dtype)],
    "stablehlo.iota": _iota,
    "stablehlo.dynamic_iota": dynamic.of_result(_iota, opaque),
    "stablehlo.compare": _compare,
    "stablehlo.clamp": _clamp,
    "stablehlo.reduce_precision": _reduce_precision,
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.dynamic_broadcast_in_dim": dynamic.of_result(_broadcast, opaque),
    "stablehlo.reshape": _reshape,
    "stablehlo.dynamic_reshape": dynamic.of_result(_reshape, opaque),
    "stablehlo.transpose": lambda c: [c(ops.transpose, *c.inputs, permutation=c.ints("permutation", "dims"))],
    "stablehlo.reverse": lambda c: [c(ops.reverse, *c.inputs, dimensions=c.ints("dimensions", "dims"))],
    "stablehlo.concatenate": lambda c: [c(ops.concatenate, *c.inputs, dimension=c.number("dimension", "dim"))],
    "stablehlo.slice": _slice,
    "stablehlo.pad": _pad,
    "stablehlo.dynamic_slice": lambda c: [c(ops.dynamic_slice, *c.inputs, slice_sizes=c.ints("slice_sizes", "sizes"))],
    "stablehlo.gather": lambda c: _gather(c, c.ints("slice_sizes")),
    "stablehlo.scatter": _scatter,
    "stablehlo.reduce": windows.reduce,
    "stablehlo.reduce_window": windows.reduce_window,
    "stablehlo.select_and_scatter": windows.select_and_scatter,
    "stablehlo.dot_general": windows.dot_general,
    "stablehlo.dot": windows.dot,
    "stablehlo.convolution": windows.convolution,
    "stablehlo.sort": windows.sort,
    "stablehlo.map": _map,
    "stablehlo.batch_norm_training": windows.norm(ops.batch_norm_training),
    "stablehlo.batch_norm_inference": windows.norm(ops.batch_norm_inference),
    "stablehlo.batch_norm_grad": windows.norm(ops.batch_norm_grad),
    "stablehlo.cholesky": lambda c: [c(ops.cholesky, *c.inputs, lower=c.flag("lower"))],
    "stablehlo.triangular_solve": windows.triangular_solve,
    "stablehlo.fft": windows.fft,
    "stablehlo.tuple": lambda c: [c.b.pack(*c.inputs)],
    "stablehlo.get_tuple_element": _get_tuple_element,
    "stablehlo.while": _while,
    "stablehlo.if": _branches,
    "stablehlo.case": _branches,
    "func.call": _call,
    "mhlo.fusion": lambda c: c.region(0, c.inputs),
    **{f"mhlo.{word}": _unchanged(word) for word in ("add_dependency", "copy", "domain")},
    "mhlo.topk": _largest,
    "stablehlo.composite": _call,
    "stablehlo.custom_call": _custom_call,
    "stablehlo.optimization_barrier": _barrier,
    "sdy.sharding_constraint": _sharding,
    "stablehlo.get_dimension_size": _get_dimension_size,
    "stablehlo.rng": _rng,
    "stablehlo.rng_bit_generator": _rng_bits,
    "stablehlo.torch_index_select": dynamic.index_select,
    "stablehlo.dynamic_conv": dynamic.with_values(windows.convolution, opaque, padding=2),
    "stablehlo.dynamic_pad": dynamic.with_values(_pad, opaque, edge_padding_low=2, edge_padding_high=3, interior_padding=4),
    "stablehlo.dynamic_gather": dynamic.gather(_gather, opaque),
    "stablehlo.real_dynamic_slice": dynamic.real_slice(opaque),
    "stablehlo.set_dimension_size": dynamic.set_dimension_size(opaque),
    "stablehlo.broadcast": _broadcast_sizes,
    "stablehlo.uniform_quantize": lambda c: c.inputs,
    "stablehlo.uniform_dequantize": lambda c: c.inputs,
    "chlo.top_k": _top_k,
    "chlo.constant": _constant,
}
"""Every operation that is read; others are kept opaque."""
