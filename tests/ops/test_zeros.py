"""The sign of a zero: that of IEEE 754-2019 for the greater and the lesser, and that of the reference on every engine."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.runtime.engines import has_native

ENGINES = ["numpy", "numexpr", *(["native"] if has_native() else [])]
TYPES = ("f16", "bf16", "f32", "f64")
OPS = ("maximum", "minimum")
START = {"maximum": "-2.0", "minimum": "2.0"}

Text = Callable[[str, str, int], str]


def elementwise(op: str, dtype: str, n: int) -> str:
    t = f"tensor<{n}x{dtype}>"
    return f"func.func @main(%x: {t}, %y: {t}) -> {t} {{\n %0 = stablehlo.{op} %x, %y : {t}\n return %0 : {t} }}"


def with_constant(constant: str, first: bool) -> Text:
    def text(op: str, dtype: str, n: int) -> str:
        t, operands = f"tensor<{n}x{dtype}>", "%c, %x" if first else "%x, %c"
        return (f"func.func @main(%x: {t}, %y: {t}) -> {t} {{\n %c = stablehlo.constant dense<{constant}> : {t}\n"
                f" %0 = stablehlo.{op} {operands} : {t}\n return %0 : {t} }}")

    return text


def reduced(rows: int, axis: int) -> Text:
    def text(op: str, dtype: str, n: int) -> str:
        shape = (rows, n // rows)
        t, left = f"tensor<{n}x{dtype}>", f"tensor<{shape[1 - axis]}x{dtype}>"
        m = f"tensor<{rows}x{n // rows}x{dtype}>"
        return (f"func.func @main(%x: {t}, %y: {t}) -> {left} {{\n %c = stablehlo.constant dense<{START[op]}> : tensor<{dtype}>\n"
                f" %m = stablehlo.reshape %x : ({t}) -> {m}\n"
                f" %0 = stablehlo.reduce(%m init: %c) applies stablehlo.{op} across dimensions = [{axis}] : "
                f"({m}, tensor<{dtype}>) -> {left}\n return %0 : {left} }}")

    return text


def windows(size: int, padding: int) -> Text:
    """Windows of so many elements; with padding, all up to each."""

    def text(op: str, dtype: str, n: int) -> str:
        t, s = f"tensor<{n}x{dtype}>", f"tensor<{dtype}>"
        found = f"tensor<{n if padding else n - size + 1}x{dtype}>"
        wide, low = (n, n - 1) if padding else (size, 0)
        return (f"func.func @main(%x: {t}, %y: {t}) -> {found} {{\n %c = stablehlo.constant dense<{START[op]}> : {s}\n"
                f' %0 = "stablehlo.reduce_window"(%x, %c) ({{\n ^bb0(%a: {s}, %b: {s}):\n  %r = stablehlo.{op} %a, %b : {s}\n'
                f"  stablehlo.return %r : {s}\n }}) {{window_dimensions = array<i64: {wide}>, "
                f"padding = dense<[[{low}, 0]]> : tensor<1x2xi64>}} : ({t}, {s}) -> {found}\n return %0 : {found} }}")

    return text


def scattered(op: str, dtype: str, n: int) -> str:
    """Every element into the place half as far."""
    t, s, i, half = f"tensor<{n}x{dtype}>", f"tensor<{dtype}>", f"tensor<{n}x1xi32>", f"tensor<{n // 2}x{dtype}>"
    return (f"func.func @main(%x: {t}, %y: {t}) -> {half} {{\n %i = stablehlo.iota dim = 0 : {i}\n"
            f" %two = stablehlo.constant dense<2> : {i}\n %at = stablehlo.divide %i, %two : {i}\n"
            f" %into = stablehlo.slice %y [0:{n // 2}] : ({t}) -> {half}\n"
            f' %0 = "stablehlo.scatter"(%into, %at, %x) ({{\n ^bb0(%a: {s}, %b: {s}):\n  %r = stablehlo.{op} %a, %b : {s}\n'
            f"  stablehlo.return %r : {s}\n }}) {{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], "
            f"scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}} : ({half}, {i}, {t}) -> {half}\n return %0 : {half} }}")


def greatest(op: str, values: list[Any]) -> float:
    """By the order of IEEE 754-2019, in which -0.0 is below +0.0 and NaN is everything's end."""
    numbers = [float(v) for v in values]
    if any(map(math.isnan, numbers)):
        return math.nan
    choose = max if op == "maximum" else min
    return choose(numbers, key=lambda v: (v, math.copysign(1, v)))


def groups(name: str, n: int) -> list[list[tuple[str, int]]]:
    """Which elements of x and y each element of the result is the greatest of."""
    x = [("x", k) for k in range(n)]
    if name == "scatter":
        return [[("y", k), x[2 * k], x[2 * k + 1]] for k in range(n // 2)]
    if name == "elementwise":
        return [[e, ("y", k)] for k, e in enumerate(x)]
    if name == "columns":
        return [x[k :: n // 8] for k in range(n // 8)]
    if name == "rows":
        return [x[k : k + n // 8] for k in range(0, n, n // 8)]
    if name == "windows":
        return [x[k : k + 3] for k in range(n - 2)]
    return [x[: k + 1] for k in range(n)] if name == "running" else [[e] for e in x]


CONSTANTS = {f"{first}{c}": with_constant(c, first == "constant ")
             for c in ("0.0", "-0.0", "1.0", "-1.0") for first in ("", "constant ")}
FORMS: dict[str, Text] = {"elementwise": elementwise, "columns": reduced(8, 0), "rows": reduced(8, 1), "windows": windows(3, 0),
                          "running": windows(0, 1), "scatter": scattered, **CONSTANTS}
POINTS = (0.0, -0.0, 1.0, -1.0, math.nan)


def numbers(form: str, n: int) -> tuple[list[float], list[float]]:
    """Every pair, or draws in which most groups have zeros only, or zeros and what is beyond them."""
    if form == "elementwise" or form in CONSTANTS:
        pairs = list(itertools.product(POINTS, repeat=2))
        return [pairs[k % len(pairs)][0] for k in range(n)], [pairs[k % len(pairs)][1] for k in range(n)]
    rng = np.random.default_rng(7)
    return [float(v) for v in rng.choice([-0.0, -0.0, 0.0], n)], [float(v) for v in rng.choice([-0.0, 0.0], n)]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("form", FORMS)
def test_of_two_zeros_the_greater_is_the_positive_one(form: str, op: str, dtype: str, engine: str) -> None:
    for n in (16, 1040):
        x, y = numbers(form, n)
        compiled = dx.compile(dx.loads(FORMS[form](op, dtype, n)), engine=engine)
        held = compiled.inputs[0].type.dtype.np
        found = compiled(np.array(x).astype(held), np.array(y).astype(held))[0].astype(np.float64)
        beside = [float(form.removeprefix("constant "))] if form in CONSTANTS else []
        of = {"x": x, "y": y}
        want = np.array([greatest(op, [of[name][k] for name, k in group] + beside) for group in groups(form, n)])
        np.testing.assert_array_equal(found, want)
        ordered = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(found[ordered]), np.signbit(want[ordered]))
