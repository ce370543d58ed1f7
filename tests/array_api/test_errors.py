"""Whatever arrays a function of `dx.xp` is given, it gives arrays or one of the errors that this library documents."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from tests.support.array_functions import FUNCTIONS

xp = dx.xp
SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (3,), (2, 3), (3, 3), (4, 5), (2, 1, 7))
"""No two of most of them fit each other."""
AXES: tuple[Any, ...] = (0, -1, 5, (0, 0), (0, 9))


def calls(function: Callable[..., Any]) -> list[tuple[list[str], dict[str, Any]]]:
    """Types of arguments, and options: every array shape, alone and in pairs, and axes that there may not be."""
    parameters = inspect.signature(function).parameters
    needed = [p for p in parameters.values() if p.default is p.empty and p.kind is p.POSITIONAL_ONLY] or [None]
    dtypes = ("f64", "i64", "bool")
    found = []
    for k, shapes in enumerate(itertools.product(SHAPES, repeat=min(len(needed), 2))):
        types = [f"{dtypes[k % 3]}[{','.join(map(str, s))}]" for s in shapes] + ["f64[3]"] * (len(needed) - len(shapes))
        found.append((types, {"axis": AXES[k % len(AXES)]} if "axis" in parameters else {}))
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arrays_of_any_shape_give_arrays_or_documented_errors(name: str) -> None:
    function = FUNCTIONS[name]
    for types, options in calls(function):
        try:
            dx.trace(lambda *xs: function(*xs, **options), *types)  # noqa: B023
        except (dx.VerifyError, dx.UsageError):
            continue


@pytest.mark.parametrize(("function", "error"), [
    (lambda x: xp.reshape(x, (5,)), ValueError), (lambda x: x @ x, ValueError), (lambda x: xp.sum(x, axis=4), IndexError),
    (lambda x: x[7], IndexError), (lambda x: x.mT @ xp.asarray(np.ones((2, 2), "u8")).astype("i1") @ "a", TypeError),
    (lambda x: xp.asarray(np.ones(2, "i8")) + xp.asarray(np.ones(2, "u8")), TypeError),
])  # fmt: skip
def test_errors_are_those_of_numpy_too_and_name_the_line(function: Callable[..., Any], error: type[Exception]) -> None:
    x = xp.asarray(np.ones((2, 3)))
    for call in (lambda: function(x), lambda: dx.trace(function, x)):
        with pytest.raises(error, match=r"test_errors.py:\d+: |unsupported operand"):
            call()


def test_what_a_traced_function_raises_itself_passes_through() -> None:
    def refuse(x: Any) -> Any:
        raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine$") as caught:
        dx.trace(refuse, "f32[2]")
    assert type(caught.value) is ValueError
