"""The words of ONNX's text syntax: types, and texts in quotes."""

from __future__ import annotations

import re

ELEMENT_TYPES = {
    "float": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "string": 8, "bool": 9, "float16": 10,
    "double": 11, "uint32": 12, "uint64": 13, "complex64": 14, "complex128": 15, "bfloat16": 16, "float8e4m3fn": 17,
    "float8e4m3fnuz": 18, "float8e5m2": 19, "float8e5m2fnuz": 20, "uint4": 21, "int4": 22, "float4e2m1": 23, "float8e8m0": 24,
    "uint2": 25, "int2": 26, "float6e2m3": 27, "float6e3m2": 28,
}  # fmt: skip
"""The number of each element type."""

FIELDS = {
    **dict.fromkeys(ELEMENT_TYPES.values(), ("int32s", "i")), 1: ("floats", "f"), 14: ("floats", "f"), 7: ("int64s", "q"),
    11: ("doubles", "d"), 15: ("doubles", "d"), 12: ("uint64s", "Q"), 13: ("uint64s", "Q"), 8: ("strings", "s"),
}  # fmt: skip
"""The field of a tensor in which its elements stand, by their type, and the form of a number there; `s` for texts.

Narrow floats stand as their bits, several elements of less than a byte as one.
"""

ATTRIBUTE_TYPES = {
    "float": 1, "int": 2, "string": 3, "tensor": 4, "graph": 5, "floats": 6, "ints": 7, "strings": 8, "tensors": 9, "graphs": 10,
    "sparse_tensor": 11, "sparse_tensors": 12, "type_proto": 13, "type_protos": 14,
}  # fmt: skip
"""The number of each type of attributes."""


def unescaped(text: str) -> str:
    """What stands between quotes, each backslash before the character that is meant."""
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


def quoted(text: str) -> str:
    """The text in quotes."""
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'
