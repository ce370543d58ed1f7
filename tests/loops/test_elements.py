"""The law of loop programs: what a declaration says of elements, interpreted, is what its `eval` gives."""

from __future__ import annotations

import numpy as np
import pytest

from deepx_graph.ir import Builder, Op
from deepx_graph.loops import NotExpressible
from deepx_graph.loops.interpret import interpret, reals
from deepx_graph.loops.lower import lower
from deepx_graph.types import TensorType
from tests.support.laws import EXPRESSIBLE, alone, constants, samples


@pytest.mark.parametrize("op", EXPRESSIBLE, ids=lambda op: op.name)
def test_the_interpreted_element_is_what_eval_gives(op: Op) -> None:
    """Over the samples of the declaration, or arrays of each dtype that it takes."""
    tried = 0
    for arrays, attrs in samples(op):
        b = Builder()
        node = b(op, *constants(b, arrays), **attrs)
        if not all(isinstance(i.type, TensorType) for i in node.inputs):
            continue
        try:
            program = lower(alone(node))
        except NotExpressible:
            continue
        tried += 1
        assert op.eval is not None
        expected = op.eval([np.asarray(a) for a in arrays], *node.attrs)
        found = interpret(program, [np.asarray(a) for a in arrays])
        for got, want in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
            want = reals(want)
            assert got.dtype == want.dtype and got.shape == want.shape
            if want.dtype.kind in "iub":
                np.testing.assert_array_equal(got, want)
            else:
                bound = 1e-12 if want.dtype.itemsize == 8 else 1e-5 if want.dtype.itemsize == 4 else 1e-2
                np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), rtol=bound, atol=bound)
    if not tried:
        pytest.skip("no sample has a loop program")
