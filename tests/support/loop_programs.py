"""Loop programs of single operations: interpreted, as functions of Python, and as machine code, beside `eval`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph.ir import Builder, Op
from deepx_graph.loops.interpret import interpret, reals
from deepx_graph.loops.lower import lower
from deepx_graph.loops.program import LoopProgram
from deepx_graph.runtime.kernels.scalar_code import elements, written
from tests.support.laws import alone, constants


def agrees(op: Op, arrays: Sequence[Any], attrs: dict[str, Any], *, interpreted: bool = True) -> None:
    """Asserts that the interpreted loop program and its machine code give what `eval` gives, up to rounding, and that it gives the
    same in Python."""
    from deepx_graph.runtime.native.loop_program.kernel import build

    given = [np.asarray(a) for a in arrays]
    b = Builder()
    function = alone(b(op, *constants(b, given), **attrs))
    node = function.results[0].inputs[0] if len(function.results) > 1 else function.results[0]
    assert op.eval is not None
    found = op.eval(given, *node.attrs)
    expected = [reals(w) for w in (found if isinstance(found, tuple) else (found,))]
    if interpreted:
        _equal(interpret(lower(function), given), expected)
        same_in_python(lower(function), given)
    _equal([reals(np.asarray(r)) for r in build(function, 2)(given)], expected)


def same_in_python(program: LoopProgram, arrays: Sequence[Any]) -> None:
    """Asserts that the function of Python of a program gives the bits that the interpreter gives, whichever NaN it is."""
    wanted, function = interpret(program, arrays), written(program)
    with np.errstate(all="ignore"):
        found = function(*[elements(reals(x), a.dtype) for x, a in zip(arrays, program.arguments, strict=True)])
    for values, want, result in zip(found, wanted, program.results, strict=True):
        got, flat = np.zeros(result.size, result.dtype.np), want.reshape(-1)
        got[...] = values
        assert got.dtype == flat.dtype
        if result.dtype.is_float:
            real = flat == flat
            np.testing.assert_array_equal(np.signbit(got[real]), np.signbit(flat[real]))
            got, flat = got.astype(np.float64), flat.astype(np.float64)
        np.testing.assert_array_equal(got, flat)


def _equal(found: Sequence[Any], expected: Sequence[Any]) -> None:
    for got, want in zip(found, expected, strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        if want.dtype.kind in "iub":
            np.testing.assert_array_equal(got, want)
        else:
            bound = 1e-11 if want.dtype.itemsize == 8 else 2e-5 if want.dtype.itemsize == 4 else 2e-2
            np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), rtol=bound, atol=bound)
