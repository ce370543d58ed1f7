"""Constants in either syntax: the same bits by both, and what is wrong with one told by its word."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from deepx_graph.literal import Literal
from deepx_graph.text.hlo.literals import literal_text, parse_literal
from deepx_graph.text.stablehlo.literals import dense_text, parse_dense
from deepx_graph.text.xla.hlo_text import AttributeFault
from deepx_graph.types import BF16, C64, F16, F32, F64, I8, U8, DType, TensorType, tensor

BITS = [
    (F16, [0x0000, 0x8000, 0x0001, 0x7C00, 0xFC00, 0x7E00, 0xFE00, 0x7C01, 0x3C00, 0x7BFF]),
    (BF16, [0x0000, 0x8000, 0x0001, 0x7F80, 0xFF80, 0x7FC0, 0xFFC0, 0x7F81, 0x3F80, 0x7F7F]),
    (F32, [0x00000000, 0x80000000, 0x00000001, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x7FC00123, 0x3F800000, 0x7F7FFFFF]),
    (F64, [0, 1 << 63, 1, 0x7FF << 52, 0xFFF << 52, 0xFFF << 51, 0x1FFF << 51, 0xFFF << 51 | 291, 0x3FF << 52, 0x7FEFFFFFFFFFFFFF]),
]  # fmt: skip
"""By IEEE 754: zeros, the least subnormal, infinities, quiet NaNs and one with a payload, 1, the largest number."""


@pytest.mark.parametrize(("dtype", "bits"), BITS, ids=lambda x: getattr(x, "name", ""))
def test_floats_keep_their_bits_in_both(dtype: DType, bits: list[int]) -> None:
    patterns = np.array(bits, f"u{dtype.itemsize}").reshape(5, 2)
    literal = Literal(patterns.view(dtype.np))
    for back in (parse_literal(literal_text(literal), literal.type),
                 parse_dense(dense_text(literal).removeprefix("dense<").removesuffix(">"), literal.type)):
        np.testing.assert_array_equal(back.array.view(patterns.dtype), patterns)


@pytest.mark.parametrize(
    ("parse", "text", "type", "message", "expected"),
    [
        (parse_literal, "1e100", tensor(BF16), "1e100 is out of the range of bf16", "a number of that range"),
        (parse_literal, "{1, 256}", tensor(U8, (2,)), "256 is out of the range of u8", "0 to 255"),
        (parse_dense, "[1, 256]", tensor(I8, (2,)), "256 is out of the range of i8", "-128 to 255"),
        (parse_literal, "{1, 2} nan", tensor(F32, (2,)), "'2  nan' is not an f32 value", "numbers separated by commas"),
        (parse_dense, "[1, 2] 3", tensor(F32, (2,)), "'2  3' is not an f32 value", "numbers separated by commas"),
        (parse_dense, "(1.0, x)", tensor(C64), "'1.0, x' is not a c64 value", "numbers separated by commas"),
        (parse_literal, "{{1, 2}}", tensor(F32, (2,)), "the braces do not have the shape of f32[2]", "nested braces of 2"),
        (parse_dense, "[1, 2]", tensor(F32, (2, 3)), "the brackets do not have the shape of f32[2,3]", "nested brackets of 2x3"),
        (parse_literal, "{1}", tensor(F32, (0,)), "the braces do not have the shape of f32[0]", "nested braces of 0"),
        (parse_dense, '"0x01"', tensor(F32, (2,)), "1 bytes for f32[2]", "8 bytes"),
        (parse_dense, '"0xG1"', tensor(F32, (2,)), "the string is not hexadecimal", "two digits for each byte"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_by_its_word(parse: Callable[[str, TensorType], Literal], text: str, type: TensorType, message: str,
                                           expected: str) -> None:
    with pytest.raises(AttributeFault) as failure:
        parse(text, type)
    assert (failure.value.message, failure.value.expected) == (message, expected)


def test_one_value_stands_for_all_in_mlir_alone() -> None:
    np.testing.assert_array_equal(parse_dense("255", tensor(I8, (2,))).array, [-1, -1])
    with pytest.raises(AttributeFault, match="do not have the shape"):
        parse_literal("1", tensor(I8, (2,)))
