"""Products in batches that lie along memory as sums: the values of einsum, whatever the order of rows, terms and batch."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from deepx_graph.ir import Builder, Function
from deepx_graph.ops import transpose
from deepx_graph.ops.contract.linear import dot_general
from deepx_graph.ops.interpret import evaluate
from deepx_graph.rewrite.sums_of_products import MOST_ROWS, as_sums
from deepx_graph.types import F64, TensorType

SIZES = {"b": 7, "c": 2, "i": 3, "j": 4, "k": 5, "n": 2 * MOST_ROWS, "m": 2 * MOST_ROWS}


def einsum(left: str, right: str, result: str) -> Function:
    """The product of two operands, batched along what both and the result have, and its transpose where that is another order."""
    b, names = Builder(), (left, right)
    params = tuple(b.param(k, TensorType(F64, tuple(SIZES[a] for a in axes))) for k, axes in enumerate(names))
    batch = [a for a in left if a in right and a in result]
    terms = [a for a in left if a in right and a not in result]
    found = b(dot_general, *params, **{f"{side}_{kind}_dimensions": tuple(map(axes.index, some)) for side, axes in zip(
        ("lhs", "rhs"), names, strict=True) for kind, some in (("batching", batch), ("contracting", terms))})
    made = [*batch, *(a for axes in names for a in axes if a not in (*batch, *terms))]
    if made != list(result):
        found = b(transpose, found, permutation=tuple(map(made.index, result)))
    return Function("main", params, (found,))


def as_sums_always(function: Function) -> Function:
    return as_sums(function, lambda _: True)


ORDERS: list[Any] = [("".join(left), "".join(right), f"{''.join(rest)}b") for left in itertools.permutations("ikb") for right in
                     itertools.permutations("kjb") for rest in itertools.permutations("ij") if left[-1] == right[-1] == "b"]
MORE: list[Any] = [("kb", "kjb", "jb"), ("kb", "kjb", "bj"), ("ikb", "kb", "bi"), ("kcb", "kjcb", "cjb"), ("ikcb", "ckjb", "icjb"),
                   ("kb", "kb", "b"), ("ib", "jb", "ijb"), ("inkb", "njkb", "ijb")]


@pytest.mark.parametrize(("left", "right", "result"), [*ORDERS, *MORE], ids=str)
def test_sums_are_what_einsum_gives(left: str, right: str, result: str) -> None:
    sums, rng = as_sums_always(einsum(left, right, result)), np.random.default_rng(0)
    assert not any(n.op is dot_general for n in sums.nodes)
    x, y = (rng.standard_normal([SIZES[a] for a in axes]) for axes in (left, right))
    np.testing.assert_allclose(evaluate(sums, [x, y])[0], np.einsum(f"{left},{right}->{result}", x, y), rtol=1e-12)


@pytest.mark.parametrize(("left", "right", "result"), [
    ("ikb", "kjb", "bij"),  # each result is far from the next of the batch
    ("bik", "kjb", "ijb"), ("ibk", "kbj", "ijb"),  # operands have rows or terms side by side
    ("nkb", "kmb", "nmb"),  # elements are read by many rows
])  # fmt: skip
def test_what_is_better_as_matrices_stays_a_product(left: str, right: str, result: str) -> None:
    function = einsum(left, right, result)
    assert as_sums_always(function) is function
