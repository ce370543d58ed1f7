"""Forward mode: against finite differences and reverse mode, through branches, loops, calls, recursion and closures; Hessians."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import UsageError, VerifyError
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.structure import LOOP_BEGIN, LOOP_END, REGION
from deepx_graph.ops import (
    add,
    and_,
    compare,
    convert,
    cosine,
    exponential,
    load,
    matmul,
    multiply,
    print_,
    reduction,
    sine,
    stop_gradient,
    subtract,
    tanh,
    top_k,
    zeta,
)
from deepx_graph.passes.autodiff.grad import grad
from deepx_graph.passes.autodiff.jvp import Jvp, hvp, jvp
from deepx_graph.types import F64, I32, STATE, FunctionType, tensor
from deepx_graph.verify import verify
from tests.support import generate
from tests.support.reference import evaluate

Body = Callable[..., Sequence[Node]]
M, V, S, N = tensor(F64, (2, 3)), tensor(F64, (3,)), tensor(F64), tensor(I32)


def module(body: Body, *types: Any, names: Sequence[str] = (), results: tuple[str, ...] = ()) -> Module:
    b = Builder()
    params = [(names[k] if names else f"x{k}", t) for k, t in enumerate(types)]
    return Module((b.function("main", params, lambda *x: body(b, *x), result_names=results),))


def sampled(types: Sequence[Any], seed: int = 1) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.uniform(-1, 1, t.shape) for t in types]


def slopes(m: Module, args: list[Any], moving: list[int], direction: list[Any], eps: float = 1e-6) -> list[Any]:
    """Central differences of the floating outputs."""
    def at(step: float) -> list[Any]:
        moved = list(args)
        for k, v in zip(moving, direction, strict=True):
            moved[k] = np.asarray(args[k] + step * v)
        return [np.asarray(y) for y in evaluate(m, moved)]

    with np.errstate(all="ignore"):
        return [(y - z) / (2 * eps) for y, z in zip(at(eps), at(-eps), strict=True) if y.dtype == np.float64]


def check(m: Module, args: list[Any], tolerance: float = 1e-8) -> Module:
    """Forward mode agrees with differences; gives its module."""
    forward = jvp(m)
    verify(forward)
    moving = [k for k, a in enumerate(args) if np.asarray(a).dtype == np.float64]
    direction = sampled([tensor(F64, np.shape(args[k])) for k in moving], seed=9)
    for got, want in zip(evaluate(forward, [*args, *direction]), slopes(m, args, moving, direction), strict=True):
        np.testing.assert_allclose(got, want, rtol=tolerance * 100, atol=tolerance)
    run = dx.compile(forward)(*args, *direction)
    for got, want in zip(run, evaluate(forward, [*args, *direction]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)
    return forward


def nodes(m: Module, op: Any) -> list[Node]:
    return [n for f in m.functions for n in f.nodes if n.op is op]


# --- straight-line ------------------------------------------------------------------------------------------------


def mlp(b: Builder, x: Node, w: Node) -> list[Node]:
    h = b(tanh, matmul(b, x, w))
    return [b(multiply, h, b(exponential, h)), reduction(b, add, h, (0, 1))]


def test_a_network_and_the_transpose_identity() -> None:
    m = module(mlp, M, tensor(F64, (3, 4)))
    x, w, tx, tw = sampled((M, tensor(F64, (3, 4))) * 2)
    check(m, [x, w])
    cts = sampled((tensor(F64, (2, 4)), S), seed=5)
    forward, backward = evaluate(jvp(m), [x, w, tx, tw]), evaluate(grad(m), [x, w, *cts])
    assert sum(np.sum(a * b) for a, b in zip(forward, cts, strict=True)) == pytest.approx(
        sum(np.sum(a * b) for a, b in zip(backward, (tx, tw), strict=True)), rel=1e-13)


def test_signature_and_names() -> None:
    m = module(lambda b, x, i, y: [b(multiply, x, y), b(add, i, i), b(sine, y)], M, N, M, names=("x", "i", "y"),
               results=("a", "n", "c"))  # fmt: skip
    f = jvp(m).entry
    assert [p.name for p in f.params] == ["x", "i", "y", "t_x", "t_y"]
    assert f.result_names == ("t_a", "t_c")
    one = Jvp(("y",)).run(m).entry
    assert [p.name for p in one.params] == ["x", "i", "y", "t_y"]
    assert dx.jvp(m, ["y"]).entry.structure == one.structure
    with pytest.raises(UsageError, match="did you mean"):
        jvp(m, ("yy",))


def test_what_does_not_move_has_a_zero_tangent() -> None:
    m = module(lambda b, x, y: [b(sine, x), b(stop_gradient, y), b(convert, b(convert, y, dtype=I32), dtype=F64)], M, M)
    x, y, t = sampled((M, M, M))
    first, *rest = evaluate(jvp(m), [x, y, t, t])
    np.testing.assert_allclose(first, t * np.cos(x))
    assert all(np.array_equal(r, np.zeros((2, 3))) for r in rest)


def test_results_with_several_parts() -> None:
    m = module(lambda b, x: [b(top_k, x, k=2)], M)
    x, t = sampled((M, M))
    (got,) = evaluate(jvp(m), [x, t])
    np.testing.assert_array_equal(got, np.take_along_axis(t, np.argsort(-x, axis=1)[:, :2], axis=1))


def test_loads_stay_and_prints_go() -> None:
    def body(b: Builder, x: Node, state: Node) -> list[Node]:
        w, after = b.items(b(load, state, path="w", type=M))
        return [b(multiply, x, w), b(print_, after, x)]

    f = jvp(module(body, M, STATE, names=("x", "state"))).entry
    assert [p.name for p in f.params] == ["x", "t_x", "state"]
    assert f.result_names == ("t_out0", "state")


def test_a_deep_chain_is_no_trouble() -> None:
    def body(b: Builder, x: Node) -> list[Node]:
        for _ in range(20_000):
            x = b(sine, x)
        return [x]

    assert len(jvp(module(body, V)).entry.nodes) > 40_000


# --- control ------------------------------------------------------------------------------------------------------


def branched(b: Builder, x: Node, p: Node) -> list[Node]:
    """Of three values the first moves in both sides, each of the others in one."""
    one = b.splat(1, M)
    first, second, third = b.branch(b(compare, p, b.like(0, p), direction="LT"), [b(sine, x), x, one], [x, one, b(cosine, x)])
    return [b(multiply, b(multiply, first, second), third)]


@pytest.mark.parametrize("p", [-0.5, 0.5])
def test_branches(p: float) -> None:
    (x,) = sampled((M,))
    forward = check(module(branched, M, S), [x, np.float64(p)])
    assert len(nodes(forward, REGION)) == 1


def counted(b: Builder, n: Node, variables: Sequence[Node], step: Callable[..., Sequence[Node]]) -> tuple[Node, ...]:
    """`n` iterations of a loop."""
    return b.loop([b.constant(0, I32), *variables], lambda v: (b(compare, v[0], n, direction="LT"),
                                                             [b(add, v[0], b.constant(1, I32)), *step(*v[1:])]))[1:]  # fmt: skip


@pytest.mark.parametrize("iterations", [0, 1, 5])
def test_loops_with_invariants_and_variables_that_do_not_move(iterations: int) -> None:
    def body(b: Builder, x: Node, w: Node, n: Node) -> list[Node]:
        y, _, fixed = counted(b, n, [x, x, b.splat(0.5, M)],
                              lambda y, z, c: [b(sine, b(add, b(multiply, y, w), z)), b(multiply, z, c), b(cosine, c)])  # fmt: skip
        return [y, b(multiply, fixed, x)]

    x, w = sampled((M, M))
    forward = check(module(body, M, M, N), [x, w, np.int32(iterations)])
    (begin,) = nodes(forward, LOOP_BEGIN)
    assert len(begin.inputs) == 4 + 2, "the counter and the constant variable have no tangent"


def test_a_derivative_that_enters_a_variable_late() -> None:
    """Variables hand their values on, so that each moves one iteration after the other."""
    def body(b: Builder, x: Node, n: Node) -> list[Node]:
        zero = b.splat(0, M)
        return [counted(b, n, [zero] * 3, lambda p, q, r: [b(sine, x), p, q])[2]]

    (x,) = sampled((M,))
    check(module(body, M, N), [x, np.int32(4)])


def test_nested_loops_with_a_branch_inside_and_a_trip_count_that_depends_on_data() -> None:
    def inner(b: Builder, y: Node, w: Node) -> Sequence[Node]:
        small = b(compare, reduction(b, add, y, (0, 1)), b.constant(0.0), direction="LT")
        return b.branch(small, [b(add, y, w)], [b(multiply, y, w)])

    def body(b: Builder, x: Node, w: Node) -> list[Node]:
        def step(v: Sequence[Node]) -> tuple[Node, Sequence[Node]]:
            go = b(compare, reduction(b, add, b(multiply, v[0], v[0]), (0, 1)), b.constant(0.05), direction="GT")
            (y,) = counted(b, b.constant(2, I32), [v[0]], lambda y: inner(b, y, w))
            return b(and_, go, b(compare, v[1], b.constant(9, I32), direction="LT")), [y, b(add, v[1], b.constant(1, I32))]

        return [b.loop([x, b.constant(0, I32)], step)[0]]

    x, w = sampled((M, M))
    forward = check(module(body, M, M), [x, w])
    assert len(nodes(forward, LOOP_END)) == 2


def recursive() -> Module:
    """f(x, n) = x if n = 0, else sin(f(x, n - 1)) * x."""
    b = Builder()
    x, n = b.param(0, M, "x"), b.param(1, N, "n")
    (again,) = b.call(("f", FunctionType((M, N), (M,))), x, b(subtract, n, b.constant(1, I32)))
    out = b.branch(b(compare, n, b.constant(0, I32), direction="LE"), [x], [b(multiply, b(sine, again), x)])
    return Module((b.function("main", (("x", M), ("n", N)), lambda x, n: b.call(("f", FunctionType((M, N), (M,))), x, n)),
                   Function("f", (x, n), out, public=False)))  # fmt: skip


def test_recursion() -> None:
    (x,) = sampled((M,))
    forward = check(recursive(), [x, np.int32(4)])
    assert [f.name for f in forward.functions] == ["main", "f_jvp"]


def test_closures_chosen_at_run_time() -> None:
    b = Builder()
    scale = b.function("scale", (("w", M), ("x", M)), lambda w, x: [b(multiply, w, x)], public=False)
    shift = b.function("shift", (("w", M), ("x", M)), lambda w, x: [b(add, b(sine, w), x)], public=False)

    def body(x: Node, w: Node, p: Node) -> Sequence[Node]:
        (f,) = b.branch(b(compare, p, b.like(0, p), direction="LT"), [b.partial(scale, w)], [b.partial(shift, w)])
        return b.call_value(f, *b.call_value(f, x))

    m = Module((b.function("main", (("x", M), ("w", M), ("p", S)), body), scale, shift))
    x, w = sampled((M, M))
    for p in (-1.0, 1.0):
        check(m, [x, w, np.float64(p)])


def test_a_function_with_a_derivative_of_its_own() -> None:
    """f(w, x) = w sin x, whose derivative says 3 cos x by x and 2 sin x by w."""
    b = Builder()
    f = b.function("f", (("w", M), ("x", M)), lambda w, x: [b(multiply, w, b(sine, x))], public=False, vjp="f_vjp")

    def rule(w: Node, x: Node, g: Node) -> list[Node]:
        by_w, by_x = b(multiply, g, b(sine, x)), b(multiply, g, b(cosine, x))
        return [b(multiply, by_w, b.constant(2.0)), b(multiply, by_x, b.constant(3.0))]

    own = b.function("f_vjp", (("w", M), ("x", M), ("g", M)), rule, public=False)
    m = Module((b.function("main", (("w", M), ("x", M)), lambda w, x: [b(exponential, b.call(f, w, x)[0])]), f, own))
    w, x, tw, tx, ct = sampled((M,) * 5)
    y = np.exp(w * np.sin(x))
    moved = y * (2 * np.sin(x) * tw + 3 * np.cos(x) * tx)
    np.testing.assert_allclose(evaluate(jvp(m), [w, x, tw, tx])[0], moved, rtol=1e-12)
    np.testing.assert_allclose(evaluate(jvp(m, ["x"]), [w, x, tx])[0], y * 3 * np.cos(x) * tx, rtol=1e-12)
    by_w = evaluate(hvp(m), [w, x, ct, tw, tx])[0]
    np.testing.assert_allclose(by_w, ct * 2 * (moved * np.sin(x) + y * np.cos(x) * tx), rtol=1e-12)


# --- second order -------------------------------------------------------------------------------------------------


def test_hessian_vector_products() -> None:
    m = module(mlp, M, tensor(F64, (3, 4)))
    x, w, tx, tw = sampled((M, tensor(F64, (3, 4))) * 2)
    cts = sampled((tensor(F64, (2, 4)), S), seed=5)
    h = hvp(m)
    assert [p.name for p in h.entry.params] == ["x0", "x1", "ct_out0", "ct_out1", "t_x0", "t_x1"]
    got = evaluate(h, [x, w, *cts, tx, tw])
    for value, want in zip(got, slopes(grad(m), [x, w, *cts], [0, 1], [tx, tw]), strict=True):
        np.testing.assert_allclose(value, want, rtol=1e-6, atol=1e-8)
    (part,) = evaluate(dx.hvp(m, ["x1"]), [x, w, *cts, tw])
    np.testing.assert_allclose(part, slopes(grad(m, ("x1",)), [x, w, *cts], [1], [tw])[0], rtol=1e-6, atol=1e-8)


def test_forward_over_forward_through_a_loop() -> None:
    def body(b: Builder, x: Node, n: Node) -> list[Node]:
        return [counted(b, n, [x], lambda y: [b(sine, b(multiply, y, x))])[0]]

    first = jvp(module(body, M, N))
    x, t = sampled((M, M))
    check(first, [x, np.int32(3), t])


# --- random programs ----------------------------------------------------------------------------------------------


def smooth(m: Module, args: list[Any], moving: list[int], direction: list[Any]) -> list[Any] | None:
    """The slopes where differences of two sizes agree, which they do not near a jump or a kink; else None."""
    fine, coarse = (slopes(m, args, moving, direction, eps) for eps in (1e-7, 1e-6))
    close = all(np.allclose(a, b, rtol=1e-4, atol=1e-6) and np.isfinite(a).all() for a, b in zip(fine, coarse, strict=True))
    return fine if close and all(np.abs(y).max(initial=0) < 1e6 for y in fine) else None


def test_random_programs_with_control_flow() -> None:
    checked = 0
    for seed in range(60):
        rng = random.Random(seed)
        m = generate.random_module(rng, max_ops=25, dtypes=(F64, F64, F64, I32))
        if any(t.dtype.is_float and t.dtype is not F64 for t in m.entry.type.results):  # type: ignore[union-attr]
            continue
        args = [generate.random_array(rng, p.type) for p in m.entry.params]
        moving = [k for k, a in enumerate(args) if a.dtype == np.float64]
        for k in moving:
            args[k] = np.random.default_rng(seed + k).standard_normal(args[k].shape)
        direction = sampled([tensor(F64, args[k].shape) for k in moving], seed)
        names = [m.entry.params[k].name or f"arg{k}" for k in moving]
        want = smooth(m, args, moving, direction)
        if not moving or not want:
            continue
        forward = jvp(m, names)
        verify(forward)
        for got, value in zip(evaluate(forward, [*args, *direction]), want, strict=True):
            if np.isfinite(got).all():
                np.testing.assert_allclose(got, value, rtol=1e-3, atol=1e-5, err_msg=f"seed {seed}")
                checked += 1
    assert checked > 60


def test_refusals_name_location_and_path() -> None:
    m = module(lambda b, x, s: [b(print_, s, x)], M, STATE)
    assert not jvp(m).entry.results
    m = module(lambda b, x, y: [b(sine, b(zeta, b(sine, x), y))], M, M, names=("order", "y"), results=("out",))
    with pytest.raises(VerifyError, match="zeta has no gradient by its operand 'lhs'") as e:
        jvp(m, ["order"])
    assert "path order -> sine -> zeta -> sine" in str(e.value)
    assert jvp(m, ["y"])
    with pytest.raises(VerifyError, match="takes a function"):
        jvp(module(lambda b, x, f: list(b.call_value(f, x)), M, FunctionType((M,), (M,))))
