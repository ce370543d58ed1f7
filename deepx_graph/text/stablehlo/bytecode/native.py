"""Attributes and types of StableHLO, CHLO and MHLO as they encode them themselves, in files that are no portable artifacts, and of
Shardy, which both kinds of files hold.
"""

from __future__ import annotations

from typing import Any

from deepx_graph.text.stablehlo.bytecode.bytes import ByteReader
from deepx_graph.text.stablehlo.bytecode.decoder import Dialect, EntryDecoder, Read, attribute_value, struct, sub_axis, words
from deepx_graph.text.stablehlo.bytecode.vhlo import ENUMS
from deepx_graph.text.stablehlo.syntax import DialectAttribute, EnumWord, future_of
from deepx_graph.text.xla.mlir_text import string_text
from deepx_graph.types import STATE


def _signed(d: EntryDecoder, r: ByteReader) -> int:
    return r.signed()


def _double(d: EntryDecoder, r: ByteReader) -> float:
    return r.double()


def _element(d: EntryDecoder, r: ByteReader) -> Any:
    return attribute_value(d.element(r))


Dimensions = tuple[int, int, list[int]]
"""Of a convolution's input or output those of batch and features, of its kernel the features'; the spatial ones."""


def conv_text(input: Dimensions, kernel: Dimensions, output: Dimensions) -> str:
    """The dimension numbers of a convolution as text has them."""
    return f"[{_labels(input, 'bf')}]x[{_labels(kernel, 'io')}]->[{_labels(output, 'bf')}]"


def _labels(numbers: Dimensions, names: str) -> str:
    at = {numbers[0]: names[0], numbers[1]: names[1], **{d: str(k) for k, d in enumerate(numbers[2])}}
    return ", ".join(at.get(d, "?") for d in range(len(numbers[2]) + 2))


def _conv(d: EntryDecoder, r: ByteReader) -> str:
    parts: list[Dimensions] = [(r.signed(), r.signed(), d.ints(r)) for _ in range(3)]
    return conv_text(*parts)


_CODES = {2: 3, 3: 4, 6: 7, 8: 11, 9: 12, 10: 13, 12: 16, 16: 19}
"""The codes of enumerations here, and in VHLO."""

_GATHER = ("offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims", "start_index_map")
_SCATTER = ("update_window_dims", "inserted_window_dims", "input_batching_dims", "scatter_indices_batching_dims",
            "scatter_dims_to_operand_dims")  # fmt: skip
_DOT = ("lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions", "rhs_contracting_dimensions")
ALGORITHM = ("lhs_precision_type", "rhs_precision_type", "accumulation_type", "lhs_component_count", "rhs_component_count",
             "num_primitive_operations")  # fmt: skip
"""The fields of the algorithm of a product, but for its last, `allow_imprecise_accumulation`: three types, three counts."""


def _lists(*names: str) -> dict[str, Read]:
    return dict.fromkeys(names, EntryDecoder.ints)


STABLEHLO = Dialect(
    attributes={
        1: struct("channel_handle", handle=_signed, type=_signed),
        **{code: words(ENUMS[k][0], *ENUMS[k][1], start=ENUMS[k][2]) for code, k in _CODES.items()},
        4: _conv,
        5: struct("dot", **_lists(*_DOT)),
        7: struct("gather", **_lists(*_GATHER), index_vector_dim=_signed),
        11: struct("scatter", **_lists(*_SCATTER), index_vector_dim=_signed),
        13: struct("bounds", bounds=EntryDecoder.ints),
        14: struct("output_operand_alias", output_tuple_indices=EntryDecoder.ints, operand_index=_signed,
                   operand_tuple_indices=EntryDecoder.ints),
        15: struct("dot_algorithm", **dict.fromkeys(ALGORITHM[:3], _element), **dict.fromkeys(ALGORITHM[3:], _signed),
                   allow_imprecise_accumulation=lambda d, r: bool(r.byte())),
        17: struct("result_accuracy", atol=_double, rtol=_double, ulps=_signed, mode=EntryDecoder.attribute),
        18: struct("replica_group_mesh_axes", mesh=EntryDecoder.attribute, axes=EntryDecoder.attribute),
        19: sub_axis,
        20: struct("axis_ref", name=EntryDecoder.attribute, sub_axis_info=EntryDecoder.optional),
        21: struct("mesh_axis", name=EntryDecoder.attribute, size=_signed),
        22: struct("mesh", axes=EntryDecoder.attribute, device_ids=EntryDecoder.optional),
    },
    types={0: lambda d, r: STATE, 1: lambda d, r: future_of(d.types(r))},
)


MHLO = Dialect(
    attributes={
        **{code: STABLEHLO.attributes[code] for code in range(1, 14)},
        14: words("kind", "sharding"),
        15: words("fusion_kind", "kLoop", "kInput", "kOutput", "kCustom"),
        16: STABLEHLO.attributes[14],
    },
    types={0: lambda d, r: STATE},
)

CHLO = Dialect(attributes={0: STABLEHLO.attributes[2], 1: STABLEHLO.attributes[3]}, types={})


# --- Shardy -------------------------------------------------------------------------------------------------------------


def _parts(d: EntryDecoder, r: ByteReader) -> list[str]:
    """The forms of a list of attributes."""
    return [_form(a) for a in d.attributes(r)]


def _form(value: Any) -> str:
    """An attribute within another: its form alone, names in quotes."""
    if isinstance(value, DialectAttribute):
        return value.form
    if isinstance(value, EnumWord):
        return value.text
    return string_text(value) if isinstance(value, str) else f"@{value.name}" if hasattr(value, "name") else str(value)


def _listed(kind: str, brackets: str) -> Read:
    return lambda d, r: DialectAttribute(kind, brackets[0] + ", ".join(_parts(d, r)) + brackets[1])


def _axis_ref(d: EntryDecoder, r: ByteReader) -> DialectAttribute:
    name, sub = string_text(d.string(r)), d.optional(r)
    return DialectAttribute("sdy.axis_ref", name if sub is None else f"{name}:{_form(sub)}")


def _mesh(d: EntryDecoder, r: ByteReader) -> DialectAttribute:
    axes, ids = ", ".join(_parts(d, r)), d.ints(r)
    if ids and not axes:
        return DialectAttribute("sdy.mesh", f"<[], device_ids={ids}>")
    return DialectAttribute("sdy.mesh", f"<[{axes}]{f', device_ids={ids}' if ids else ''}>")


def _dimension(d: EntryDecoder, r: ByteReader) -> DialectAttribute:
    axes, closed, (priority, stated) = _parts(d, r), r.byte(), r.flagged()
    inner = ", ".join([*axes, *["?"] * (not closed)])
    return DialectAttribute("sdy.dimension_sharding", f"{{{inner}}}{f'p{priority}' if stated else ''}")


def _sharding(unreduced: bool) -> Read:
    def read(d: EntryDecoder, r: ByteReader) -> DialectAttribute:
        mesh = _form(d.attribute(r))
        said = [mesh, f"[{', '.join(_parts(d, r))}]"]
        for word in ("replicated", "unreduced")[: 1 + unreduced]:
            if axes := _parts(d, r):
                said.append(f"{word}={{{', '.join(axes)}}}")
        r.skip(r.left)
        return DialectAttribute("sdy.sharding", f"<{', '.join(said)}>")

    return read


def _factor(number: int) -> str:
    """The name of a factor: i to z, then z_1, z_2, ..."""
    return chr(ord("i") + number) if number < 18 else f"z_{number - 17}"


def _factors(d: EntryDecoder, r: ByteReader) -> DialectAttribute:
    """The factors of one dimension; 1 for none."""
    return DialectAttribute("sdy.dim_mapping", "".join(map(_factor, d.ints(r))) or "1")


def _rule(d: EntryDecoder, r: ByteReader) -> DialectAttribute:
    """How an operation carries shardings on: the sizes of factors, which of them make up dimensions, and what is said of some."""
    sizes = d.ints(r)
    operands, results = (", ".join(_parts(d, r)) for _ in range(2))
    said = [f"({operands})->({results}) {{{', '.join(f'{_factor(k)}={size}' for k, size in enumerate(sizes))}}}"]
    for word in ("reduction", "need_replication", "permutation", "blocked_propagation"):
        if r.left > 1 and (named := d.ints(r)):
            said.append(f"{word}={{{', '.join(map(_factor, named))}}}")
    return DialectAttribute("sdy.op_sharding_rule", f"<{' '.join(said)}{', custom' * bool(r.byte())}>")


SDY = Dialect(
    attributes={
        0: _listed("sdy.manual_axes", "{}"),
        1: lambda d, r: DialectAttribute("sdy.mesh_axis", f"{string_text(d.string(r))}={r.signed()}"),
        2: _mesh,
        3: lambda d, r: DialectAttribute("sdy.sub_axis_info", f"({r.signed()}){r.signed()}"),
        4: _axis_ref,
        5: _dimension,
        6: _sharding(False),
        7: lambda d, r: DialectAttribute("sdy.sharding_per_value", f"<[{', '.join(_parts(d, r))}]>"),
        8: _factors,
        9: _listed("sdy.tensor_mapping", "[]"),
        10: _rule,
        11: _listed("sdy.axis_ref_list", "{}"),
        12: lambda d, r: DialectAttribute("sdy.list_of_axis_ref_lists", f"[{', '.join(_parts(d, r))}]"),
        15: _sharding(True),
        17: _sharding(True),
    },
    types={},
)
