"""Every operator of Relay that is known, and every attribute that its rule asks for, against numpy.

The laws at the end are of the table itself: an attribute that a rule no longer asked for, took from elsewhere or gave another
default would be seen by some row.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import DeepxGraphError
from deepx_graph.ir import Builder, Module
from deepx_graph.ops import add, opaque
from deepx_graph.text.relay.reader.infer import _result as types_of_calls
from deepx_graph.text.relay.rules import RULES
from deepx_graph.text.relay.rules.context import Context
from deepx_graph.types import I32, tensor
from tests.support.attribute_laws import AttributeLaw
from tests.support.relay_operators import EVERY_OPERATOR, KEPT, OPERATORS, Row, program

ROWS: list[Row] = [*OPERATORS, *EVERY_OPERATOR]
WITHOUT_ROWS = {"dyn.reshape": "test_sizes_may_be_an_operand", "memory.kill": "gives nothing"}


def results(text: str, inputs: tuple[np.ndarray[Any, Any], ...]) -> list[np.ndarray[Any, Any]]:
    return list(dx.compile(dx.loads(text, "relay"), engine="numpy", optimize=False)(*inputs))


def check(row: Row) -> None:
    expression, inputs, want = row
    got, *_ = results(program(expression, inputs), inputs)
    assert (got.dtype, got.shape) == (np.asarray(want).dtype, np.shape(want))
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("row", EVERY_OPERATOR, ids=[e for e, _, _ in EVERY_OPERATOR])
def test_operators_give_what_numpy_gives(row: Row) -> None:
    check(row)


def check_kept(expression: str, inputs: tuple[np.ndarray[Any, Any], ...]) -> None:
    assert dx.loads(program(expression, inputs), "relay").entry.results[0].op is opaque


@pytest.mark.parametrize(("expression", "inputs"), KEPT, ids=[e for e, _ in KEPT])
def test_forms_that_are_not_known_are_kept(expression: str, inputs: tuple[np.ndarray[Any, Any], ...]) -> None:
    check_kept(expression, inputs)


@pytest.mark.parametrize(("call", "want"), [
    ("dyn.reshape(%x, {})", np.arange(6).reshape(3, 2)), ("reshape(%x, {})", np.arange(6).reshape(3, 2)),
    ("zeros({})", np.zeros((3, 2))), ("ones({})", np.ones((3, 2))), ("full(7f, {})", np.full((3, 2), 7)),
    ("broadcast_to(sum(%x, axis=[1]), {})", np.broadcast_to([3, 12], (3, 2))),
    ('collapse_sum_to(ones(shape=[4, 3, 2], dtype="float32"), {})', np.full((3, 2), 4)),
])  # fmt: skip
def test_sizes_may_be_an_operand(call: str, want: np.ndarray[Any, Any]) -> None:
    """A constant of the metadata, here taken from a text that has one."""
    sizes = np.array([3, 2], np.int32)
    b = Builder()
    other = Module((b.function("main", [("k", tensor(I32, (2,)))], lambda k: [b(add, k, b.constant(sizes))]),))
    metadata = dx.dumps(other, "relay").partition("#[metadata]")[2]
    call = call.format("meta[relay.Constant][0]" + (', dtype="float32"' if call.startswith(("zeros", "ones")) else ""))
    text = f'#[version = "0.0.5"]\ndef @main(%x: Tensor[(2, 3), float32]) {{ {call} }}\n#[metadata]{metadata}'
    (got,) = results(text, (np.arange(6, dtype=np.float32).reshape(2, 3),))
    np.testing.assert_array_equal(got, want.astype(np.float32))


# --- the table has them all ------------------------------------------------------------------------------------------


def test_every_operator_has_a_row() -> None:
    called = {name for expression, _, _ in ROWS for name in re.findall(r"([\w.]+)\(", expression)}
    assert RULES.keys() - called == WITHOUT_ROWS.keys()


def passes(test: Callable[..., None], *row: Any) -> bool:
    """Whether a row gives what it should."""
    try:
        test(*row)
    except (AssertionError, DeepxGraphError):
        return False
    return True


LAW = AttributeLaw(Context, "attr", [*(partial(passes, check, r) for r in ROWS), *(partial(passes, check_kept, *k) for k in KEPT)],
                   types_of_calls.cache_clear)


def test_every_attribute_matters() -> None:
    assert LAW.without_effect() == []


def test_every_default_matters() -> None:
    assert LAW.defaults_without_effect() == []
