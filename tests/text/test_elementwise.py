"""Every elementwise operation in every written language: it prints in each element type that it takes, and reads back as the same.

A language that lacks an operation gets its decomposition; `REFUSED` is what is left, and may only shrink.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import DeepxGraphError, Source, Span
from deepx_graph.ir import Builder, Module, Node, Op, Origin
from deepx_graph.ops import OPS
from deepx_graph.types import BF16, BOOL, F32, F64, I32, DType, type_of_array
from tests.support.reference import evaluate

LANGUAGES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in ("hlo", "stablehlo", "relay")}, "deepx": ("deepx", {}),
    "deepx seed": ("deepx", {"dialect": "seed"}), "deepx function": ("deepx", {"dialect": "function"}),
}  # fmt: skip
"""The languages with operations of their own; sea and ANF print ours."""

DTYPES = {d.name: d for d in (F32, F64, BF16, I32, BOOL)}
Array = np.ndarray[Any, Any]
Use = tuple[str, Op, dict[str, Any], list[Array]]

ATTRIBUTES: dict[str, list[dict[str, Any]]] = {
    "compare": [{"direction": d} for d in ("EQ", "NE", "LT", "LE", "GT", "GE")],
    "convert": [{"dtype": d} for d in DTYPES.values()],
    "reduce_precision": [{"exponent_bits": 5, "mantissa_bits": 10}],
}
"""Attributes of the operations that need some."""

WITHOUT_INFINITIES = {"zeta", "polygamma"}
"""Series whose terms are infinite where their sum is not."""

NEAR_ROOTS = {"lgamma", "digamma"}
"""Sums that are exact to rounding of their terms, which is more than rounding near a root."""

_COMPLEX = {"complex", "real", "imag"}
_BITS = {"popcnt", "count_leading_zeros", "next_after", "reduce_precision"}
_DEEPX = {*_COMPLEX, *_BITS, "shift_left", "shift_right_logical", "shift_right_arithmetic", "mulhi"}
_OF_INTEGERS = {"and", "or", "xor"}
"""What deepx has of bools only."""

REFUSED: dict[str, set[str]] = {"relay": _COMPLEX | _BITS, **{name: _DEEPX for name in LANGUAGES if name.startswith("deepx")}}
"""What languages have no words for, in any element type."""


def is_refused(language: str, op: Op, dtype: DType) -> bool:
    """Whether the language has no words for the operation."""
    bitwise = language.startswith("deepx") and dtype is I32 and op.name in _OF_INTEGERS
    return bitwise or op.name in REFUSED.get(language, ())


def values(op: Op, dtype: DType) -> list[Array]:
    """Pairs of special values, and some of the operation's domain."""
    rng = np.random.default_rng(0)
    if dtype is BOOL:
        return [np.array([0, 1, 0, 1], np.bool_), np.array([0, 0, 1, 1], np.bool_)]
    if dtype is I32:
        edges = np.array([0, 1, -1, 2, 7, -7, 31, 33, 2**31 - 1, -(2**31)], "i4")
        return [np.repeat(edges, 10), np.tile(edges, 10)]
    edges = np.array([] if op.name in WITHOUT_INFINITIES else [0, -0.0, 1, -1, 0.5, 2.5, 1e-9, -1e-3, np.inf, -np.inf, np.nan])
    inside = rng.uniform(*op.domain, (2, 21))
    return [np.concatenate(part).astype(dtype.np) for part in
            ((np.repeat(edges, edges.size), inside[0]), (np.tile(edges, edges.size), inside[1]))]


def operands(op: Op, dtype: DType) -> list[Array]:
    """Operands of the kinds that the operation takes."""
    x, y = values(op, dtype)
    if op.name == "select":
        return [np.arange(x.size) % 2 == 0, x, y]
    if op.name == "clamp":
        with np.errstate(invalid="ignore"):
            return [np.minimum(x, y), x[::-1].copy(), np.maximum(x, y)]
    return [x, y][: len(op.operands)]


def uses(dtype: DType) -> Iterator[Use]:
    """Each elementwise operation that takes the element type, with its attributes and operands."""
    for op in OPS.values():
        for k, attrs in enumerate(ATTRIBUTES.get(op.name, [{}]) if op.elementwise else ()):
            arrays = operands(op, dtype)
            try:
                Builder()(op, *(Builder().param(j, type_of_array(a)) for j, a in enumerate(arrays)), **attrs)
            except DeepxGraphError:
                continue
            yield f"{op.name}_{k}", op, attrs, arrays


def program(found: list[Use]) -> tuple[Module, list[Array]]:
    """One program of all these uses, each with inputs of its own and a place in a source."""
    b = Builder()
    params: list[Node] = []
    results = []
    for name, op, attrs, arrays in found:
        b.origin = Origin("", (Span(Source("uses", name), 0, len(name)),))
        inputs = [b.param(len(params) + j, type_of_array(a), f"{name}_x{j}") for j, a in enumerate(arrays)]
        params += inputs
        b.origin = Origin(f"{name}_y", b.origin.spans)
        results.append(b(op, *inputs, **attrs))
    function = dx.Function("main", tuple(params), tuple(results), tuple(f"{name}_y" for name, *_ in found))
    return Module((function,)), [a for *_, arrays in found for a in arrays]


@cache
def wanted(language: str, dtype: str) -> tuple[Module, list[Array], list[Op], list[Array]]:
    """The program of all that the language has in the element type, its inputs, operations and values."""
    found = [u for u in uses(DTYPES[dtype]) if not is_refused(language, u[1], DTYPES[dtype])]
    module, arrays = program(found)
    return module, arrays, [op for _, op, *_ in found], [np.asarray(v) for v in evaluate(module, arrays)]


def agree(op: Op, got: Array, want: Array) -> bool:
    """Equal up to rounding: the same NaN and infinities, zeros of the same sign."""
    if got.dtype != want.dtype or got.dtype.kind in "biu":
        return got.dtype == want.dtype and bool(np.array_equal(got, want))
    if got.dtype.kind == "c":
        return agree(op, got.real, want.real) and agree(op, got.imag, want.imag)
    eps = {"float32": 2.0**-23, "float64": 2.0**-52}.get(want.dtype.name, 2.0**-11)
    g, w = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(all="ignore"):
        near = np.isclose(g, w, rtol=16 * eps, atol=16 * eps if op.name in NEAR_ROOTS else 0, equal_nan=True)
    return bool(np.all(near & ((np.signbit(g) == np.signbit(w)) | (w != 0))))


@pytest.mark.parametrize(("language", "dtype"), [(n, d) for n in LANGUAGES for d in DTYPES if " " not in n or d == "f32"])
def test_every_elementwise_operation_reads_back_as_the_same_values(language: str, dtype: str) -> None:
    module, arrays, used, values = wanted(language.partition(" ")[0], dtype)
    format, options = LANGUAGES[language]
    again = dx.loads(dx.dumps(module, format, **options), format)
    got = evaluate(again, arrays)
    got = got[0] if isinstance(got[0], tuple) else got
    assert len(values) == len(got)
    assert [op.name for op, g, v in zip(used, got, values, strict=True) if not agree(op, np.asarray(g), v)] == []


@pytest.mark.parametrize("language", ["relay", "deepx"])
def test_what_a_language_cannot_express_is_refused_by_name_and_location(language: str) -> None:
    format, options = LANGUAGES[language]
    refused = set()
    for dtype in DTYPES.values():
        for use in uses(dtype):
            if is_refused(language, use[1], dtype):
                with pytest.raises(DeepxGraphError, match=use[1].name) as caught:
                    dx.dumps(program([use])[0], format, **options)
                assert {d.span.text for d in caught.value.diagnostics if d.span} == {use[0]}
                refused.add(use[1].name)
    assert refused >= REFUSED[language], "the table may only shrink"
