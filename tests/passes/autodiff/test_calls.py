"""Gradients through calls, closures and recursion; derivatives that functions name themselves."""

from __future__ import annotations

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Module
from deepx_graph.ops import sine
from deepx_graph.passes.autodiff.grad import grad
from tests.support.grad_calls import (
    PROGRAMS,
    N,
    main_of,
    own,
    recursion,
)
from tests.support.grad_programs import M, check, counted, sampled
from tests.support.reference import evaluate


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_finite_differences(name: str, seed: int) -> None:
    check(PROGRAMS[name](), 1, seed)


@pytest.mark.parametrize("name", PROGRAMS)
def test_second_order_equals_finite_differences_of_the_first(name: str) -> None:
    check(PROGRAMS[name](), 2, 0, rtol=1e-4)


def test_recursion_that_no_input_changes_has_no_backward_part() -> None:
    m = grad(recursion(), ("x0",))
    back = next(f for f in m.functions if "_bwd" in f.name)
    assert back.type.results == (M,)  # w gets no cotangent


def test_depth_decides_at_run_time() -> None:
    b = Builder()
    m = recursion()
    f = m["f"]
    m = Module((b.function("main", [("x", M), ("n", N)], lambda x, n: b.call(f, x, x, n)), f))
    g = dx.compile(grad(m), optimize=False)
    (x,) = sampled((M,))
    np.testing.assert_allclose(g(x, np.int32(0), x * 0 + 1)[0], np.ones((2, 3)))
    np.testing.assert_allclose(g(x, np.int32(1), x * 0 + 1)[0], np.cos(x**3) * 3 * x**2)


# --- derivatives that functions name themselves -------------------------------------------------------------------


@pytest.mark.parametrize("optimised", [False, True])
def test_the_named_derivative_is_used(optimised: bool) -> None:
    m = own()
    if optimised:
        m = dx.optimize(m)
    x, w, ct = sampled((M, M, M))
    gx, gw = evaluate(grad(m), [x, w, ct])
    np.testing.assert_allclose(gx, ct * w * 7 * np.cos(x))
    np.testing.assert_allclose(gw, ct * np.exp(np.sin(x)))


def test_the_named_derivative_is_used_in_loops_and_twice() -> None:
    m = own()
    f = m["f"]
    m = main_of(f, m["f_vjp"], body=lambda b, x, w: counted(b, 2, [x], lambda i, y: b.call(f, b(sine, y), i)))
    x, w, ct = sampled((M, M, M))
    y = np.exp(np.sin(x))
    np.testing.assert_allclose(evaluate(grad(m), [x, w, ct])[0], ct * 49 * np.cos(x) * np.cos(y))


def test_a_derivative_that_does_not_fit_is_refused() -> None:
    with pytest.raises(dx.VerifyError, match="is no derivative of 'f'"):
        grad(own("f"))


@pytest.mark.parametrize("form", ["sea", "stablehlo"])
def test_texts_keep_the_name(form: str) -> None:
    text = dx.dumps(own(), form)
    assert dx.loads(text)["f"].vjp == "f_vjp"


def test_a_name_can_be_given_in_python() -> None:
    m = own()
    bare = m.with_functions(f.with_(vjp=None) for f in m.functions)
    assert dx.custom_vjp(bare, "f", "f_vjp")["f"].vjp == "f_vjp"
    with pytest.raises(dx.UsageError, match="did you mean 'f_vjp'"):
        dx.custom_vjp(bare, "f", "f_vpj")
