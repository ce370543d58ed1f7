"""HLO text: real programs against what XLA computed, the parser's own suite, and errors at their places."""

from __future__ import annotations

import numpy as np
import pytest

from deepx_graph.errors import ParseError, RunError, Source, VerifyError
from deepx_graph.ir.structure import LOOP_END, REGION
from deepx_graph.ops import OPS
from deepx_graph.text import ReadOptions, detect
from deepx_graph.text.hlo import read
from deepx_graph.text.hlo.literals import parse_literal
from deepx_graph.text.hlo.shapes import parse_shape
from deepx_graph.types import BF16, BOOL, C64, F32, I32, STATE, TupleType, tensor
from deepx_graph.verify import verify
from tests.support import jax_corpus
from tests.support.reference import evaluate
from tests.support.xla_texts import LOOP


@jax_corpus.needs_corpus
@pytest.mark.parametrize("name", jax_corpus.files("hlo"))
def test_real_programs_mean_what_xla_computed(name: str) -> None:
    module = jax_corpus.load(name)
    verify(module)
    assert jax_corpus.mismatches(name, evaluate(module, jax_corpus.arguments(name, module))) == []


# --- by hand


def load(text: str):
    return read(Source("t.hlo", text), ReadOptions()).module


def test_a_while_becomes_a_loop_with_a_variable_per_leaf() -> None:
    module = load(LOOP)
    ends = [n for n in module.entry.nodes if n.op is LOOP_END]
    assert len(ends) == 1
    assert len(ends[0].inputs) == 2 + 2
    np.testing.assert_array_equal(evaluate(module, [np.array([1, 2], "f4")])[0], [32, 64])


def test_a_conditional_becomes_a_region() -> None:
    module = load("""HloModule c
t { p = f32[] parameter(0) ROOT r = f32[] negate(p) }
f { ROOT p = f32[] parameter(0) }
ENTRY main { c = pred[] parameter(0) x = f32[] parameter(1)
 ROOT r = f32[] conditional(c, x, x), true_computation=t, false_computation=f }""")
    assert any(n.op is REGION for n in module.entry.nodes)
    assert evaluate(module, [np.array(True), np.float32(3)]) == [-3]
    assert evaluate(module, [np.array(False), np.float32(3)]) == [3]


def test_definitions_may_stand_after_their_use() -> None:
    module = load("HloModule m\nENTRY e {\n ROOT r = f32[] add(a, b)\n a = f32[] constant(1)\n b = f32[] constant(2)\n}")
    assert evaluate(module, []) == [3]


def test_unknown_calls_are_kept_as_they_stand() -> None:
    module = load("""HloModule m
ENTRY e { x = f32[2] parameter(0)
 ROOT c = f32[2] custom-call(x), custom_call_target="my.kernel" }""")
    assert module.entry.results[0].op is OPS["custom_call"]
    assert module.entry.results[0].attr("target") == "my.kernel"


START = "HloModule m\nENTRY e {\n x = f32[2] parameter(0)\n"


@pytest.mark.parametrize(
    ("text", "line", "column", "message", "error"),
    [
        (START + " ROOT y = f32[2] ad(x, x)\n}", 4, 18, "unknown operation 'ad'", ParseError),
        (START + " ROOT y = f32[2] add(x, z)\n}", 4, 25, "no instruction 'z'", ParseError),
        ("HloModule m\nENTRY e {\n x = f23[2] parameter(0)\n}", 3, 6, "unknown element type 'f23'", ParseError),
        ("HloModule m\nENTRY e {\n x = f32[2]{1} parameter(0)\n}", 3, 6, "does not name its dimensions", ParseError),
        (START + " ROOT y = f32[2]{1,0} add(x, x)\n}", 4, 11, "does not name its dimensions", ParseError),
        ("HloModule m\nENTRY e {\n x = f32[2] constant({1, 2, 3})\n}", 3, 22, "braces do not have the shape", ParseError),
        (START + " ROOT y = f32[3] negate(x)\n}", 4, 2, "text says f32[3]", VerifyError),
        ("HloModule m\nENTRY e {\n x = f32[2] iota(), iota_dimension=0", 3, 36, "text ends inside", ParseError),
        ("HloModule m\nENTRY e {\n x = f32[2] parameter(0), dims={1}\n}", 3, 32, "no attribute 'dims'", ParseError),
        ("HloModule m /* and no end", 1, 13, "comment that does not end", ParseError),
    ],
)  # fmt: skip
def test_errors_have_their_location(text: str, line: int, column: int, message: str, error) -> None:
    with pytest.raises(error) as failure:
        load(text)
    (diagnostic,) = failure.value.diagnostics
    assert message in diagnostic.message
    assert (diagnostic.span.line, diagnostic.span.column) == (line, column)


@pytest.mark.parametrize(
    ("line", "message", "words"),
    [
        ("s = (f32[2], u32[], token[]) send(x, t), chanel_id=1", "send has no attribute 'chanel_id'", "did you mean 'channel_id'?"),
        ("s = f32[2] negate(x), control-predecessors={y}", "no instruction 'y' in this computation", ""),
        ("s = f32[2] negate(x), to_apply=e", "negate has no attribute 'to_apply'", "expected: none of its own"),
        ("s = f32[2] infeed(t)", "infeed gives an f32[2]", "expected: a tuple of the data and a token"),
        ("s = f32[2] custom-call(x), custom_call_target=\"a\", operand_layout_constraints={f32[3]}", "is for an f32[3]", "f32[2]"),
        ("s = f32[2] conditional(x), branch_computations={e}", "0 operands for them", ""),
    ],
)  # fmt: skip
def test_faults_of_attributes_are_named(line: str, message: str, words: str) -> None:
    with pytest.raises(ParseError) as failure:
        load(START + f" t = token[] after-all()\n {line}\n}}")
    assert message in str(failure.value)
    assert words in str(failure.value)


def test_computations_that_nothing_reaches_are_checked_too() -> None:
    with pytest.raises(ParseError, match="no instruction 'y'"):
        load("HloModule m\nc { x = f32[] parameter(0)\n ROOT n = f32[] negate(y) }\nENTRY e { ROOT x = f32[] parameter(0) }")


def test_shapes_that_cannot_be_right_are_kept_with_a_warning() -> None:
    result = read(Source("t.hlo", START + " c = f32[] constant(0)\n ROOT y = f32[9] pad(x, c), padding=1_1\n}"), ReadOptions())
    (warning,) = result.warnings
    assert warning.severity == "warning"
    assert "pad gives an f32[4] and the text says f32[9]" in warning.message
    with pytest.raises(RunError, match="'pad' cannot be run"):
        evaluate(result.module, [np.zeros(2, "f4")])


def test_start_indices_may_be_one_vector() -> None:
    module = load("""HloModule m
ENTRY e { x = f32[3,4] parameter(0) i = s32[2] parameter(1)
 s = f32[1,2] dynamic-slice(x, i), dynamic_slice_sizes={1,2}
 ROOT u = f32[3,4] dynamic-update-slice(x, s, i) }""")
    x = np.arange(12, dtype="f4").reshape(3, 4)
    np.testing.assert_array_equal(evaluate(module, [x, np.array([1, 2], "i4")])[0], x)


def test_recognised_by_content() -> None:
    assert detect(LOOP) == "hlo"
    assert detect("ENTRY main {\n  ROOT %x = f32[2]{0} parameter(0)\n}\n") == "hlo"


def test_shapes() -> None:
    assert parse_shape("f32[2,3]{1,0:T(8,128)S(1)} rest", 0) == (tensor(F32, (2, 3)), 26)
    assert parse_shape("(s32[], /*index=1*/pred[4]{0}, (bf16[]), token[])", 0)[0] == TupleType(
        (tensor(I32), tensor(BOOL, (4,)), TupleType((tensor(BF16),)), STATE))
    assert parse_shape("f32[<=6]", 0)[0] == tensor(F32, (6,))


def test_literals() -> None:
    got = parse_literal("{ { 1, -0 }, /*i0=1*/ { nan, -inf } }", tensor(F32, (2, 2))).array
    np.testing.assert_array_equal(got, [[1, -0.0], [np.nan, -np.inf]])
    assert np.signbit(got[0, 1])
    assert parse_literal("nan(0x1)", tensor(F32)).array.view(np.uint32) == 0x7F800001
    assert parse_literal("(3, -inf)", tensor(C64)).array == complex(3, -np.inf)
    assert parse_literal("{}", tensor(F32, (0,))).array.shape == (0,)
