"""Custom calls: run what is registered, refused before anything runs where nothing is, and written as they stood."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ops import OPS

TWICE = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
 %n = stablehlo.negate %x : tensor<3xf32>
 %y = stablehlo.custom_call @test.twice(%n) {backend_config = "by two", api_version = 2 : i32} : (tensor<3xf32>) -> tensor<3xf32>
 return %y : tensor<3xf32>
}"""
X = np.array([1, 2, 3], "f4")


@pytest.fixture
def registered() -> Iterator[None]:
    yield
    for target in ("test.twice", "test.log", "test.split"):
        dx.register_custom_call(target, None)


def test_an_unknown_target_is_named_before_anything_runs(registered: None) -> None:
    dx.register_custom_call("test.twise", lambda x: x)
    try:
        with pytest.raises(dx.RunError, match=r"nothing is registered for the custom call 'test\.twice'; did you mean"):
            dx.compile(dx.loads(TWICE, "stablehlo"), optimize=False)
    finally:
        dx.register_custom_call("test.twise", None)
    with pytest.raises(dx.UsageError, match="is an int, and no function"):
        dx.register_custom_call("a", 3)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["stablehlo", "sea"])
@pytest.mark.parametrize("engine", ["numpy", "numexpr"])
def test_a_registered_function_is_run(registered: None, form: str, engine: str) -> None:
    seen = []
    dx.register_custom_call("test.twice", lambda x, config: seen.append(config) or 2 * x, config=True)
    module = dx.loads(dx.dumps(dx.loads(TWICE, "stablehlo"), form), form)
    (y,) = dx.compile(module, engine=engine)(X)
    assert y.tolist() == [-2, -4, -6]
    assert seen == ["by two"]


@pytest.mark.parametrize(("made", "message"), [
    (np.zeros(2, "f4"), r"result 0 is an f32\[2\], and the program needs f32\[3\]"),
    (np.zeros(3), r"result 0 is an f64\[3\]"),
    ((X, X), "gave 2 results and the program needs 1"),
    (np.array([None]), "result 0 is of object"),
])  # fmt: skip
def test_results_of_another_type_are_refused(registered: None, made: object, message: str) -> None:
    dx.register_custom_call("test.twice", lambda x: made)
    with pytest.raises(dx.RunError, match=message):
        dx.compile(dx.loads(TWICE, "stablehlo"), optimize=False)(X)


LOG = """func.func @main(%x: tensor<f32>, %p: tensor<i1>) -> tensor<f32> {
 stablehlo.custom_call @test.log(%x) {has_side_effect = true} : (tensor<f32>) -> ()
 %a = stablehlo.add %x, %x : tensor<f32>
 "stablehlo.if"(%p) ({
   stablehlo.custom_call @test.log(%a) {has_side_effect = true} : (tensor<f32>) -> ()
   stablehlo.return }, { stablehlo.return }) : (tensor<i1>) -> ()
 %b = stablehlo.custom_call @test.log(%a) {has_side_effect = true} : (tensor<f32>) -> tensor<f32>
 return %a : tensor<f32>
}"""


@pytest.mark.parametrize("form", ["stablehlo", "sea"])
def test_calls_with_side_effects_keep_their_order_and_their_branches(registered: None, form: str) -> None:
    seen: list[float] = []

    def log(x: np.ndarray) -> np.ndarray | None:
        seen.append(float(x))
        return x if len(seen) == 2 + taken else None

    dx.register_custom_call("test.log", log)
    module = dx.loads(dx.dumps(dx.loads(LOG, "stablehlo"), form), form)
    f = dx.compile(module)
    for taken, wanted in ((0, [3, 6]), (1, [3, 6, 6])):
        seen.clear()
        f(np.float32(3), np.array(bool(taken)))
        assert seen == wanted


def test_several_results_come_as_a_tuple(registered: None) -> None:
    dx.register_custom_call("test.split", lambda x: (x[:1], x[1:]))
    module = dx.loads("""func.func @main(%x: tensor<3xf32>) -> (tensor<2xf32>, tensor<1xf32>) {
 %y:2 = "stablehlo.custom_call"(%x) {call_target_name = "test.split"} : (tensor<3xf32>) -> (tensor<1xf32>, tensor<2xf32>)
 return %y#1, %y#0 : tensor<2xf32>, tensor<1xf32>
}""", "stablehlo")
    assert [r.tolist() for r in dx.compile(module, optimize=False)(X)] == [[2, 3], [1]]


def test_targets_that_change_nothing_and_those_of_mhlo_are_known() -> None:
    module = dx.loads("""func.func @main(%x: tensor<3xf32>) -> (tensor<2xf32>, tensor<2xi32>, tensor<3xf32>) {
 %y = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{replicated}"} : (tensor<3xf32>) -> tensor<3xf32>
 %t:2 = stablehlo.custom_call @mhlo.topk(%y) {mhlo.attributes = {k = 2 : i64, largest = true}} :
   (tensor<3xf32>) -> (tensor<2xf32>, tensor<2xi32>)
 %s = stablehlo.custom_call @mhlo.sinh(%y) {mhlo.attributes = {}} : (tensor<3xf32>) -> tensor<3xf32>
 return %t#0, %t#1, %s : tensor<2xf32>, tensor<2xi32>, tensor<3xf32>
}""", "stablehlo")
    top, at, s = dx.compile(module, optimize=False)(X)
    assert (top.tolist(), at.tolist()) == ([3, 2], [2, 1])
    np.testing.assert_allclose(s, np.sinh(X), rtol=1e-6)


def test_what_a_call_says_of_itself_is_written_again() -> None:
    text = dx.dumps(dx.loads(TWICE, "stablehlo"), "stablehlo")
    assert 'stablehlo.custom_call @test.twice(%n) {backend_config = "by two", api_version = 2 : i32}' in text
    assert OPS["custom_call"] in {n.op for n in dx.loads(text, "stablehlo").entry.nodes}
