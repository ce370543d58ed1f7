"""Operations of VHLO as those of StableHLO that they stand for, as MLIR text has these.

VHLO has every attribute by itself and written out; StableHLO gathers some into structs and leaves defaults out. A version of an
operation that lacks an attribute means its default.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from deepx_graph.text.stablehlo.bytecode.native import ALGORITHM, conv_text
from deepx_graph.text.stablehlo.literals import dense_value
from deepx_graph.text.stablehlo.syntax import Dense, DenseArray, EnumWord, Operation, Struct, Symbol, plain
from deepx_graph.types import TensorType

Attributes = dict[str, Any]
_VERSION = re.compile(r"vhlo\.(.+)_v\d+")
_OF_FUNC = {"func": "func.func", "call": "func.call"}

_ARRAYS = frozenset({
    "base_dilations", "broadcast_dimensions", "broadcast_sizes", "dimensions", "edge_padding_high", "edge_padding_low",
    "fft_length", "interior_padding", "known_expanding_dimensions", "known_nonexpanding_dimensions", "lhs_dilation",
    "limit_indices",
    "permutation", "rhs_dilation", "slice_sizes", "start_indices", "strides", "window_dilations", "window_dimensions",
    "window_reversal", "window_strides",
})  # fmt: skip
"""Constants of VHLO that are dense arrays."""

_DEFAULTS: dict[str, tuple[Any, ...]] = {
    "api_version": (1,), "arg_attrs": ([],), "backend_config": ("", {}), "called_computations": ([],), "compare_type": ("NOTYPE",),
    "composite_attributes": ({},), "has_dynamic_root": (False,), "has_side_effect": (False,), "indices_are_sorted": (False,),
    "infeed_config": ("",), "is_host_transfer": (False,), "is_stable": (False,), "layout": ([],), "lower": (False,),
    "operand_layouts": ([],), "outfeed_config": ("",), "output_operand_aliases": ([],), "res_attrs": ([],),
    "result_accuracy": ({"atol": 0.0, "rtol": 0.0, "ulps": 0, "mode": "DEFAULT"},), "result_layouts": ([],),
    "result_tilings": ([],),
    "sym_visibility": ("",), "unique_indices": (False,), "use_global_device_ids": (False,), "version": (0,),
}  # fmt: skip
"""What attributes are where they are left out."""


def upgrade(op: Operation) -> None:
    """Makes the operation of VHLO the one of StableHLO."""
    found = _VERSION.fullmatch(op.name)
    word = found[1] if found else op.name
    op.name = _OF_FUNC.get(word, f"stablehlo.{word}")
    a = op.attributes
    for marks, gather in _GATHERED:
        if marks in a:
            gather(a)
    for name in _ARRAYS & a.keys():
        a[name] = _array(a[name])
    for name in _SYMBOLS & a.keys():
        a[name] = _symbol(a[name])
    for name in _DEFAULTS.keys() & a.keys():
        if plain(a[name]) in _DEFAULTS[name]:
            del a[name]
    if word == "dynamic_conv":
        a.pop("padding", None)  # that of the operand


def _taken(a: Attributes, *names: str) -> list[Any]:
    return [a.pop(name, None) for name in names]


def _ints(value: Any) -> list[int]:
    """The elements of a constant; none where it is missing."""
    if not isinstance(value, Dense):
        return []
    with suppress(ValueError):
        return [int(n) for n in _elements(value)]
    return []


def _elements(value: Dense) -> list[Any]:
    """Raises ValueError where the bytes do not make the constant."""
    if not isinstance(value.type, TensorType) or not value.type.is_static:
        raise ValueError(f"a list of type {value.type}")
    found: list[Any] = dense_value(value, value.type).bounded().reshape(-1).tolist()
    return found


def _array(value: Any) -> Any:
    """A constant as a dense array; what is none stays."""
    with suppress(ValueError, AttributeError):
        elements = _elements(value)
        return DenseArray("i1" if value.type.dtype.kind == "bool" else "i64", elements)
    return value


def _number(value: Any) -> int:
    found = plain(value)
    return found if isinstance(found, int) else 0


_SYMBOLS = frozenset({"callee", "called_computations", "decomposition"})


def _symbol(value: Any) -> Any:
    if isinstance(value, list):
        return [_symbol(v) for v in value]
    return Symbol(value) if isinstance(value, str) else value


def _convolution(a: Attributes) -> None:
    words = ("input", "kernel", "output")
    firsts = ("input_batch_dimension", "kernel_input_feature_dimension", "output_batch_dimension")
    seconds = ("input_feature_dimension", "kernel_output_feature_dimension", "output_feature_dimension")
    parts = []
    for word, first, second in zip(words, firsts, seconds, strict=True):
        one, other, spatial = _taken(a, first, second, f"{word}_spatial_dimensions")
        parts.append((_number(one), _number(other), _ints(spatial)))
    a["dimension_numbers"] = conv_text(*parts)


def _lists(kind: str, name: str, *lists: str, last: str = "") -> Callable[[Attributes], None]:
    """Several lists as a struct; `last` is a number that it has, too."""

    def gather(a: Attributes) -> None:
        fields: Attributes = {k: _ints(v) for k, v in zip(lists, _taken(a, *lists), strict=True)}
        if last:
            fields[last] = _number(a.pop(last, None))
        a[name] = Struct(kind, fields)

    return gather


def _algorithm(a: Attributes) -> None:
    names = (*ALGORITHM, "allow_imprecise_accumulation")
    values = _taken(a, *names)
    if not any(isinstance(v, EnumWord) and v.text == "none" for v in values):
        a["algorithm"] = Struct("dot_algorithm", {k: plain(v) if not isinstance(v, EnumWord) else v
                                                  for k, v in zip(names, values, strict=True)})


def _channel(a: Attributes) -> None:
    number, kind = _taken(a, "channel_id", "channel_type")
    if kind is not None or _number(number):
        a["channel_handle"] = Struct("channel_handle", {"handle": _number(number), "type": _number(kind)})


_GATHERED: tuple[tuple[str, Callable[[Attributes], None]], ...] = (
    ("input_batch_dimension", _convolution),
    ("lhs_contracting_dimensions", _lists("dot", "dot_dimension_numbers", "lhs_batching_dimensions", "rhs_batching_dimensions",
                                          "lhs_contracting_dimensions", "rhs_contracting_dimensions")),
    ("accumulation_type", _algorithm),
    ("offset_dims", _lists("gather", "dimension_numbers", "offset_dims", "collapsed_slice_dims", "operand_batching_dims",
                           "start_indices_batching_dims", "start_index_map", last="index_vector_dim")),
    ("update_window_dims", _lists("scatter", "scatter_dimension_numbers", "update_window_dims", "inserted_window_dims",
                                  "input_batching_dims", "scatter_indices_batching_dims", "scatter_dims_to_operand_dims",
                                  last="index_vector_dim")),
    ("channel_id", _channel),
)
"""Which attribute tells that some are to be gathered, and how."""
