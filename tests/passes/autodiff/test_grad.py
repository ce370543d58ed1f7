"""Gradients: against finite differences and hand-written formulas, of gradients, with effects, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from deepx_graph.errors import Source, Span, UsageError, VerifyError
from deepx_graph.ir import Builder, Function, Module, Node, Origin
from deepx_graph.ir.structure import CALL, PROJ
from deepx_graph.ops import (
    add,
    broadcast_in_dim,
    compare,
    concatenate,
    convert,
    divide,
    dot_general,
    exponential,
    load,
    log,
    logistic,
    matmul,
    maximum,
    multiply,
    opaque,
    print_,
    reduction,
    reshape,
    select,
    sine,
    slice_,
    stop_gradient,
    subtract,
    tanh,
    transpose,
)
from deepx_graph.ops.host.host import Host
from deepx_graph.passes.autodiff.grad import Grad, grad
from deepx_graph.passes.autodiff.jvp import hvp
from deepx_graph.passes.fusion.fuse import Fuse
from deepx_graph.types import F32, F64, I32, STATE, FunctionType, TensorType, TupleType, tensor
from deepx_graph.verify import verify
from tests.support.grad_programs import Body, M, N, S, V, finite_difference, module, sampled
from tests.support.reference import evaluate


def row_sum(b: Builder, x: Node) -> Node:
    return b(broadcast_in_dim, reduction(b, add, x, (1,)), shape=(2, 3), broadcast_dimensions=(0,))


def softmax(b: Builder, x: Node) -> Node:
    top = b(broadcast_in_dim, reduction(b, maximum, x, (1,)), shape=(2, 3), broadcast_dimensions=(0,))
    e = b(exponential, b(subtract, x, top))
    return b(divide, e, row_sum(b, e))


def mlp(b: Builder, x: Node, w: Node, c: Node) -> list[Node]:
    h = b(tanh, b(add, matmul(b, x, w), b(broadcast_in_dim, c, shape=(2, 4), broadcast_dimensions=(1,))))
    return [reduction(b, add, b(multiply, h, h), (0, 1))]


PROGRAMS: dict[str, tuple[Body, tuple[TensorType, ...]]] = {
    "mlp": (mlp, (M, N, tensor(F64, (4,)))),
    "softmax": (lambda b, x: [softmax(b, x)], (M,)),
    "cross entropy": (lambda b, x, y: [reduction(b, add, b(multiply, y, b(log, softmax(b, x))), (0, 1))], (M, M)),
    "scalars stand for all": (lambda b, x, s: [b(multiply, b(add, x, s), b(sine, s))], (M, S)),
    "shared": (lambda b, x: [b(add, b(multiply, x, x), b(sine, b(multiply, x, x))), b(logistic, x)], (M,)),
    "shapes": (lambda b, x, v: [b(concatenate, b(reshape, b(transpose, x, permutation=(1, 0)), shape=(6,)),
                                  b(slice_, v, start_indices=(0,), limit_indices=(3,), strides=(2,)), dimension=0)], (M, V)),
    "select": (lambda b, x, y: [b(select, b(compare, x, y, direction="LT"), b(multiply, x, y), b(sine, x))], (M, M)),
    "same result twice": (lambda b, x: [b(sine, x)] * 2, (M,)),
    "an input as result": (lambda b, x: [x, b(exponential, x)], (M,)),
}  # fmt: skip


@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_finite_differences(name: str, fused: bool) -> None:
    body, types = PROGRAMS[name]
    m = module(body, *types)
    g = grad(Fuse().run(m) if fused else m)
    verify(g)
    args, cts = sampled(types), sampled(m.entry.type.results, seed=1)
    found = evaluate(g, [*args, *cts])
    assert [f.shape for f in found] == [a.shape for a in args]
    for k, value in enumerate(found):
        np.testing.assert_allclose(value, finite_difference(m, args, cts, k), rtol=2e-6, atol=2e-7)


def test_hand_written_formulas() -> None:
    m = module(lambda b, x, w: [matmul(b, x, w), b(exponential, x)], M, N)
    x, w, c0, c1 = sampled((M, N, tensor(F64, (2, 4)), M))
    gx, gw = evaluate(grad(m), [x, w, c0, c1])
    np.testing.assert_allclose(gx, c0 @ w.T + c1 * np.exp(x), rtol=1e-12)
    np.testing.assert_allclose(gw, x.T @ c0, rtol=1e-12)


def test_signature_names_order_and_integers() -> None:
    m = module(lambda b, x, i, y: [b(multiply, x, y), b(add, i, i)], M, tensor(I32), M, names=("x", "i", "y"),
               results=("out", "count"))  # fmt: skip
    f = grad(m).entry
    assert [p.name for p in f.params] == ["x", "i", "y", "ct_out"]
    assert [p.attr("index") for p in f.params] == [0, 1, 2, 3]
    assert f.result_names == ("grad_x", "grad_y")
    assert grad(m, ("y", "x")).entry.result_names == ("grad_y", "grad_x")
    assert Grad(("y",)).run(m).entry.result_names == ("grad_y",)


def test_a_cotangent_name_in_use_gets_another_one() -> None:
    m = module(lambda b, x, y: [b(multiply, x, y)], M, M, names=("x", "ct_out"), results=("out",))
    assert [p.name for p in grad(m).entry.params] == ["x", "ct_out", "ct_out_"]


@pytest.mark.parametrize("dims", [(2, 3), ("?1", 3), None], ids=str)
def test_inputs_that_reach_no_output_have_a_zero_gradient(dims: Any) -> None:
    m = module(lambda b, x, y: [b(sine, x)], tensor(F32, dims), tensor(F32, dims))
    x, y = np.ones((2, 3), np.float32), np.array([[np.nan, np.inf, 1]] * 2, np.float32)
    _, gy = evaluate(grad(m), [x, y, x])
    np.testing.assert_array_equal(gy, np.zeros((2, 3)))
    assert gy.dtype == np.float32


def test_no_gradient_through_integers_or_stop_gradient() -> None:
    def body(b: Builder, x: Node) -> list[Node]:
        count = b(convert, b(convert, x, dtype=I32), dtype=F64)
        return [b(multiply, b(stop_gradient, b(sine, x)), b(multiply, x, count))]

    (x,) = sampled((M,))
    (gx,) = evaluate(grad(module(body, M)), [x, np.ones((2, 3))])
    np.testing.assert_allclose(gx, np.sin(x) * x.astype(int))


def test_gradient_of_the_gradient() -> None:
    m = module(lambda b, x: [reduction(b, add, b(multiply, b(multiply, x, x), x), (0, 1))], M)
    second = grad(grad(m), ("x0",))
    verify(second)
    (x,) = sampled((M,))
    direction = np.arange(6.0).reshape(2, 3)
    (found,) = evaluate(second, [x, np.float64(1), direction])  # d/dx of 3 x^2, along the direction
    np.testing.assert_allclose(found, 6 * x * direction, rtol=1e-12)


def test_gradient_of_the_gradient_equals_finite_differences() -> None:
    m = module(lambda b, x: [softmax(b, x)], M)
    first = grad(m)
    second = grad(first)
    args, cts = sampled((M, M)), sampled((M,), seed=2)
    for k, value in enumerate(evaluate(second, [*args, *cts])):
        np.testing.assert_allclose(value, finite_difference(first, args, cts, k), rtol=1e-5, atol=1e-7)


def test_complex_product_with_a_constant() -> None:
    from deepx_graph.types import C128

    t = tensor(C128, (2,))
    g = grad(module(lambda b, x, y: [b(add, x, y)], t, t))
    ct = np.array([1 + 2j, 3 - 1j])
    for value in evaluate(g, [ct * 0, ct * 0, ct]):
        np.testing.assert_array_equal(value, ct)


def test_deep_chain_ends() -> None:
    def body(b: Builder, x: Node) -> list[Node]:
        for _ in range(20_000):
            x = b(sine, x)
        return [x]

    assert len(grad(module(body, V)).entry.nodes) > 40_000


# --- effects ------------------------------------------------------------------------------------------------------


def test_prints_are_dropped() -> None:
    def body(b: Builder, x: Node, state: Node) -> list[Node]:
        y = b(sine, x)
        return [y, b(print_, state, y)]

    f = grad(module(body, M, STATE, names=("x", "state"))).entry
    assert [p.name for p in f.params] == ["x", "ct_out0"]
    assert f.result_names == ("grad_x",)


def test_loads_that_a_gradient_needs_are_kept(tmp_path: Any) -> None:
    def body(b: Builder, x: Node, state: Node) -> list[Node]:
        w, after = b.items(b(load, state, path="w", type=M))
        return [b(multiply, x, w), b(print_, after, x)]

    g = grad(module(body, M, STATE, names=("x", "state")))
    verify(g)
    assert [p.name for p in g.entry.params] == ["x", "ct_out0", "state"]
    assert [p.attr("index") for p in g.entry.params] == [0, 1, 2]
    assert g.entry.result_names == ("grad_x", "state")
    assert g.entry.results[-1].type == STATE
    w = np.arange(6.0).reshape(2, 3)
    np.save(tmp_path / "w.npy", w)

    class Files(Host):
        def load(self, path: str, type: TensorType) -> Any:
            return np.load(tmp_path / f"{path}.npy")

    value, _ = evaluate(g, [w, 2 + w * 0, Files(None, None, None)])
    np.testing.assert_array_equal(value, 2 * w)


# --- refusals -----------------------------------------------------------------------------------------------------


def refusal(m: Module, wrt: Sequence[str] | None = None) -> str:
    with pytest.raises(VerifyError) as e:
        grad(m, wrt)
    return str(e.value)


def looped(b: Builder, x: Node) -> list[Node]:
    text = "y = loop(x)\n"
    b.origin = Origin("y", (Span(Source("prog.dx", text), 4, 11),))
    _, y = b.loop([b.constant(0, I32), x], lambda v: (b(compare, v[0], b.constant(3, I32), direction="LT"),
                                                      [b(add, v[0], b.constant(1, I32)), without_gradient(b, v[1])]))  # fmt: skip
    b.origin = Origin("out")
    return [b(exponential, y)]


def without_gradient(b: Builder, x: Node) -> Node:
    return b(opaque, x, name="mystery", type=x.type)


def test_what_has_no_gradient_is_named_with_location_and_path() -> None:
    text = refusal(module(looped, M, names=("x",)))
    assert "opaque has no gradient" in text
    assert "prog.dx:1:5" in text
    assert "path x -> " in text
    assert text.rstrip().endswith("-> out")


def test_control_that_no_derivative_passes_is_no_obstacle() -> None:
    def body(b: Builder, x: Node, n: Node) -> list[Node]:
        count, = b.loop([n], lambda v: (b(compare, v[0], b.constant(3, I32), direction="LT"), [b(add, v[0], b.constant(1, I32))]))
        return [b(multiply, x, b(convert, count, dtype=F64))]

    (x,) = sampled((M,))
    (found,) = evaluate(grad(module(body, M, tensor(I32))), [x, np.int32(0), x * 0 + 1])
    np.testing.assert_array_equal(found, x * 0 + 3)


def test_unknown_and_integer_names_are_usage_errors() -> None:
    m = module(lambda b, weight, i: [b(sine, weight)], M, tensor(I32), names=("weight", "i"))
    with pytest.raises(UsageError, match="did you mean 'weight'"):
        grad(m, ("wieght",))
    with pytest.raises(UsageError, match="has no gradient"):
        grad(m, ("i",))


def test_calls_are_inlined() -> None:
    b = Builder()
    f = b.function("f", [("x", M)], lambda x: [b(sine, x)], public=False)
    main: Function = b.function("main", [("x", M)], lambda x: b.call(f, b.call(f, x)[0]))
    (x,) = sampled((M,))
    g = grad(Module((main, f)))
    assert len(g.functions) == 1
    np.testing.assert_allclose(evaluate(g, [x, np.ones((2, 3))])[0], np.cos(np.sin(x)) * np.cos(x), rtol=1e-12)


def test_contraction_and_dot_general() -> None:
    m = module(lambda b, x, y: [b(dot_general, x, y, lhs_batching_dimensions=(0,), rhs_batching_dimensions=(0,),
                                  lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(1,))], M, M)  # fmt: skip
    x, y = sampled((M, M))
    gx, gy = evaluate(grad(m), [x, y, np.array([2.0, -1.0])])
    np.testing.assert_allclose(gx, y * [[2], [-1]])
    np.testing.assert_allclose(gy, x * [[2], [-1]])


def pairs(b: Builder, p: Node, y: Node) -> list[Node]:
    """A tuple in, taken apart, passed through a branch whole, and a tuple out."""
    a, inner = b.items(p)
    chosen, = b.branch(b(compare, y, b.like(0, y), direction="GT"), [p], [b.pack(a, inner)])
    x, z = b.items(chosen)
    n, w = b.items(z)
    return [b.pack(b(multiply, x, y), b.pack(n, b(sine, w))), b(multiply, a, a)]


def test_inputs_and_outputs_that_are_tuples() -> None:
    b = Builder()
    f = b.function("main", [("p", TupleType((V, TupleType((tensor(I32, ()), M))))), ("y", S)], lambda p, y: pairs(b, p, y))
    g = grad(Module((f,), "main"))
    assert [p.name for p in g.entry.params[:4]] == ["p.0", "p.1", "p.2", "y"]
    assert [str(r.type) for r in g.entry.results] == [str(t) for t in (V, M, S)]
    rng = np.random.default_rng(0)
    a, w, ct_a, ct_w, ct_b = (rng.standard_normal(s) for s in ((3,), (2, 3), (3,), (2, 3), (3,)))
    found = evaluate(g, [a, np.int32(1), w, np.float64(0.7), ct_a, ct_w, ct_b])
    for x, y in zip(found, (0.7 * ct_a + 2 * a * ct_b, ct_w * np.cos(w), np.sum(a * ct_a)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12)
    verify(g)
    verify(hvp(Module((f,), "main"), ["p.2"]))


def test_a_function_of_a_tuple_that_calls_itself() -> None:
    """x -> x * y^n, by recursion on a tuple of n and y: the entry that is differentiated takes tensors, the one called a tuple."""
    b = Builder()
    pair = TupleType((tensor(I32, ()), S))
    type = FunctionType((pair, S), (S,))

    def body(p: Node, x: Node) -> list[Node]:
        n, y = b.items(p)
        again = b(CALL, b.pack(b(subtract, n, b.like(1, n)), y), b(multiply, x, y), callee="f", signature=type)
        return list(b.branch(b(compare, n, b.like(0, n), direction="GT"), [b(PROJ, again, index=0)], [x]))

    m = Module((b.function("f", [("p", pair), ("x", S)], body),), "f")
    by_y, by_x = evaluate(grad(m), [np.int32(3), np.float64(2), np.float64(5), np.float64(1)])
    assert (float(by_y), float(by_x)) == (60, 8)
