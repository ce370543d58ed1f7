"""What each operation looks like in HLO: one table from op to emitter, and the only place where opcodes are named for writing.

`TARGET` tells the legaliser what is here; an op without a row that has no decomposition into others cannot be written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deepx_graph import ops
from deepx_graph.errors import an
from deepx_graph.ir import Node, Op
from deepx_graph.ir.structure import STRUCTURAL
from deepx_graph.ops.host import custom_calls
from deepx_graph.rewrite.legalise import ConversionTarget
from deepx_graph.text.hlo.printer import index
from deepx_graph.text.hlo.printer.body import Emit, Writer
from deepx_graph.text.hlo.printer.control import control_table, kept
from deepx_graph.text.hlo.printer.devices import DEVICE_EMITTERS, custom_call
from deepx_graph.text.hlo.printer.values import ints, labels_text, listed, present, string_text, window_text
from deepx_graph.text.hlo.reader.rules import BINARY, IDENTITY, UNARY
from deepx_graph.types import BOOL, DType, TensorType, as_tensor

# --- families -----------------------------------------------------------------------------------------------------


def _elementwise(opcode: str) -> Emit:
    """The opcode on operands of one shape: scalars are broadcast."""

    def emit(w: Writer, node: Node) -> str:
        dims = as_tensor(node.type).dims
        return w.write(node, opcode, [w.spread(i, dims) for i in node.inputs], _note(node))

    return emit


def _note(node: Node) -> str:
    """`exponent_bits=5, mantissa_bits=10`: attributes that HLO calls as we do."""
    return ", ".join(f"{a.name}={v}" for a, v in zip(node.op.attrs, node.attrs, strict=True))


def _plain(opcode: str, **words: str) -> Emit:
    """The opcode on the operands as they are; `words` gives our attribute for each of HLO's."""

    def emit(w: Writer, node: Node) -> str:
        given = ", ".join(f"{word}={_word(node.attr(name))}" for word, name in words.items())
        return w.apply(node, opcode, given)

    return emit


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ints(value) if isinstance(value, tuple) else str(value)


def _flags(node: Node, *names: str) -> str:
    """`lower=true`: those that are set."""
    return present(*(f"{name}=true" for name in names if node.attr(name)))


_ROLES = {role: opcode for opcode, role in reversed(IDENTITY.items())}


def _identity(w: Writer, node: Node) -> str:
    role = node.attrs[0]
    if role in custom_calls.UNCHANGED:
        return w.apply(node, "custom-call", f"custom_call_target={string_text(role)}")
    return w.apply(node, _ROLES.get(role, "copy"))


# --- elementwise with a twist -------------------------------------------------------------------------------------


def _compare(w: Writer, node: Node) -> str:
    dims = as_tensor(node.type).dims
    type_ = f"type={node.attr('compare_type')}" if node.attr("compare_type") else ""
    given = present(f"direction={node.attr('direction')}", type_)
    return w.write(node, "compare", [w.spread(i, dims) for i in node.inputs], given)


# --- shapes -------------------------------------------------------------------------------------------------------


def _broadcast(w: Writer, node: Node) -> str:
    """HLO's broadcast does not stretch dimensions of size 1: those are dropped first. A size may meet an open dimension."""
    x, shape, at = node.inputs[0], node.attr("shape"), node.attr("broadcast_dimensions")
    source = as_tensor(x.type)
    dims = source.dims or ()
    kept = [k for k, d in enumerate(dims) if d != 1 or shape[at[k]] == 1]
    value = w.value(x)
    if len(kept) < len(dims):
        value = w.step("reshape", source.with_dims(dims[k] for k in kept), value)
    return w.write(node, "broadcast", [value], listed("dimensions", tuple(at[k] for k in kept)))


def _slice(w: Writer, node: Node) -> str:
    rows = zip(*node.attrs, strict=True)
    parts = ", ".join(f"[{a}:{b}]" if s == 1 else f"[{a}:{b}:{s}]" for a, b, s in rows)
    return w.write(node, "slice", [w.value(node.inputs[0])], f"slice={{{parts}}}")


def _pad(w: Writer, node: Node) -> str:
    rows = list(zip(*node.attrs, strict=True))
    if not rows:
        return w.value(node.inputs[0])
    inside = any(c for _, _, c in rows)
    text = "x".join(f"{a}_{b}_{c}" if inside else f"{a}_{b}" for a, b, c in rows)
    return w.apply(node, "pad", f"padding={text}")


# --- reductions, windows, products --------------------------------------------------------------------------------


def _with_body(opcode: str, body: str, **words: str) -> Emit:
    def emit(w: Writer, node: Node) -> str:
        given = [f"{word}={_word(node.attr(name))}" for word, name in words.items()]
        return w.apply(node, opcode, present(*given, f"to_apply={w.body(node.attr(body), node)}"))

    return emit


def _map(w: Writer, node: Node) -> str:
    dimensions = tuple(range(as_tensor(node.type).rank or 0))
    return w.apply(node, "map", present(listed("dimensions", dimensions), f"to_apply={w.body(node.attr('computation'), node)}"))


def _sort(w: Writer, node: Node) -> str:
    stable = "is_stable=true" if node.attr("is_stable") else ""
    return w.apply(node, "sort", present(
        f"dimensions={{{node.attr('dimension')}}}", stable, f"to_apply={w.body(node.attr('comparator'), node)}"))


def _reduce_window(w: Writer, node: Node) -> str:
    a = node.attr
    window = window_text(a("window_dimensions"), stride=a("window_strides"), low=a("padding_low"), high=a("padding_high"),
                         lhs_dilate=a("base_dilations"), rhs_dilate=a("window_dilations"))
    return w.apply(node, "reduce-window", present(window, f"to_apply={w.body(a('body'), node)}"))


def _select_and_scatter(w: Writer, node: Node) -> str:
    a = node.attr
    window = window_text(a("window_dimensions"), stride=a("window_strides"), low=a("padding_low"), high=a("padding_high"))
    return w.apply(node, "select-and-scatter", present(
        window, f"select={w.body(a('select'), node)}", f"scatter={w.body(a('scatter'), node)}"))


def _dot(w: Writer, node: Node) -> str:
    a = node.attr
    rows = [("lhs_batch_dims", a("lhs_batching_dimensions")), ("lhs_contracting_dims", a("lhs_contracting_dimensions")),
            ("rhs_batch_dims", a("rhs_batching_dimensions")), ("rhs_contracting_dims", a("rhs_contracting_dimensions"))]
    return w.apply(node, "dot", present(*(listed(n, v) for n, v in rows if v)))


def _convolution(w: Writer, node: Node) -> str:
    a = node.attr
    kernel = as_tensor(node.inputs[1].type).shape
    window = window_text(tuple(kernel[d] for d in a("kernel_spatial_dimensions")), stride=a("window_strides"),
                         low=a("padding_low"), high=a("padding_high"), lhs_dilate=a("lhs_dilation"),
                         rhs_dilate=a("rhs_dilation"), reversal=a("window_reversal"))
    lhs, out = (labels_text(a(f"{n}_batch_dimension"), a(f"{n}_feature_dimension"), a(f"{n}_spatial_dimensions"))
                for n in ("input", "output"))
    rhs = labels_text(a("kernel_input_feature_dimension"), a("kernel_output_feature_dimension"),
                      a("kernel_spatial_dimensions"), "io")
    groups = [f"{n}={a(n)}" for n in ("feature_group_count", "batch_group_count") if a(n) != 1]
    return w.apply(node, "convolution", present(window, f"dim_labels={lhs}_{rhs}->{out}", *groups))


# --- random numbers, types ----------------------------------------------------------------------------------------


def _rng(distribution: str) -> Emit:
    """HLO's draw has no seed of its own: only one that is the module's to choose can be left out."""

    def emit(w: Writer, node: Node) -> str:
        low, high, seed = node.inputs
        if seed.op is not ops.module_seed:
            raise w.fail(node, f"HLO's rng takes no seed, and this {node.op.name} has one", hint="write sea, which keeps it")
        type = as_tensor(node.type)
        return w.write(node, "rng", [_in_dtype(w, x, type.dtype) for x in (low, high)], f"distribution={distribution}")

    return emit


def _rng_bits(w: Writer, node: Node) -> str:
    return w.apply(node, "rng-bit-generator", f"algorithm=rng_{node.attr('rng_algorithm').lower()}")


def _in_dtype(w: Writer, node: Node, dtype: DType) -> str:
    type = as_tensor(node.type)
    return w.value(node) if type.dtype is dtype else w.helper("convert", type.with_dtype(dtype), w.value(node))


def _ensure_type(w: Writer, node: Node) -> str:
    if node.type != node.inputs[0].type:
        raise w.fail(node, f"{an(node.inputs[0].type)} is taken for {an(node.type)} only when the program runs",
                     hint="give the inputs' types first")
    return w.value(node.inputs[0])


def _seed(w: Writer, node: Node) -> None:
    """Written with the draw that takes it."""


def _iota(w: Writer, node: Node) -> str:
    type: TensorType = as_tensor(node.type)
    if not type.dims:
        return w.write(node, "constant", [_zero(type.dtype)])
    return w.write(node, "iota", [], f"iota_dimension={node.attr('iota_dimension')}")


def _zero(dtype: DType) -> str:
    """Zero, as a constant of the dtype."""
    return "false" if dtype is BOOL else "(0, 0)" if dtype.kind == "complex" else "0"


_NORM = {"epsilon": "epsilon", "feature_index": "feature_index"}

EMITTERS: dict[Op, Emit] = {
    **{op: _elementwise(opcode) for opcode, op in (UNARY | BINARY).items()},
    **control_table(ops.opaque, ops.fusion),
    **DEVICE_EMITTERS,
    **dict.fromkeys((ops.custom_call, ops.custom_effect), custom_call(kept)),
    ops.compare: _compare,
    ops.select: _elementwise("select"),
    ops.clamp: _elementwise("clamp"),
    ops.convert: _plain("convert"),
    ops.bitcast_convert: _plain("bitcast-convert"),
    ops.reduce_precision: _elementwise("reduce-precision"),
    ops.reshape: _plain("reshape"),
    ops.broadcast_in_dim: _broadcast,
    ops.transpose: _plain("transpose", dimensions="permutation"),
    ops.reverse: _plain("reverse", dimensions="dimensions"),
    ops.concatenate: lambda w, n: w.apply(n, "concatenate", listed("dimensions", n.attrs)),
    ops.slice_: _slice,
    ops.pad: _pad,
    ops.iota: _iota,
    ops.dynamic_slice: _plain("dynamic-slice", dynamic_slice_sizes="slice_sizes"),
    ops.dynamic_update_slice: _plain("dynamic-update-slice"),
    ops.gather: index.gather,
    ops.scatter: index.scatter,
    ops.reduce: _with_body("reduce", "body", dimensions="dimensions"),
    ops.reduce_window: _reduce_window,
    ops.select_and_scatter: _select_and_scatter,
    ops.map_: _map,
    ops.sort: _sort,
    ops.dot_general: _dot,
    ops.convolution: _convolution,
    ops.top_k: lambda w, n: w.apply(n, "topk", f"k={n.attr('k')}, largest=true"),
    ops.cholesky: lambda w, n: w.apply(n, "cholesky", _flags(n, "lower")),
    ops.triangular_solve: lambda w, n: w.apply(n, "triangular-solve", present(
        _flags(n, "left_side", "lower", "unit_diagonal"), f"transpose_a={n.attr('transpose_a')}")),
    ops.fft: _plain("fft", fft_type="fft_type", fft_length="fft_length"),
    ops.batch_norm_training: _plain("batch-norm-training", **_NORM),
    ops.batch_norm_inference: _plain("batch-norm-inference", **_NORM),
    ops.batch_norm_grad: _plain("batch-norm-grad", **_NORM),
    ops.rng_uniform: _rng("rng_uniform"),
    ops.rng_normal: _rng("rng_normal"),
    ops.get_dimension_size: lambda w, n: w.apply(n, "get-dimension-size", listed("dimensions", n.attrs)),
    ops.rng_bit_generator: _rng_bits,
    ops.module_seed: _seed,
    ops.identity: _identity,
    ops.ensure_type: _ensure_type,
}  # fmt: skip
"""Every op that can be written."""


def _is_unsigned(node: Node) -> bool:
    return as_tensor(node.type).dtype.kind == "uint"


def _is_real(node: Node) -> bool:
    return as_tensor(node.type).dtype.kind != "complex"


def _drops_imaginary(node: Node) -> bool:
    return as_tensor(node.inputs[0].type).dtype.kind == "complex" and _is_real(node)


LACKING: dict[Op, Callable[[Node], bool]] = {
    ops.abs_: _is_unsigned, ops.sign: _is_unsigned, ops.convert: _drops_imaginary, ops.cosh: lambda node: True,
    ops.sinh: lambda node: True, **dict.fromkeys((ops.asin, ops.acos, ops.acosh, ops.asinh, ops.atanh), _is_real),
}  # fmt: skip
"""Which uses of ops that have an opcode HLO has not, or XLA parses and cannot run."""


def _has(node: Node) -> bool:
    lacking = LACKING.get(node.op)
    return (node.op in EMITTERS or node.op in STRUCTURAL) and not (lacking and lacking(node))


TARGET = ConversionTarget(_has)
"""What HLO has."""
