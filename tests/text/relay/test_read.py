"""Reading Relay: TVM's own programs and texts, every operator against numpy, types that are inferred, errors with their places."""

from __future__ import annotations

import re
from contextlib import suppress

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import DeepxGraphError, LimitError, ParseError, Source, VerifyError
from deepx_graph.ir.structure import CALL, PARTIAL
from deepx_graph.ops import opaque
from deepx_graph.text import ReadOptions, detect, read
from deepx_graph.types import F32, I32, DataType, FunctionType, RefType, scalar, tensor
from deepx_graph.verify import verify
from tests.support.relay_corpus import CORPUS, SUITE, corpus, load, suite
from tests.support.relay_operators import IMAGE, OPERATORS, RNG, X, Y, program
from tests.support.relay_programs import LIST, PROGRAMS


def run(text: str, *inputs: object, optimised: bool = False) -> list[np.ndarray]:
    module = dx.loads(text, "relay")
    return list(dx.compile(dx.optimize(module) if optimised else module, optimize=False)(*inputs))


# --- TVM's own -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", corpus())
def test_the_corpus_gives_what_tvm_gave(name: str) -> None:
    module = load(CORPUS / name)
    with np.load(CORPUS / f"{name.split('.')[0]}.npz") as z:
        inputs = [z[f"in{k}"] for k in range(sum(n.startswith("in") for n in z.files))]
        want = [z[f"out{k}"] for k in range(sum(n.startswith("out") for n in z.files))]
    for version in (module, dx.optimize(module)):
        outs = dx.compile(version, optimize=False)(*inputs)
        assert len(outs) == len(want)
        for got, expected in zip(outs, want, strict=True):
            assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def fault(source: Source) -> DeepxGraphError | None:
    try:
        verify(read(source, "relay").module)
    except DeepxGraphError as e:
        return e
    return None


def test_the_suite_is_accepted_and_refused_as_by_tvm() -> None:
    cases = [c for c in suite() if c["tvm016"].startswith("ok") or c["expect"] == "error"]
    if not cases:
        pytest.skip("the suite of texts is not there")
    wrong = []
    for case in cases:
        error = fault(Source(case["file"], (SUITE / case["file"]).read_text()))
        if (error is None) is (case["expect"] == "error"):
            wrong.append(case["file"])
        elif error is not None and any(d.span is None for d in error.diagnostics):
            wrong.append(f"{case['file']}: no place")
    assert not wrong


def test_the_suite_is_recognised() -> None:
    for case in suite():
        text = (SUITE / case["file"]).read_text()
        if "def @" in text or "#[version" in text or "Tensor[(" in text:
            assert detect(text) == "relay", case["file"]


# --- operators -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("expression", "inputs", "want"), OPERATORS, ids=[e for e, _, _ in OPERATORS])
def test_operators_give_what_numpy_gives(expression: str, inputs: tuple[np.ndarray, ...], want: np.ndarray) -> None:
    for optimised in (False, True):
        got = run(program(expression, inputs), *inputs, optimised=optimised)[0]
        assert got.dtype == np.asarray(want).dtype
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)


def conv2d(x: np.ndarray, w: np.ndarray, stride: int = 1) -> np.ndarray:
    """Plain loops: NCHW by OIHW, no padding."""
    height, width = ((x.shape[k] - w.shape[k]) // stride + 1 for k in (2, 3))
    out = np.zeros((x.shape[0], w.shape[0], height, width), np.float32)
    for i in range(height):
        for j in range(width):
            patch = x[:, :, i * stride : i * stride + w.shape[2], j * stride : j * stride + w.shape[3]]
            out[:, :, i, j] = np.tensordot(patch, w, ((1, 2, 3), (1, 2, 3)))
    return out


def test_convolutions_in_their_layouts() -> None:
    w = RNG.standard_normal((3, 2, 2, 2)).astype(np.float32)
    want = conv2d(IMAGE, w, 2)
    plain = "def @main(%x: Tensor[(1, 2, 4, 4), float32], %w: Tensor[(3, 2, 2, 2), float32]) { nn.conv2d(%x, %w, strides=[2, 2]) }"
    np.testing.assert_allclose(run(plain, IMAGE, w)[0], want, rtol=1e-5, atol=1e-5)
    last = ("def @main(%x: Tensor[(1, 4, 4, 2), float32], %w: Tensor[(2, 2, 2, 3), float32]) {"
            ' nn.conv2d(%x, %w, strides=[2, 2], data_layout="NHWC", kernel_layout="HWIO") }')
    got = run(last, IMAGE.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0))[0]
    np.testing.assert_allclose(got.transpose(0, 3, 1, 2), want, rtol=1e-5, atol=1e-5)


def test_a_depthwise_convolution() -> None:
    w = RNG.standard_normal((2, 2, 2, 1)).astype(np.float32)  # HWOI
    text = ("def @main(%x: Tensor[(1, 4, 4, 2), float32], %w: Tensor[(2, 2, 2, 1), float32]) { nn.conv2d(%x, %w, groups=2,"
            ' channels=2, kernel_size=[2, 2], data_layout="NHWC", kernel_layout="HWOI") }')
    got = run(text, IMAGE.transpose(0, 2, 3, 1), w)[0]
    want = np.concatenate([conv2d(IMAGE[:, k : k + 1], w[None, :, :, k, :].transpose(0, 3, 1, 2)) for k in (0, 1)], 1)
    np.testing.assert_allclose(got.transpose(0, 3, 1, 2), want, rtol=1e-5, atol=1e-5)


def test_the_transpose_of_a_convolution() -> None:
    """<conv(x, w), y> = <x, conv_transpose(y, w)>."""
    w = RNG.standard_normal((3, 2, 2, 2)).astype(np.float32)
    y = RNG.standard_normal((1, 3, 2, 2)).astype(np.float32)
    text = ("def @main(%y: Tensor[(1, 3, 2, 2), float32], %w: Tensor[(3, 2, 2, 2), float32]) {"
            " nn.conv2d_transpose(%y, %w, strides=[2, 2]) }")
    got = run(text, y, w)[0]
    np.testing.assert_allclose((got * IMAGE).sum(), (conv2d(IMAGE, w, 2) * y).sum(), rtol=1e-4)


def test_batch_norm_gives_three_values() -> None:
    text = ("def @main(%x: Tensor[(2, 3), float32], %y: Tensor[(3), float32]) {"
            " nn.batch_norm(%x, %y, %y, %y, abs(%y), epsilon=0.001f) }")
    out, mean, var = run(text, X, Y)
    np.testing.assert_allclose(out, (X - Y) / np.sqrt(np.abs(Y) + 1e-3) * Y + Y, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(mean, Y)
    np.testing.assert_array_equal(var, np.abs(Y))


def test_unknown_operators_survive() -> None:
    text = ("def @main(%x: Tensor[(2, 3), float32])"
            ' { %0 = vision.nms(%x, iou=0.5f, mode="a") /* ty=Tensor[(1), int32] */; %0 + 1 }')
    module = dx.loads(text)
    (node,) = [n for n in module.entry.nodes if n.op is opaque]
    assert node.attrs == ("vision.nms", 'iou=0.5f, mode="a"', tensor(I32, (1,)), "relay")
    with pytest.raises(DeepxGraphError, match=r"vision\.nms"):
        dx.compile(module, optimize=False)(X)


# --- functions, data, references -------------------------------------------------------------------------------------

@pytest.mark.parametrize(("text", "x", "want"), PROGRAMS, ids=range(len(PROGRAMS)))
def test_functional_programs(text: str, x: int, want: object) -> None:
    wanted = want if isinstance(want, tuple) else (want,)
    for optimised in (False, True):
        assert tuple(o.item() for o in run(text, np.int32(x), optimised=optimised)) == wanted


def test_a_partial_match_that_does_not_fit_ends_the_run() -> None:
    text = LIST + "def @main(%x: int32) { match? (if (%x > 0) { Cons(%x, Nil) } else { Nil }) { Cons(%h, _) => %h } }"
    assert run(text, np.int32(3))[0] == 3
    with pytest.raises(DeepxGraphError, match="no pattern of the match fits"):
        run(text, np.int32(0))


def test_literals_become_functions_that_capture() -> None:
    module = dx.loads("def @main(%x: int32) { let %f = fn (%z: int32) { %z + %x }; %f(%f(1)) }")
    assert [f.name for f in module.functions] == ["main", "main.f"]
    assert [p.name for p in module["main.f"].params] == ["x", "z"]
    (closure,) = [n for n in module.entry.nodes if n.op is PARTIAL]
    assert closure.type == FunctionType((scalar(I32),), (scalar(I32),))
    assert [n.op for n in module.entry.nodes].count(CALL) == 0


# --- types -----------------------------------------------------------------------------------------------------------

TYPES = [
    ("fn (%x: float32) { %x + 1f }", FunctionType((scalar(F32),), (scalar(F32),))),
    ("let %id = fn (%x) { %x }; %id(1.5f)", scalar(F32)),
    ("let %r = ref(2f); %r", RefType(scalar(F32))),
    ("free_var %x: Tensor[(?, 3), float32]; sum(%x, axis=[0])", tensor(F32, (3,))),
    ('let %f = fn (%a, %b) { nn.dense(%a, %b) }; %f(ones(shape=[2, 3], dtype="float32"), ones(shape=[4, 3], dtype="float32"))',
     tensor(F32, (2, 4))),
]  # fmt: skip


@pytest.mark.parametrize(("text", "type"), TYPES, ids=[t for t, _ in TYPES])
def test_types_are_inferred(text: str, type: object) -> None:
    assert dx.loads(text, "relay").entry.results[0].type == type


def test_types_that_a_call_states() -> None:
    text = LIST + "def @id[A](%x: A) -> A { %x }\ndef @main(%x: float32) { (@id[List[float32]](Nil), Cons[float32](%x, Nil)) }"
    assert str(dx.loads(text).entry.results[0].type) == "(List<f32[]>, List<f32[]>)"
    for wrong in ("@id[int32](%x)", "@id[A, B](%x)", "Cons[int32](%x, Nil)", "@id[int32, int32](%x)"):
        with pytest.raises(DeepxGraphError):
            dx.loads(LIST + f"def @id[A](%x: A) -> A {{ %x }}\ndef @main(%x: float32) {{ {wrong} }}")


def test_data_types_of_generic_constructors() -> None:
    module = dx.loads(LIST + "def @main(%x: float32) { Cons(%x, Nil) }")
    assert module.entry.results[0].type == DataType("List", (scalar(F32),))
    assert module.datas[0].name == "List"


# --- what is refused ---------------------------------------------------------------------------------------------------

ERRORS = [
    ("def @main(%x: float32) { %y }", 1, "%y is not defined here"),
    ("def @main(%xs: float32) { %x }", 1, "did you mean '%xs'"),
    ("def @main(%x: float32) { @f(%x) }", 1, "no function '@f' is defined"),
    ("def @main(%x: float32) {\n add(%x) }", 2, "add takes 2 operands and got 1"),
    ("def @main(%x: float32, %y: int32) {\n %x + %y }", 2, "add"),
    ("def @main(%x: Tensor[(2), float32], %y: Tensor[(3), float32]) {\n %x + %y }", 2, "do not broadcast"),
    ("def @main(%x: float32) -> int32 {\n %x }", 2, "expected: int32"),
    ("def @main(%x: float32) {\n if (%x) { 1 } else { 2 } }", 2, "the condition"),
    ("def @main(%c: bool) {\n if (%c) { 1 } else { 2f } }", 2, "the other branch"),
    ("def @main(%x: Tensr[(2), float32]) { %x }", 1, "no type 'Tensr' has sizes"),
    ("def @main(%x: Tensor[(2), flaot32]) { %x }", 1, "did you mean 'float32'"),
    (LIST + "def @main(%l: List[int32]) {\n match (%l) { Cons(%h, _) => %h } }", 3, "a clause for Nil"),
    (LIST + "def @main(%l: List[int32]) {\n match (%l) { Cons(%h) => %h, Nil => 0 } }", 3, "Cons has 2 fields"),
    (LIST + "def @main() {\n Const(1, Nil) }", 3, "did you mean 'Cons'"),
    ("def @main(%x: float32) { reshape(%x, newshape=[2, -1]) }", 1, "do not fill"),
    ("def @main(%x: (int32, int32)) { %x.2 }", 1, "item 2 of a tuple of 2"),
    ("def @main(%x: float32) { %x(1) }", 1, "cannot call a float32"),
    ("def @main(%x: List[float32]) { %x }", 1, "no type 'List' is defined"),
    ("def @main(%x: float32) { let %f = fn (%g) { %g(%g) }; 1 }", 1, "contain itself"),
    ("def @main() { 300i8 }", 1, "out of range for int8"),
    ("def @main() { /* no end }", 1, "does not end"),
    ("def @main() { meta[relay.Constant][0] }", 1, "#\\[metadata\\]"),
    ("def @main() { 1 }\n#[metadata]\n{ \"nodes\": 3 }", 2, "damaged"),
    ("def @main(%x: int32, %x: int32) { 1 }", 1, "two parameters"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "message"), ERRORS, ids=[m for _, _, m in ERRORS])
def test_errors_say_where_and_what(text: str, line: int, message: str) -> None:
    with pytest.raises((ParseError, VerifyError), match=message) as caught:
        dx.loads(text, "relay")
    span = caught.value.diagnostics[0].span
    assert span is not None
    assert span.line == line


def test_bounds_are_kept() -> None:
    for text in ("(" * 5000 + ")" * 5000, "-" * 5 + "(" * 200 + "1" + ")" * 200, "fn () " * 500 + "{ 1 }", "let %x = " * 300 + "1"):
        with pytest.raises(DeepxGraphError):
            dx.loads(text, "relay")
    with pytest.raises(LimitError):
        read(Source("", "def @main(%x: int32) { %x + %x + %x + %x }"), "relay", ReadOptions(max_nodes=2))


@pytest.mark.parametrize(("opening", "closing"), [
    ("1 == 2 + 3 * (", ")"), ("f(1 == 2 + 3 * ", ")"), ("match ", ""), ("1 + match (%x) { _ => ", "}"), ("let %y = 1 + (", "); %y"),
    ("{", "}"), ("(", ")"), ("fn() {", "}"), ("if (True) { 1 } else {1 + ", "}")])
@pytest.mark.parametrize("depth", [24, 48, 98, 500])
def test_nesting_of_any_kind_ends_before_the_stack_does(opening: str, closing: str, depth: int) -> None:
    with suppress(DeepxGraphError):
        dx.loads(f"def @main(%x: int32) {{ {opening * depth} %x {closing * depth} }}", "relay")


def test_a_long_program_costs_no_depth() -> None:
    lines = "".join(f"  %{k + 1} = add(%{k}, %x);\n" for k in range(20_000))
    module = dx.loads(f"def @main(%x: float32) {{\n  %0 = negative(%x);\n{lines}  %20000\n}}")
    assert len(module.entry.nodes) == 20_002


def damaged(text: str, rng: np.random.Generator) -> str:
    """The text with a few of its words lost, doubled or put elsewhere."""
    words = re.findall(r"[%@]?[\w.]+|\s+|.", text, re.DOTALL)
    for _ in range(int(rng.integers(1, 5))):
        k, other = (int(rng.integers(0, len(words))) for _ in range(2))
        words[k : k + int(rng.integers(0, 2))] = [words[other]] if rng.random() < 0.6 else []
        words = words or ["x"]
    return "".join(words)


def test_damaged_texts_end_in_a_diagnostic() -> None:
    texts = [program(e, i) for e, i, _ in OPERATORS] + [t for t, _, _ in PROGRAMS]
    rng = np.random.default_rng(11)
    accepted = 0
    for _ in range(600):
        text = damaged(texts[int(rng.integers(0, len(texts)))], rng)
        error = fault(Source("damaged", text))
        accepted += error is None
        assert error is None or all(d.span is not None for d in error.diagnostics) or not text.strip(), text
    assert 0 < accepted < 600


def test_long_chains_are_no_deep_trees() -> None:
    module = dx.loads("def @main(%x: float32) { %x" + " + %x" * 3000 + " }")
    np.testing.assert_allclose(dx.compile(module, engine="numpy", optimize=False)(np.float32(1))[0], 3001)
    for text in ("-" * 3000 + "%x", "%x" + ".0" * 3000, "%x" + "()" * 3000, "if (%c) { %x } else " * 3000 + "{ %x }"):
        with pytest.raises(DeepxGraphError):
            dx.loads(f"def @main(%x: float32, %c: bool) {{ {text} }}", "relay")


ESCAPING = """#[version = "0.0.5"]
def @main(%x: Tensor[(2), float32], %c: bool) -> Tensor[(2), float32] {
  %1 = (
    let %inner = add(%x, %x);
    %0 = multiply(%inner, %inner);
    subtract(%0, %x)
  );
  %2 = add(%1, %inner);
  let %r = if (%c) {
    %3 = tanh(%0);
    %3
  } else {
    add(%3, %3)
  };
  %4 = fn (%z: Tensor[(2), float32]) { add(%z, %inner) };
  %5 = %4(%r);
  add(%5, multiply(%2, %3))
}
"""


def test_variables_of_a_block_that_has_ended_are_known_behind_it() -> None:
    """TVM prints what is shared where it first meets it, be it in a nested block, as its gradients have them."""
    with pytest.warns(UserWarning, match="used outside the block that binds it") as told:
        module = dx.loads(ESCAPING)
    assert sorted(str(w.message).split(" is used")[0].split()[-1] for w in told) == ["%0", "%3", "%inner"]
    x = np.array([0.5, -2], "f4")
    inner = x + x
    first = inner * inner
    third = np.tanh(first)
    for c in (True, False):
        wanted = (third if c else third + third) + inner + (first - x + inner) * third
        for found in (module, dx.loads(dx.dumps(module, "relay"))):  # and the warnings are gone: it is written as it is meant
            np.testing.assert_allclose(dx.compile(found, optimize=False)(x, np.array(c))[0], wanted, rtol=1e-6)


@pytest.mark.parametrize("text", [
    "if (True) { let %x = 1f; %x } else { %x }",
    "let %f = fn (%a: float32) { let %b = %a; %b }; %b",
    "let %f = fn (%a: float32) { %1 = add(%a, %a); %1 }; %1",
    "type T { A(float32), B }  def @main(%t: T) -> float32 { add(match (%t) { A(%v) => %v, B => 0f }, %v) }",
])
def test_what_may_never_have_had_a_value_is_not_known(text: str) -> None:
    with pytest.raises(ParseError, match="is not defined here"):
        dx.loads(text, "relay")
