"""`check-grad`: right programs pass, a wrong rule and a wrong named derivative are found and blamed, edges do not count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.cli.main import main
from deepx_graph.ir import Builder, Node
from deepx_graph.numerics.double import widened
from deepx_graph.ops import add, clamp, concatenate, multiply, sign, sine, slice_, tanh
from deepx_graph.session.gradcheck import check_gradient, differences
from deepx_graph.types import F32, F64, TensorType, tensor
from tests.support.grad_calls import own, recursion
from tests.support.grad_programs import PROGRAMS, M, S, module

P = tensor(F32, (2, 3))


def wave(b: Builder, x: Node, y: Node) -> list[Node]:
    return [b(multiply, b(sine, b(multiply, x, y)), b(tanh, y))]


@pytest.mark.parametrize("types", [(M, M), (P, P)], ids=["double", "single"])
def test_right_gradients_pass(types: tuple[TensorType, TensorType]) -> None:
    report = check_gradient(module(wave, *types))
    assert report.ok
    assert report.double
    assert [i.name for i in report.inputs] == ["x0", "x1"]
    assert all(i.samples == 3 and i.error < 1e-6 for i in report.inputs)


@pytest.mark.parametrize("name", ["nested", "data dependent", "loop in branch"])
def test_control_flow_passes(name: str) -> None:
    body, types = PROGRAMS[name]
    assert all(i.ok or not i.samples for i in check_gradient(module(body, *types), samples=2).inputs)


def test_recursion_passes() -> None:
    assert check_gradient(recursion()).ok


def test_a_wrong_rule_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(b: Builder, node: Node, g: Node) -> Any:
        return (b(multiply, g, node),)

    right = sine.vjp
    object.__setattr__(sine, "vjp", wrong)
    try:
        report = check_gradient(module(wave, M, M))
    finally:
        object.__setattr__(sine, "vjp", right)
    assert not report.ok
    assert report.culprits[0].startswith("sine")
    assert len(report.culprits) == 1
    assert "likely culprit: sine" in str(report)


def test_a_wrong_named_derivative_is_blamed() -> None:
    report = check_gradient(own())
    assert not report.ok
    assert report.culprits[0].startswith("'f_vjp', which 'f' names as its derivative")


def test_edges_do_not_count() -> None:
    assert differences(lambda x: float(np.sum(x > 0)), np.array([1e-9]), np.ones(1), 1e-5) is None
    slope = differences(lambda x: float(np.sum(x * x)), np.array([3.0]), np.ones(1), 1e-5)
    assert slope is not None and slope.value == pytest.approx(6) and slope.error_of(6.1) > 0.01


def test_rounding_of_large_values_is_doubt_and_not_error() -> None:
    """1e9 + x moves by steps of 1e-7: differences at 1e-5 are right to two digits, and say so."""
    slope = differences(lambda x: 1e9 + float(x[0]), np.array([0.3]), np.ones(1), 1e-5)
    assert slope is not None and slope.doubt > 1e-4 and slope.error_of(1.0) < 1e-4 and slope.error_of(1.2) > 0.05


def test_widening_keeps_integers_and_bodies() -> None:
    text = dx.dumps(widened(module(lambda b, x: [b(sine, x)], P)), "sea")
    assert "f32" not in text
    assert "f64[2,3]" in text
    assert module(lambda b, x: [x], tensor(F64, ())).entry.type.params == (tensor(F64, ()),)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.sea", tmp_path / "bad.sea"
    good.write_text(dx.dumps(module(wave, P, P), "sea"))
    bad.write_text(dx.dumps(own(), "sea"))
    assert main(["check-grad", str(good), "--json", "--wrt", "x1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"]
    assert [i["name"] for i in found["inputs"]] == ["x1"]
    assert main(["check-grad", str(bad), "--samples", "1"]) == 1
    assert "likely culprit: 'f_vjp'" in capsys.readouterr().out
    assert main(["check-grad", str(good), "--wrt", "y"]) == 2


def test_grad_says_what_loops_keep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body, types = PROGRAMS["nested"]
    path = tmp_path / "m.sea"
    path.write_text(dx.dumps(module(body, *types), "sea"))
    assert main(["grad", str(path), "--loop-bytes", "--loop", "recompute", "--emit", "hlo"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("HloModule")
    assert [line.split(":")[0] for line in shown.err.splitlines()] == ["loop=keep", "loop=recompute", "loop=sqrt"]


def test_bounds_that_are_inputs_are_put_in_order() -> None:
    report = check_gradient(module(lambda b, lo, x, hi: [b(clamp, lo, b(sine, x), hi)], S, M, S))
    assert report.ok
    assert all(i.samples for i in report.inputs)
    assert not report.left_out


def test_samples_at_which_computed_bounds_cross_are_left_out() -> None:
    def always(b: Builder, lo: Node, x: Node) -> list[Node]:
        return [b(clamp, b(add, b(multiply, lo, lo), b.like(1, lo)), x, b(sine, x))]

    report = check_gradient(module(always, M, M))
    assert not report.ok
    assert not any(i.samples for i in report.inputs)
    assert report.left_out == ("clamp: 'min' is above 'max'",)
    assert "no sample counts" in str(report)
    assert "samples left out: clamp: 'min' is above 'max'" in str(report)
    assert report.culprits == ()


def saturated(b: Builder, x: Node) -> list[Node]:
    return [b(tanh, b(multiply, x, b.like(100.0, x)))]


def test_behind_saturation_smaller_inputs_are_tried() -> None:
    (found,) = check_gradient(module(saturated, M)).inputs
    assert found.ok
    assert found.checked
    assert abs(found.gradient) > 1e-4


@pytest.mark.parametrize("body", [
    lambda b, x: [b(tanh, b(add, x, b.like(1e3, x)))],
    lambda b, x: [b(multiply, x, b.like(0.0, x))],
], ids=["saturated everywhere", "times zero"])  # fmt: skip
def test_a_gradient_that_is_zero_everywhere_is_not_checked(body: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = check_gradient(module(body, M))
    assert not report.ok
    assert not report.inputs[0].checked
    assert report.culprits == ()
    path = tmp_path / "m.sea"
    path.write_text(dx.dumps(module(body, M), "sea"))
    assert main(["check-grad", str(path)]) == 1
    assert "not checked: gradient and difference are zero" in capsys.readouterr().out


def test_a_gradient_that_is_zero_by_structure_is_checked() -> None:
    """The cotangent of a linear function's argument does not depend on it; nor does a sign have a slope."""
    linear = dx.grad(module(lambda b, x: [b(multiply, x, b.like(3.0, x))], M))
    step = module(lambda b, x: [b(multiply, b(sign, x), b.like(2.0, x))], M)
    for program in (linear, step):
        report = check_gradient(program)
        assert report.ok, str(report)
        assert [i.name for i in report.inputs if i.zero] == ["x0"]
        assert "ok: zero by structure" in str(report)


def test_a_gradient_of_no_elements_is_zero_by_structure() -> None:
    def empty_parts(b: Builder, x: Node) -> list[Node]:
        none, also_none = (b(slice_, x, start_indices=(k, 0), limit_indices=(k, 3), strides=(1, 1)) for k in range(2))
        return [b(concatenate, x, none, dimension=0), also_none]

    from_nothing = module(empty_parts, M)
    for program in (from_nothing, dx.grad(from_nothing)):
        report = check_gradient(program)
        assert report.ok, str(report)
    assert [i.name for i in report.inputs if i.zero] == ["x0", "ct_out1"]


def test_a_rule_that_gives_zero_is_noticed() -> None:
    """No gradient of zero passes for one of a program that moves."""
    right = sine.vjp
    object.__setattr__(sine, "vjp", lambda b, node, g: (None,))
    try:
        report = check_gradient(module(lambda b, x: [b(sine, x)], M))
    finally:
        object.__setattr__(sine, "vjp", right)
    assert not report.ok
    assert report.inputs[0].checked
