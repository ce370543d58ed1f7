"""NaN planted in programs is traced to the operation that made it, through loops, branches, calls and gradients."""

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.numerics.nonfinite import NonfiniteSource, explain_nonfinite

HEAD = "sea 1\nentry @main\nfunc public @main(%x: f32[4]) -> (%y: f32[4]) {\n  %z = constant dense<0.0> : f32[]\n"

MAKERS = {
    "zero by zero": ("%bad = divide %x, %x : f32[4]", [1, 0, 2, 3], "divide", (1,)),
    "log of a negative number": ("%bad = log %x : f32[4]", [1, 2, -3, 0], "log", (2,)),
    "root of a negative number": ("%bad = sqrt %x : f32[4]", [-1, 2, 3, 4], "sqrt", (0,)),
    "zero times infinity": ("%i = divide %x, %z : f32[4]\n  %bad = multiply %i, %z : f32[4]", [1, 1, 2, 3], "multiply", (0,)),
    "infinity less infinity": ("%i = exponential %x : f32[4]\n  %bad = subtract %i, %i : f32[4]", [1, 2, 3, 900], "subtract", (3,)),
}
AROUND = {
    "straight": "  %y = add %bad, %x : f32[4]\n  return %y\n}\n",
    "moved": "  %r = reverse %bad, dims = [0] : f32[4]\n  %y = add %r, %r : f32[4]\n  return %y\n}\n",
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("maker", MAKERS)
def test_the_operation_and_the_element_are_named(maker, around):
    lines, x, op, at = MAKERS[maker]
    module = dx.loads(f"{HEAD}  {lines}\n{AROUND[around]}")
    report = explain_nonfinite(module, {"x": np.array(x, "f4")})
    assert [(o.node.op.name, o.element) for o in report.origins if o.kind == "NaN"][:1] == [(op, at)]


def test_nan_of_an_infinity_names_what_overflowed():
    lines, x, _, _ = MAKERS["infinity less infinity"]
    module = dx.loads(f"{HEAD}  {lines}\n{AROUND['straight']}")
    (origin,) = explain_nonfinite(module, {"x": np.array(x, "f4")}).sources
    (cause,) = origin.causes
    assert (cause.node.op.name, cause.kind, cause.element, cause.operands) == ("exponential", "infinity", (3,), ("900.0",))


def test_what_a_select_drops_is_harmless():
    text = HEAD + "  %p = compare GT, %x, %z : bool[4]\n  %l = log %x : f32[4]\n  %y = select %p, %l, %z : f32[4]\n  return %y\n}\n"
    report = explain_nonfinite(dx.loads(text), {"x": np.array([1, -1, 0, 2], "f4")})
    assert (report.outputs, report.sources, report.harmless) == ((), (), 1)


def test_inputs_and_constants_are_named_not_what_passes_them_on():
    text = HEAD + "  %c = constant dense<[1.0, 2.0, inf, 3.0]> : f32[4]\n  %y = add %x, %c : f32[4]\n  return %y\n}\n"
    report = explain_nonfinite(dx.loads(text), {"x": np.array([np.nan, 0, 0, 0], "f4")})
    assert [type(s) for s in report.sources] == [NonfiniteSource, NonfiniteSource]
    assert report.outputs == (("y", 1, 1),) and not report.origins


LOOP = """HloModule m
body {
  p = (s32[], f32[3]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  v = f32[3] get-tuple-element(p), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  e = f32[3] exponential(v)
  ROOT t = (s32[], f32[3]) tuple(n, e)
}
cond {
  p = (s32[], f32[3]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  k = s32[] constant(9)
  ROOT c = pred[] compare(i, k), direction=LT
}
ENTRY main {
  start = f32[3] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[3]) tuple(z, start)
  w = (s32[], f32[3]) while(t), condition=cond, body=body
  ROOT r = f32[3] get-tuple-element(w), index=1
}
"""


def test_in_a_loop_the_iteration_and_the_variable_are_named():
    start = np.array([0, -1, 1], "f4")
    (origin,) = explain_nonfinite(dx.loads(LOOP), {"start": start}).origins
    value, iteration = start.astype("f4"), 0
    while np.isfinite(value).all():
        with np.errstate(over="ignore"):
            value, iteration = np.exp(value), iteration + 1
    assert (origin.kind, origin.iteration, origin.carried) == ("infinity", iteration, "start")
    assert origin.element == (int(np.argmin(np.isfinite(value))),)


@pytest.mark.parametrize("taken", [True, False])
def test_only_the_branch_that_is_taken_counts(taken):
    text = """HloModule m
bad { a = f32[2] parameter(0)
  ROOT l = f32[2] log(a) }
good { a = f32[2] parameter(0)
  ROOT n = f32[2] negate(a) }
ENTRY main { p = pred[] parameter(0)
  x = f32[2] parameter(1)
  ROOT y = f32[2] conditional(p, x, x), true_computation=bad, false_computation=good }
"""
    report = explain_nonfinite(dx.loads(text), {"p": np.bool_(taken), "x": np.array([-1, 1], "f4")})
    assert [o.node.op.name for o in report.origins] == (["log"] if taken else [])


def test_the_backward_part_of_a_gradient_is_told_apart():
    text = HEAD + "  %y = sqrt %x : f32[4]\n  return %y\n}\n"
    report = explain_nonfinite(dx.grad(dx.loads(text)), {"x": np.array([0, 1, 2, 3], "f4"), "ct_y": np.zeros(4, "f4")})
    assert report.origins and all(o.backward for o in report.origins)
    assert "backward part" in "\n".join(report.lines())


def test_narrow_and_complex_numbers_are_looked_at():
    import ml_dtypes

    text = "sea 1\nentry @main\nfunc public @main(%x: {0}) -> (%y: {0}) {{\n  %y = {1} : {0}\n  return %y\n}}\n"
    half = dx.loads(text.format("bf16[2]", "log %x"))
    (origin,) = explain_nonfinite(half, {"x": np.array([-1, 1], ml_dtypes.bfloat16)}).origins
    assert origin.element == (0,)
    two = dx.loads(text.format("c64[2]", "divide %x, %x"))
    (origin,) = explain_nonfinite(two, {"x": np.array([1j, 0], "c8")}).origins
    assert origin.element == (1,)
