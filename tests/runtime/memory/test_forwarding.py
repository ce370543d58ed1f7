"""Results in the memory of operands and of what is given away; views that copy nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.analysis.schedule import schedule
from deepx_graph.errors import LimitError
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ops import add, broadcast_in_dim, convert, dot_general, exponential, reduction, reshape, tanh, transpose
from deepx_graph.runtime.engines import has_native
from deepx_graph.runtime.memory.assignment import at_peak, plan
from deepx_graph.types import BF16, F32, tensor

N = 512
SQUARE = tensor(F32, (N, N))
BYTES = 4 * N * N
ENGINES = ["numpy", "numexpr",
           pytest.param("native", marks=pytest.mark.skipif(not has_native(), reason="llvmlite is not installed"))]


def product(b: Builder, x: Node, y: Node) -> Node:
    return b(dot_general, x, y, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(0,))


def biased(b: Builder, x: Node, bias: Node) -> Node:
    return b(tanh, b(add, x, b(broadcast_in_dim, bias, shape=(N, N), broadcast_dimensions=(1,))))


def layers(x: Node, w: Node, v: Node, bias: Node) -> Sequence[Node]:
    """Two products, each with a bias and tanh."""
    b = Builder()
    return [biased(b, product(b, biased(b, product(b, x, w), bias), v), bias)]


def function(body: object) -> Function:
    types = [("x", SQUARE), ("w", SQUARE), ("v", SQUARE), ("bias", tensor(F32, (N,)))]
    return Builder().function("main", types, body)  # type: ignore[arg-type]


def arguments() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.random((N, N), dtype=np.float32) / N for _ in range(3)] + [rng.random(N, dtype=np.float32)]


def nothing(node: Node, loose: frozenset[int]) -> int:
    """The scratch of kernels that have no memory of their own."""
    return 0


def test_views_in_the_same_order_copy_nothing() -> None:
    """Reshapes, and a transpose that moves an axis of one element, are other shapes of a buffer."""
    def body(x: Node, w: Node, v: Node, bias: Node) -> Sequence[Node]:
        b = Builder()
        p = b(reshape, product(b, x, w), shape=(N, 1, N))
        q = b(reshape, b(transpose, p, permutation=(1, 0, 2)), shape=(N, N))
        return [reduction(b, add, product(b, q, v), (0, 1))]

    found = plan(schedule(function(body)), scratch=nothing)
    assert found.peak_bytes == 2 * BYTES + 64 + 4, "a cache line between arrays of pages"

    def turned(x: Node, w: Node, v: Node, bias: Node) -> Sequence[Node]:
        b = Builder()
        p = b(reshape, product(b, x, w), shape=(N, 2, N // 2))
        q = b(reshape, b(transpose, p, permutation=(1, 0, 2)), shape=(N, N))
        return [reduction(b, add, product(b, q, v), (0, 1))]

    found = plan(schedule(function(turned)), scratch=nothing)
    assert found.peak_bytes == 3 * BYTES + 64, "this reshape copies, and the copy ends before the sum"


@pytest.mark.parametrize("engine", ENGINES)
def test_values_are_right_call_after_call(engine: str) -> None:
    f = dx.compile(Module((function(layers),)), engine=engine)
    args = arguments()
    x, w, v, bias = args
    wanted = np.tanh(np.tanh(x @ w + bias) @ v + bias)
    kept = [a.copy() for a in args]
    results = [f(*args)[0] for _ in range(3)]
    for r in results:
        np.testing.assert_allclose(r, wanted, rtol=1e-5, atol=1e-6)
    assert not any(np.may_share_memory(a, b) for k, a in enumerate(results) for b in (*results[:k], *args))
    for a, b in zip(args, kept, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.skipif(not has_native(), reason="llvmlite is not installed")
def test_layers_need_no_more_than_the_larger_pair() -> None:
    """Each product and what follows it share one array; the first, which is within the kernel, is an operand of the second."""
    f = dx.compile(Module((function(layers),)), engine="native")
    assert f.plan.peak_bytes == BYTES + f.plan.scratch_bytes, "beside them packed operands"
    assert f.plan.scratch_bytes < 3 * BYTES


@pytest.mark.skipif(not has_native(), reason="llvmlite is not installed")
def test_a_result_of_narrow_elements_holds_wide_ones_before() -> None:
    """A product of f32 lies in a result of bf16 until that is made; but in no argument, which need not begin where wide ones do."""
    b = Builder()
    x, w = b.param(0, tensor(F32, (N, N))), b.param(1, tensor(F32, (N, 2 * N)))
    y = b.param(2, tensor(BF16, (N, 2 * N)))
    wide = product(b, product(b, b(exponential, x), x), w)
    f = dx.compile(Module((Function("main", (x, w, y), (b(add, b(convert, wide, dtype=BF16), y),)),)), engine="native")
    rng = np.random.default_rng(0)
    a, v = (rng.standard_normal((N, k)).astype("f4") / N for k in (N, 2 * N))
    raw = np.zeros(4 * N * N + 2, np.uint8)
    for given in ([], [f.inputs[2].name]):
        apart = raw[2:].view(BF16.np).reshape(N, 2 * N)  # the second byte pair of a word
        apart[...] = 1
        (found,) = f(a, v, apart, donate=given)
        np.testing.assert_allclose(found.astype("f4"), (np.exp(a) @ a @ v).astype(BF16.np).astype("f4") + 1, rtol=0.02)
    assert f.plan.peak_bytes - f.plan.scratch_bytes == BYTES
    assert f.plan.scratch_bytes < 3.1 * BYTES


@pytest.mark.skipif(not has_native(), reason="llvmlite is not installed")
def test_loops_that_follow_one_another_have_one_spare_array() -> None:
    """A product is not written over what it reads, so a loop of them goes between two arrays; the second of those of the next loop
    is the same one."""
    array = f"tensor<{N}x{N}xf32>"

    def loop(name: str, start: str) -> str:
        return f"""  %{name}:2 = stablehlo.while(%i{name} = %zero, %x{name} = {start}) : tensor<i32>, {array}
    cond {{
      %c{name} = stablehlo.compare LT, %i{name}, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c{name} : tensor<i1>
    }} do {{
      %n{name} = stablehlo.add %i{name}, %one : tensor<i32>
      %p{name} = stablehlo.dot_general %x{name}, %w, contracting_dims = [1] x [0] : ({array}, {array}) -> {array}
      stablehlo.return %n{name}, %p{name} : tensor<i32>, {array}
    }}
"""

    numbers = {"zero": 0, "one": 1, "three": 3}.items()
    constants = "".join(f"  %{name} = stablehlo.constant dense<{k}> : tensor<i32>\n" for name, k in numbers)
    text = (f"func.func @main(%x: {array}, %w: {array}) -> {array} {{\n{constants}{loop('a', '%x')}"
            f"  %t = stablehlo.tanh %a#1 : {array}\n{loop('b', '%t')}  return %b#1 : {array}\n}}")
    f = dx.compile(dx.loads(text), engine="native", threads=1)
    x, w = arguments()[:2]
    wanted = np.tanh(x @ w @ w @ w) @ w @ w @ w
    np.testing.assert_allclose(f(x, w)[0], wanted, rtol=1e-4, atol=1e-6)
    assert f.plan.peak_bytes < 2.5 * BYTES


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_an_input_given_away_goes_before_an_operand(engine: str) -> None:
    def body(x: Node, w: Node, v: Node, bias: Node) -> Sequence[Node]:
        b = Builder()
        return [b(add, b(exponential, product(b, x, w)), v)]

    f = dx.compile(Module((function(body),)), engine=engine)
    args = arguments()
    wanted = np.exp(args[0] @ args[1]) + args[2]
    for given in ([], ["v"], []):
        mine = [a.copy() for a in args]
        np.testing.assert_allclose(f(*mine, donate=given)[0], wanted, rtol=1e-5)
        if not given:
            np.testing.assert_array_equal(mine[2], args[2])


def test_a_bound_on_memory_names_the_largest_values() -> None:
    module = Module((function(layers),))
    with pytest.raises(LimitError) as caught:
        dx.compile(module, engine="numpy", max_bytes=BYTES, optimize=False)
    said = str(caught.value)
    assert "the largest at the peak are" in said and f"f32[{N},{N}]" in said and "raise --max-bytes" in said
    assert "needs " in said
    dx.compile(module, engine="numpy", max_bytes=1 << 30, optimize=False)


def test_values_at_the_peak_by_hand() -> None:
    """x @ w and (x @ w) @ v are alive at once; of the third product only one of them is left."""
    def body(x: Node, w: Node, v: Node, bias: Node) -> Sequence[Node]:
        b = Builder()
        p = product(b, x, w)
        q = product(b, p, v)
        return [reduction(b, add, b(add, q, p), (0, 1))]

    found = at_peak(plan(schedule(function(body)), writes=lambda n: False, scratch=nothing))
    assert [p.node.op.name for p in found] == ["dot_general", "dot_general", "add"]


@pytest.fixture(autouse=True)
def _no_memory_left() -> Iterator[None]:
    yield
    dx.memory(free=True)
