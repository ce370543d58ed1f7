"""Printing Relay: what is printed reads back as the same module and prints the same again; optimised programs run the same."""

from __future__ import annotations

import base64
import json
import re

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import Source, VerifyError
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ops import add, compare, multiply, print_
from deepx_graph.session.report.diff import diff
from deepx_graph.text import read, write
from deepx_graph.types import BOOL, F32, I32, STATE, scalar, tensor
from deepx_graph.verify import verify
from tests.support.relay_corpus import CORPUS, SUITE, corpus, load, suite
from tests.support.relay_operators import EVERY_OPERATOR, OPERATORS, Row, X, program
from tests.support.relay_programs import PROGRAMS


def reread(text: str) -> Module:
    module = read(Source("printed", text), "relay").module
    verify(module)
    return module


def check_round_trip(module: Module) -> str:
    text = write(module, "relay")
    again = reread(text)
    difference = diff(module, again)
    assert not difference, "\n".join(difference.lines()) + "\n" + text
    assert again.datas == module.datas
    assert [f.attributes for f in again.functions] == [f.attributes for f in module.functions]
    assert write(again, "relay") == text
    return text


@pytest.mark.parametrize("name", corpus())
def test_the_corpus_is_printed_as_it_was_read(name: str) -> None:
    check_round_trip(load(CORPUS / name))


def test_the_suite_is_printed_as_it_was_read() -> None:
    cases = [c["file"] for c in suite() if c["tvm016"].startswith("ok")]
    if not cases:
        pytest.skip("the suite of texts is not there")
    for name in cases:
        check_round_trip(reread((SUITE / name).read_text()))


@pytest.mark.parametrize(("expression", "inputs", "want"), OPERATORS, ids=[e for e, _, _ in OPERATORS])
def test_operators_are_printed(expression: str, inputs: tuple[np.ndarray, ...], want: np.ndarray) -> None:
    module = dx.loads(program(expression, inputs), "relay")
    text = check_round_trip(module)
    optimised = write(dx.optimize(module), "relay")
    for version in (text, optimised):
        np.testing.assert_allclose(dx.compile(reread(version), optimize=False)(*inputs)[0], want, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("row", EVERY_OPERATOR, ids=[e for e, _, _ in EVERY_OPERATOR])
def test_every_operator_is_printed(row: Row) -> None:
    """As the same module, or one that gives the same: a reverse of two axes is two, and places that nobody asks for are dropped."""
    expression, inputs, want = row
    module = dx.loads(program(expression, inputs), "relay")
    again = reread(write(module, "relay"))
    if diff(module, again):
        np.testing.assert_array_equal(dx.compile(again, engine="numpy", optimize=False)(*inputs)[0], want)


@pytest.mark.parametrize(("text", "x", "want"), PROGRAMS, ids=range(len(PROGRAMS)))
def test_functional_programs_are_printed(text: str, x: int, want: object) -> None:
    module = dx.loads(text, "relay")
    check_round_trip(module)
    wanted = want if isinstance(want, tuple) else (want,)
    again = reread(write(dx.optimize(module), "relay"))
    assert tuple(o.item() for o in dx.compile(again, optimize=False)(np.int32(x))) == wanted


FORMS = [
    ("def @main(%x: float32) { let %a = %x + 1f; %a * %a }", ["  let %a = add(%x, 1f);", "  multiply(%a, %a)"]),
    ("def @main(%x: float32) { let %f = fn (%z: float32) { %z * %x }; %f(2f) }",
     ["  let %f = fn (%z: float32) -> float32 {", "    multiply(%z, %x)", "  };", "  %f(2f)"]),
    ("def @main(%c: bool, %x: float32) { if (%c) { tanh(%x) } else { %x } }",
     ["  if (%c) {", "    tanh(%x)", "  } else {", "    %x", "  }"]),
    ("def @main(%x: float32) { let %r = ref(%x); ref_write(%r, 2f); ref_read(%r) }",
     ["  let %r = ref(%x);", "  let %_ = ref_write(%r, 2f);", "  let %v = ref_read(%r);", "  %v"]),
    ("type L { C(int32, L), N } def @main(%l: L) { match (%l) { C(%h, _) => %h, N => 0 } }",
     ["  match (%l) {", "    C(%h, _) => {", "      %h", "    },", "    N => {", "      0", "    },", "  }"]),
    ("def @main[A](%x: A, Primitive=1) -> A { %x }", ["def @main[A](%x: A, Primitive=1) -> A {", "  %x", "}"]),
    ("free_var %x: float32; nn.relu(%x)", ["free_var %x: float32;", "maximum(%x, 0f)"]),
    ("let %f = fn (%n: int32) -> int32 { if (%n < 1) { 0 } else { %f(%n - 1) } }; %f",
     ["let %f = fn (%n: int32) -> int32 {", "  %0 = less(%n, 1);", "  if (%0) {", "    0", "  } else {",
      "    %1 = subtract(%n, 1);", "    %f(%1)", "  }", "};", "%f"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "lines"), FORMS, ids=[t for t, _ in FORMS])
def test_the_form_of_the_text(text: str, lines: list[str]) -> None:
    printed = write(dx.loads(text, "relay"), "relay").splitlines()
    assert printed[0] == '#[version = "0.0.5"]'
    assert "\n".join(lines) in "\n".join(printed)


WITH_CONSTANT = """func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %c = stablehlo.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32>
  %r = stablehlo.add %x, %c : tensor<2x3xf32>
  return %r : tensor<2x3xf32>
}
"""


def test_constants_go_to_the_metadata_section_as_tvm_has_it() -> None:
    """The blob as TVM documents it: magic, device, rank, type code, shape, size, bytes."""
    text = write(dx.loads(WITH_CONSTANT, "stablehlo"), "relay")
    meta = json.loads(text.split("#[metadata]")[1])
    blob = base64.b64decode(meta["b64ndarrays"][0])
    assert blob[:8] == bytes.fromhex("3fa1b496f0405edd")
    assert np.frombuffer(blob[32:-24], np.int64).tolist() == [2, 3, 24]
    assert np.frombuffer(blob[-24:], np.float32).tolist() == [1, 2, 3, 4, 5, 6]
    assert "meta[relay.Constant][0]" in text
    (result,) = dx.compile(reread(text), optimize=False)(X)
    np.testing.assert_array_equal(result, X + np.arange(1, 7, dtype=np.float32).reshape(2, 3))


def test_programs_of_other_languages_are_printed() -> None:
    hlo = """HloModule m
ENTRY main {
  x = f32[2,3] parameter(0)
  y = f32[3,2] parameter(1)
  d = f32[2,2] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[2,2] transpose(d), dimensions={1,0}
  e = f32[2,2] exponential(t)
  ROOT r = f32[2,2] subtract(e, d)
}
"""
    module = dx.loads(hlo)
    text = write(dx.optimize(module), "relay")
    assert "nn." in text
    np.testing.assert_allclose(dx.compile(reread(text), optimize=False)(X, X.T)[0], np.exp((X @ X.T).T) - X @ X.T, rtol=1e-5)


def test_sizes_that_are_not_known() -> None:
    text = ("def @main(%x: Tensor[(?, 3), float32], %y: Tensor[(3), float32]) {"
            " nn.softmax(where(nn.bias_add(%x, %y) > 0f, %x, zeros_like(%x))) }")
    module = dx.loads(text)
    printed = check_round_trip(module)
    assert "Tensor[(?, 3), float32]" in printed
    y = np.ones(3, np.float32)
    e = np.exp(np.where(X + y > 0, X, 0))
    for version in (module, dx.loads(printed)):
        np.testing.assert_allclose(dx.compile(version, optimize=False)(X, y)[0], e / e.sum(1, keepdims=True), rtol=1e-5)


def test_what_relay_has_no_words_for_is_named() -> None:
    odd = "reduce-precision(x), exponent_bits=5, mantissa_bits=10"
    module = dx.loads(f"HloModule m\nENTRY main {{\n  x = f32[2] parameter(0)\n  ROOT odd = f32[2] {odd}\n}}\n")
    with pytest.raises(VerifyError, match=r"odd: Relay has no words for reduce_precision : f32\[2\]") as caught:
        write(module, "relay")
    assert caught.value.diagnostics[0].span is not None


def test_names_are_made_legal_and_distinct() -> None:
    module = dx.loads("HloModule m\nENTRY main.3 {\n  p.x = f32[2] parameter(0)\n  p_x = f32[2] negate(p.x)\n"
                      "  ROOT add-1 = f32[2] add(p.x, p_x)\n}\n")
    text = write(module, "relay")
    assert re.search(r"let %p_x_1 = negative\(%p_x\)", text)
    np.testing.assert_array_equal(dx.compile(reread(text), optimize=False)(np.ones(2, np.float32))[0], np.zeros(2))


def test_random_expressions_survive() -> None:
    """Programs put together at random from the operators: printed, read and run the same, plain and optimised."""
    rng = np.random.default_rng(7)
    unary = ["tanh({})", "negative({})", "nn.relu({})", "nn.softmax({})",
             "transpose(transpose({}))", "reshape({}, newshape=[2, 3])",
             "if (max({}) > 0.1f) {{ {} * 2f }} else {{ {} }}", "cumsum({}, axis=1)", "reverse({}, axis=1)"]
    binary = ["{} + {}", "maximum({}, {})", "where({} > 0f, {}, 1f)", "({}, {}).1", "(fn (%a, %b) {{ %a * %b }})({}, {})"]

    def expression(depth: int) -> str:
        if depth == 0:
            return "%x"
        form = str(rng.choice(unary + binary))
        inner = [expression(depth - 1 - int(rng.integers(0, 2)) if depth > 1 else 0) for _ in range(form.count("{}"))]
        return form.format(*inner)

    for _ in range(40):
        module = dx.loads(program(expression(4), (X,)), "relay")
        want = dx.compile(module, engine="numpy", optimize=False)(X)
        check_round_trip(module)
        for version in (module, dx.optimize(module)):
            got = dx.compile(reread(write(version, "relay")), optimize=False)(X)
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_long_program_is_printed() -> None:
    lines = "".join(f"  %{k + 1} = add(%{k}, %x);\n" for k in range(5_000))
    check_round_trip(dx.loads(f"def @main(%x: float32) {{\n  %0 = negative(%x);\n{lines}  %5000\n}}"))


def test_effects_without_words_are_named() -> None:
    b = Builder()
    module = Module((b.function("main", [("x", scalar(F32)), ("state", STATE)], lambda x, s: [b(print_, s, x)]),))
    with pytest.raises(VerifyError, match="Relay has no words for print"):
        write(module, "relay")


def test_loops_are_local_functions_that_call_themselves() -> None:
    hlo = """HloModule m
body {
  p = (s32[], f32[3], f32[3]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[3] get-tuple-element(p), index=1
  y = f32[3] get-tuple-element(p), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  z = f32[3] add(x, y)
  ROOT r = (s32[], f32[3], f32[3]) tuple(j, z, y)
}
cond {
  p = (s32[], f32[3], f32[3]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY main {
  i = s32[] constant(0)
  x = f32[3] parameter(0)
  y = f32[3] parameter(1)
  t = (s32[], f32[3], f32[3]) tuple(i, x, y)
  w = (s32[], f32[3], f32[3]) while(t), condition=cond, body=body
  ROOT r = f32[3] get-tuple-element(w), index=1
}
"""
    x, y = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
    for module in (dx.loads(hlo), dx.optimize(dx.loads(hlo))):
        text = write(module, "relay")
        assert "let %loop = fn (" in text
        assert "%loop(" in text
        np.testing.assert_array_equal(dx.compile(reread(text), optimize=False)(x, y)[0], x + 5 * y)


def test_the_only_value_of_a_branch_that_is_read_is_its_value() -> None:
    b = Builder()

    def main(test: Node, x: Node, y: Node) -> list[Node]:
        first, _ = b.branch(test, (b(add, x, y), x), (y, x))
        return [b(add, first, x), b(add, first, y)]

    module = Module((b.function("main", [("test", scalar(BOOL)), ("x", scalar(F32)), ("y", scalar(F32))], main),))
    again = dx.compile(reread(write(module, "relay")), optimize=False)
    assert [float(r) for r in again(np.bool_(True), np.float32(1), np.float32(2))] == [4, 5]


def test_nested_loops_with_what_they_capture() -> None:
    b = Builder()
    zero, one, n = (b.constant(k, I32) for k in (0, 1, 4))

    def main(x: Node) -> list[Node]:
        def outer(v: tuple[Node, ...]) -> tuple[Node, list[Node]]:
            i, total = v

            def inner(w: tuple[Node, ...]) -> tuple[Node, list[Node]]:
                j, s = w
                return b(compare, j, i, direction="LT"), [b(add, j, one), b(add, s, b(multiply, x, i))]

            return b(compare, i, n, direction="LT"), [b(add, i, one), b.loop([zero, total], inner)[1]]

        return [b.loop([zero, zero], outer)[1]]

    module = Module((b.function("main", [("x", scalar(I32))], main),))
    text = write(module, "relay")
    assert dx.compile(module, optimize=False)(np.int32(3))[0] == 3 * (1 * 1 + 2 * 2 + 3 * 3)
    assert dx.compile(reread(text), optimize=False)(np.int32(3))[0] == 3 * (1 * 1 + 2 * 2 + 3 * 3)
    check_round_trip(reread(text))


def test_an_inner_loop_whose_variables_start_the_same_each_time_stays_inside() -> None:
    b = Builder()
    zero, one, n, yes, no = (*(b.constant(k, I32) for k in (0, 1, 4)), b.constant(True), b.constant(False))

    def outer(v: tuple[Node, ...]) -> tuple[Node, list[Node]]:
        i, total = v
        last = b.loop([zero, yes], lambda w: (w[1], [i, no]))[0]  # only its next value depends on the outer loop
        return b(compare, i, n, direction="LT"), [b(add, i, one), b(add, total, last)]

    module = Module((b.function("main", [], lambda: [b.loop([zero, zero], outer)[1]]),))
    assert dx.compile(reread(write(module, "relay")), optimize=False)()[0] == 0 + 1 + 2 + 3


def test_a_branch_on_a_condition_of_unknown_rank_is_written() -> None:
    b = Builder()
    c, x = b.param(0, tensor(BOOL, None), "c"), b.param(1, scalar(F32), "x")
    chosen = b.branch(c, [b(add, x, x)], [b(multiply, x, x)])
    text = write(Module((Function("main", (c, x), chosen),), "main"), "relay")
    assert "if (%c) {" in text
