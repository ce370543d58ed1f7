"""The operations, one declaration each, by family; and the table of them all.

Readers map foreign names to these objects; passes, engines and pictures read their fields.
"""

from __future__ import annotations

from deepx_graph.errors import UsageError, suggest
from deepx_graph.ir.op import Op
from deepx_graph.ir.structure import STRUCTURAL
from deepx_graph.ops.contract.convolution import convolution
from deepx_graph.ops.contract.linalg import LINALG, cholesky, fft, triangular_solve
from deepx_graph.ops.contract.linear import LINEAR, dot_general, matmul
from deepx_graph.ops.contract.norm import NORM, batch_norm_grad, batch_norm_inference, batch_norm_training
from deepx_graph.ops.contract.reduce import REDUCE, broadcast_in_dim, monoid_body, reduce, reduction
from deepx_graph.ops.contract.window import WINDOW, reduce_window, select_and_scatter
from deepx_graph.ops.data.adt import ADT, Cell, DataValue, construct, field, match_failed, tag
from deepx_graph.ops.data.fusion import FUSION, fusion, inlined, mapped
from deepx_graph.ops.data.opaque import OPAQUE, opaque
from deepx_graph.ops.data.tape import TAPES, tape_add, tape_empty, tape_pop, tape_push
from deepx_graph.ops.host.channels import Channels, Feed, Waiting
from deepx_graph.ops.host.check import CHECK, expect_almost_eq, expect_close, expect_eq
from deepx_graph.ops.host.collective import (
    COLLECTIVE,
    all_gather,
    all_reduce,
    all_to_all,
    collective_broadcast,
    collective_permute,
    collective_reduce,
    groups_alone,
    partition_id,
    reduce_scatter,
    replica_id,
)
from deepx_graph.ops.host.custom import CUSTOM, custom_call, custom_effect
from deepx_graph.ops.host.custom_calls import register_custom_call
from deepx_graph.ops.host.effects import EFFECTS, load, print_, save
from deepx_graph.ops.host.feeds import FEEDS, expect_probed, infeed, outfeed, probe, recv, rng_get_and_update_state, send
from deepx_graph.ops.host.host import DEEPX_DTYPES, Host
from deepx_graph.ops.host.ref import REF, ref_create, ref_read, ref_write
from deepx_graph.ops.interpret import evaluate
from deepx_graph.ops.math.bit_generator import BIT_GENERATOR, rng_bit_generator
from deepx_graph.ops.math.bits import (
    BITS,
    bitcast_convert,
    count_leading_zeros,
    mulhi,
    popcnt,
    reduce_precision,
    shift_left,
    shift_right_arithmetic,
    shift_right_logical,
)  # fmt: skip
from deepx_graph.ops.math.complexes import COMPLEX, complex_, imag, real
from deepx_graph.ops.math.elementwise import (
    ELEMENTWISE,
    abs_,
    add,
    and_,
    atan2,
    cbrt,
    ceil,
    clamp,
    compare,
    convert,
    convert_array,
    cosine,
    divide,
    exponential,
    exponential_minus_one,
    floor,
    floor_mod,
    is_finite,
    log,
    log_plus_one,
    logistic,
    maximum,
    minimum,
    multiply,
    negate,
    not_,
    or_,
    power,
    remainder,
    round_nearest_afz,
    round_nearest_even,
    rsqrt,
    select,
    sign,
    sine,
    sqrt,
    subtract,
    tan,
    tanh,
    xor,
)  # fmt: skip
from deepx_graph.ops.math.random import RANDOM, derive_seed, module_seed, rng_normal, rng_uniform
from deepx_graph.ops.math.special import (
    SPECIAL,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    bessel_i0e,
    bessel_i1e,
    conj,
    cosh,
    digamma,
    erf,
    erf_inv,
    erfc,
    is_inf,
    is_neg_inf,
    is_pos_inf,
    lgamma,
    next_after,
    polygamma,
    sinh,
    square,
    zeta,
)
from deepx_graph.ops.tensor.dynamic_slice import DYNAMIC_SLICES, dynamic_slice, dynamic_update_slice
from deepx_graph.ops.tensor.index import INDEX, gather, scatter
from deepx_graph.ops.tensor.layout import (
    LAYOUT,
    ensure_type,
    get_dimension_size,
    identity,
    reshape,
    reverse,
    stop_gradient,
    transpose,
)
from deepx_graph.ops.tensor.map import MAPPING, map_
from deepx_graph.ops.tensor.parallel import PARALLEL, run_parallel
from deepx_graph.ops.tensor.shape import SHAPE, concatenate, index_add, iota, pad, slice_, torch_index_select
from deepx_graph.ops.tensor.sort import SORT, sort, top_k
from deepx_graph.ops.vjp.accumulate import carries, pullback
from deepx_graph.ops.vjp.pushforward import pushforward

FAMILIES: dict[str, tuple[Op, ...]] = {
    "structure": STRUCTURAL, "elementwise": ELEMENTWISE, "bits": BITS, "complex": COMPLEX, "layout": LAYOUT, "shape": SHAPE,
    "index": DYNAMIC_SLICES + INDEX, "window": (*WINDOW, convolution), "reduce": REDUCE, "linear": LINEAR, "linalg": LINALG,
    "sort": SORT, "special": SPECIAL, "norm": NORM, "opaque": OPAQUE, "check": CHECK,
    "random": RANDOM, "bit_generator": BIT_GENERATOR, "adt": ADT, "effects": EFFECTS, "ref": REF, "fusion": FUSION, "tape": TAPES,
    "collective": COLLECTIVE, "feeds": FEEDS, "parallel": PARALLEL, "custom": CUSTOM, "map": MAPPING,
}  # fmt: skip
"""Every op, by its family."""

OPS: dict[str, Op] = {op.name: op for family in FAMILIES.values() for op in family}
"""Every op by name."""

FAMILY_OF: dict[Op, str] = {op: family for family, members in FAMILIES.items() for op in members}
"""The family of each op."""

if len(OPS) != sum(map(len, FAMILIES.values())):
    raise ValueError("two ops have one name")


def op_named(name: str) -> Op:
    """The op of that name. Raises UsageError, with the nearest name, when there is none."""
    if name not in OPS:
        hint = suggest(name, OPS)
        raise UsageError(f"no operation '{name}'" + (f"; {hint}" if hint else ""))
    return OPS[name]


__all__ = [
    "DEEPX_DTYPES",
    "FAMILIES",
    "FAMILY_OF",
    "OPS",
    "Cell",
    "Channels",
    "DataValue",
    "Feed",
    "Host",
    "Waiting",
    "abs_",
    "acos",
    "acosh",
    "add",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "and_",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "batch_norm_grad",
    "batch_norm_inference",
    "batch_norm_training",
    "bessel_i0e",
    "bessel_i1e",
    "bitcast_convert",
    "broadcast_in_dim",
    "carries",
    "cbrt",
    "ceil",
    "cholesky",
    "clamp",
    "collective_broadcast",
    "collective_permute",
    "collective_reduce",
    "compare",
    "complex_",
    "concatenate",
    "conj",
    "construct",
    "convert",
    "convert_array",
    "convolution",
    "cosh",
    "cosine",
    "count_leading_zeros",
    "custom_call",
    "custom_effect",
    "derive_seed",
    "digamma",
    "divide",
    "dot_general",
    "dynamic_slice",
    "dynamic_update_slice",
    "ensure_type",
    "erf",
    "erf_inv",
    "erfc",
    "evaluate",
    "expect_almost_eq",
    "expect_close",
    "expect_eq",
    "expect_probed",
    "exponential",
    "exponential_minus_one",
    "fft",
    "field",
    "floor",
    "floor_mod",
    "fusion",
    "gather",
    "get_dimension_size",
    "groups_alone",
    "identity",
    "imag",
    "index_add",
    "infeed",
    "inlined",
    "iota",
    "is_finite",
    "is_inf",
    "is_neg_inf",
    "is_pos_inf",
    "lgamma",
    "load",
    "log",
    "log_plus_one",
    "logistic",
    "map_",
    "mapped",
    "match_failed",
    "matmul",
    "maximum",
    "minimum",
    "module_seed",
    "monoid_body",
    "mulhi",
    "multiply",
    "negate",
    "next_after",
    "not_",
    "op_named",
    "opaque",
    "or_",
    "outfeed",
    "pad",
    "partition_id",
    "polygamma",
    "popcnt",
    "power",
    "print_",
    "probe",
    "pullback",
    "pushforward",
    "real",
    "recv",
    "reduce",
    "reduce_precision",
    "reduce_scatter",
    "reduce_window",
    "reduction",
    "ref_create",
    "ref_read",
    "ref_write",
    "register_custom_call",
    "remainder",
    "replica_id",
    "reshape",
    "reverse",
    "rng_bit_generator",
    "rng_get_and_update_state",
    "rng_normal",
    "rng_uniform",
    "round_nearest_afz",
    "round_nearest_even",
    "rsqrt",
    "run_parallel",
    "save",
    "scatter",
    "select",
    "select_and_scatter",
    "send",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
    "sign",
    "sine",
    "sinh",
    "slice_",
    "sort",
    "sqrt",
    "square",
    "stop_gradient",
    "subtract",
    "tag",
    "tan",
    "tanh",
    "tape_add",
    "tape_empty",
    "tape_pop",
    "tape_push",
    "top_k",
    "torch_index_select",
    "transpose",
    "triangular_solve",
    "xor",
    "zeta",
]  # fmt: skip
