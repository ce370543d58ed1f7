"""What a user is told about a broken deepx file: line and column, what was expected, the nearest name; never a traceback."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from deepx_graph.errors import DeepxGraphError, Diagnostic, LimitError, ParseError, Source, VerifyError
from deepx_graph.text import ReadOptions, decode_source, read
from deepx_graph.text.deepx import read as read_deepx
from deepx_graph.text.deepx.reader.instr import MAX_PROBLEMS
from deepx_graph.verify import verify
from tests.support.deepx_texts import NORM, SAME_PROGRAM

HEAD = (
    "argset@int32 2 3->vec\nnewtensor@float32 vec->t1\nnewtensor@float32 vec->t2\n"
    "newtensor@float32 3->row\nnewtensor@int32 vec->i\n"
)
"""Five lines, so that the line after it is line 6."""


def problems(text: str, kind: type[DeepxGraphError] = DeepxGraphError, **options: Any) -> list[Diagnostic]:
    with pytest.raises(kind) as caught:
        read(Source("bad.dx", text), "deepx", ReadOptions(**options))
    assert str(caught.value)
    return list(caught.value.diagnostics)


def place(d: Diagnostic) -> tuple[int, int, str]:
    assert d.span is not None
    return d.span.line, d.span.column, d.span.text


CASES = {
    "unknown op": ("ad@float32 t1 t2->t1", ParseError, 1, "ad", "unknown operation 'ad'", "did you mean 'add'?"),
    "unknown dtype": ("add@flot32 t1 t2->t1", ParseError, 5, "flot32", "unknown element type 'flot32'", "did you mean 'float32'?"),
    "unknown dtype in a tag": ("exp (tensor<floa32>:t1) -> (t1)", ParseError, 13, "floa32",
        "unknown element type", "did you mean 'float32'?"),
    "unknown category": ("exp (tenso<float32>:t1) -> (t1)", ParseError, 6, "tenso", "unknown kind of operand", None),
    "missing arrow": ("add@float32 t1 t2 t1", ParseError, 20, "1", "the arrow '->' is missing", None),
    "missing arrow after parentheses": ("add (t1, t2) (t1)", ParseError, 12, ")", "the arrow '->' is missing", None),
    "unbalanced": ("add (t1, t2 -> (t1)", ParseError, 5, "(", "'(' without ')'", None),
    "nested parentheses": ("add (t1, (t2)) -> (t1)", ParseError, 10, "(", "'(' without ')'", None),
    "open list": ("sum (t1, [0 1) -> (row)", ParseError, 10, "[", "'[' without ']'", None),
    "open gradient": ("add@float32 t1(g t2->t1", ParseError, 15, "(", "'(' without ')'", None),
    "truncated": ("add@float32 t1 t2-", ParseError, 18, "-", "the arrow '->' is missing", None),
    "no instruction": ("= t1", ParseError, 1, "=", "not an instruction", None),
    "too few operands": ("add@float32 t1->t2", VerifyError, 1, "add", "add got 1 operand", None),
    "too many operands": ("exp@float32 t1 t2->t1", VerifyError, 16, "t2", "exp got 2 operands", None),
    "two results": ("exp@float32 t1->t1 t2", VerifyError, 20, "t2", "exp writes 1 result and got 2", None),
    "shapes differ": ("add@float32 t1 row->t2", VerifyError, 16, "row",
        "shapes differ: 'row' is an f32[3] and 't1' an f32[2,3]", "--broadcast"),
    "result does not fit": ("add@float32 t1 t2->row", VerifyError, 20, "row", "shape mismatch: the result is an f32[2,3]", None),
    "element types differ": ("add t1 i->t2", VerifyError, 8, "i", "element types differ", None),
    "line states another type": ("add@float32 t1 i->t2", VerifyError, 16, "i", "'i' is an i32[2,3] and the line says f32", None),
    "tag states another type": ("exp (tensor<int32>:t1) -> (t2)", VerifyError, 20, "t1", "the line says i32", None),
    "double creation": ("newtensor@float32 3->t1", VerifyError, 22, "t1", "'t1' is created twice", "delete it first"),
    "used before creation": ("exp@float32 late->t1\nnewtensor@float32 vec->late", VerifyError, 13, "late",
        "used before it is created", None),
    "no such gradient": ("add@float32 t1(t2) t2()<-t1", VerifyError, 26, "t1", "there is no gradient tensor 't1.grad'",
        "name the gradient"),
    "gradient left out": ("exp@float32 t1<-t2(row)", VerifyError, 20, "row", "the gradient of an f32[2,3]", None),
    "no gradient": ("less@float32 t1(t1) t2(t2)<-m", VerifyError, 29, "m", "there is no gradient tensor 'm.grad'", None),
    "print backward": ("print@float32 t1(t2)<-t2(t2)", VerifyError, 1, "print", "print has no gradient", None),
    "shape is a tensor": ("newtensor@float32 t1->n", VerifyError, 19, "t1", "'t1' is a tensor", None),
    "shape not set": ("newtensor@float32 vek->n", VerifyError, 19, "vek", "no vector 'vek' is set", "did you mean 'vec'?"),
    "negative size": ("newtensor@float32 -2->n", VerifyError, 19, "-2", "a dimension of size -2", None),
    "fraction as size": ("newtensor@float32 0.5->n", VerifyError, 19, "0.5", "'0.5' is not an integer", None),
    "too many dimensions": ("newtensor@float32" + " 1" * 40 + "->n", VerifyError, 19, "1", "a tensor of rank 40", None),
    "beyond counting": ("newtensor@float32" + " 1000000000" * 3 + "->n", VerifyError, 19, "1000000000",
        "a tensor of 1" + "0" * 27, None),
    "axis out of range": ("sum@float32 t1 2->row", VerifyError, 16, "2", "axis 2 of a tensor of rank 2", None),
    "reshape of another size": ("reshape t1 4 -> t2", VerifyError, 1, "reshape t1 4 -> t2",
        "reshape: f32[2,3] has 6 elements", None),
    "matmul that does not fit": ("matmul@float32 t1 t2->t1", VerifyError, 1, "matmul@float32 t1 t2->t1", "differ", None),
    "matmul of a row": ("matmul@float32 t1 row->t1", VerifyError, 19, "row", "matmul of f32[2,3] and f32[3]", None),
    "argument for tensor": ("exp@float32 vec->t1", VerifyError, 13, "vec", "'vec' is an argument", None),
    "vector for scalar": ("constant@float32 vec->t1", VerifyError, 18, "vec", "'vec' has 2 values", None),
    "infinity as integer": ("constant@int32 inf->i", VerifyError, 16, "inf", "inf as an element of type i32", None),
    "not a number": ("argset@int32 0 keepdim->v2", VerifyError, 16, "keepdim", "'keepdim' is not a number", None),
    "shape of nobody": ("constant@float32 1->rows", VerifyError, 21, "rows", "'rows' was never created: constant needs its shape",
                        "did you mean 'row'?"),
    "not a bool": ("sum (t1, [0], maybe) -> (row)", VerifyError, 15, "maybe", "'maybe' is not a bool", None),
    "cases of floats": ("switch (listtensor<float32>:[t1 t2], t1) -> (t2)", VerifyError, 38, "t1", "'t1' is an f32[2,3]", None),
    "load with result": ("load (var<string>:a/b) -> (t1)", VerifyError, 28, "t1", "load writes nothing", None),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_one_mistake_one_diagnostic(case: str) -> None:
    line, kind, column, marked, message, hint = CASES[case]
    (found,) = problems(HEAD + line + "\n", kind)
    assert place(found) == (6, column, marked)
    assert message in found.message
    assert hint is None or (found.hint is not None and hint in found.hint)
    assert f"bad.dx:6:{column}: error: " in found.render()


def test_use_after_delete_says_where_it_was_deleted() -> None:
    (found,) = problems(HEAD + "deltensor t1\nadd@float32 t2 t1->t2\n", VerifyError)
    assert place(found) == (7, 16, "t1")
    assert found.notes == ("deleted in line 6",)


def test_writing_to_a_deleted_or_renamed_tensor() -> None:
    text = HEAD + "deltensor t1\nexp@float32 t2->t1\nrenametensor (var<string>:new) -> (t2)\nexp@float32 t2->new\n"
    assert [place(d) for d in problems(text, VerifyError)] == [(7, 17, "t1"), (9, 13, "t2")]


def test_all_mistakes_of_a_phase_are_reported_in_order() -> None:
    text = HEAD + "exp@float32 t1 t2->t1\nadd@float32 t1 row->t2\nexp@float32 t1->t2\nadd@float32 t1->t2\n"
    assert [d.span.line for d in problems(text, VerifyError) if d.span] == [6, 7, 9]
    text = "foo t1->t2\nadd (t1 -> (t2)\nbar t1->t2\n"
    assert [d.span.line for d in problems(text, ParseError) if d.span] == [1, 2, 3]


def test_a_failed_creation_is_not_reported_again_where_the_name_is_used() -> None:
    (found,) = problems("newtensor@float32 -1->t\nexp@float32 t->t\nadd@float32 t t->u\n")
    assert place(found)[0] == 1


def test_a_flood_of_mistakes_is_cut_off() -> None:
    assert len(problems("foo a->b\n" * 5000)) <= 2 * MAX_PROBLEMS


def test_lone_arrow_head_is_not_taken_where_types_stand() -> None:
    assert problems("exp tensor<float32>:t1 t2\n", ParseError)[0].message == "the arrow '->' is missing"


# --- hostile texts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", " \n\t\n", "// only a comment\n", "\x00\x01\x02", "\ufffd\u202e\x1b[31m)(\n"])
def test_texts_that_are_no_program(text: str) -> None:
    found = problems(text, ParseError)
    assert found
    assert all(c.isprintable() or c == "\n" for c in found[0].render())


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(ParseError, match="is machine code"):
        decode_source(b"\x7fELF\x02\x00\xff\xfe", "bad.dx", 1 << 20)


@pytest.mark.parametrize(
    ("line", "message"),
    [("newtensor@float32 " + "1 " * 5_000_000 + "-> t", "a line of 10000022 characters"), ("add (" + "t1," * 500_000, "a line of"),
     ("a" * 2_000_000, "a line of"), ("func f(" + "a: i32, " * 1_000_000, "a line of"),
     ("add " + "(" * 10_000 + "t" + ")" * 10_000 + " -> (t)", "'(' without ')'"),
     ("sum (t, " + "[" * 10_000 + "] -> (t)", "without"),
     ("func f(a: " + "list<" * 10_000 + "i32" + ">" * 10_000 + ") -> () {\n}", "too deeply")],
)  # fmt: skip
def test_huge_lines_and_deep_nesting_fail_at_once(line: str, message: str) -> None:
    (found,) = problems(line, ParseError)
    assert message in found.message
    assert len(found.render()) < 1000


def test_a_tensor_of_a_million_million_elements_can_be_read() -> None:
    result = read(Source("big.dx", "newtensor@float32 1000000 1000000->t\nexp@float32 t->t\n"))
    assert str(result.module.entry.results[0].type) == "f32[1000000,1000000]"


def test_more_instructions_than_nodes_are_allowed() -> None:
    assert issubclass(LimitError, DeepxGraphError)
    (found,) = problems(HEAD, LimitError, max_nodes=3)
    assert "5 instructions, more than 3 nodes" in found.message


@pytest.mark.parametrize("name", ["__import__('os')", "a\\b", "'\"", "<b>x</b>", "\x1b[31mred", "\u202eevil", "{0}%s%n"])
def test_hostile_names_are_names(name: str) -> None:
    text = f"newtensor (vector<int32>:[2]) -> (tensor<float32>:{name.replace('(', '').replace(')', '')})\n"
    module = read_deepx(Source("x.dx", text), ReadOptions()).module
    verify(module)
    assert module.entry.result_names == (name.replace("(", "").replace(")", ""),)
    shown = problems(text + text, VerifyError)[0].render()
    assert all(c.isprintable() or c == "\n" for c in shown)


# --- functions ----------------------------------------------------------------------------------------------------

FUNCTION_CASES = {
    "no arrow after parameters": ("func f(a: tensor<f32>) {\n}\n", ParseError, 1, 24, "{"),
    "unknown type": ("func f(a: tensor<2xf33>) -> (b: tensor<f32>) {\n}\n", ParseError, 1, 20, "f33"),
    "bad shape": ("func f(a: tensor<2xyxf32>) -> (b: tensor<f32>) {\n}\n", ParseError, 1, 18, "2xy"),
    "body not closed": ("func f(a: tensor<f32>) -> (b: tensor<f32>) {\n exp(a)-> b\n", ParseError, 3, 1, ""),
    "comma missing": ("func f(a: tensor<f32>) -> (b: tensor<f32>) {\n add(a a)-> b\n}\n", ParseError, 2, 8, "a"),
    "unknown op": ("func f(a: tensor<f32>) -> (b: tensor<f32>) {\n epx(a)-> b\n}\n", ParseError, 2, 2, "epx"),
    "call without arrow": ("func f(a: tensor<f32>) -> (b: tensor<f32>) {\n f(a)\n}\n", ParseError, 2, 5, ")"),
    "defined twice": ("func f() -> () {\n}\nfunc f() -> () {\n}\n", ParseError, 3, 6, "f"),
    "free name": ("func f(a: tensor<f32>) -> (b: tensor<f32>) {\n add(a, c)-> b\n}\n", VerifyError, 2, 9, "c"),
    "result never written": ("func f(a: tensor<f32>) -> (b: tensor<f32>) {\n}\n", VerifyError, 1, 28, "b"),
    "read before written": ("func f(a: tensor<f32>) -> (b: tensor<f32>) {\n add(a, b)-> b\n}\n", VerifyError, 2, 9, "b"),
    "wrong argument count": ("func g(a: tensor<f32>) -> (b: tensor<f32>) {\n exp(a)-> b\n}\n"
                             "func f(a: tensor<f32>) -> (b: tensor<f32>) {\n"
                             " g(a, a)-> b\n}\n", VerifyError, 5, 2, "g"),
    "a symbol for two sizes": ("func g(a: tensor<?1x?1xf32>) -> (b: tensor<?1x?1xf32>) {\n exp(a)-> b\n}\n"
                               "func f(a: tensor<2x3xf32>) -> (b: tensor<2x3xf32>) {\n g(a)-> b\n}\n", VerifyError, 5, 4, "a"),
    "axis is a parameter": ("func f(a: tensor<2xf32>, n: i32) -> (b: tensor<f32>) {\n sum(a, n, false)-> b\n}\n",
                            VerifyError, 2, 9, "n"),
}  # fmt: skip


@pytest.mark.parametrize("case", FUNCTION_CASES)
def test_mistakes_in_functions(case: str) -> None:
    text, kind, line, column, marked = FUNCTION_CASES[case]
    found = problems(text, kind)
    assert (line, column, marked) in [place(d) for d in found]
    assert len(found) == 1


DOCUMENTED_EXAMPLE = """func fused_linear_norm(
    A: tensor<?1x?2xf32>, W: tensor<?2x?3xf32>, b: tensor<?3xf32>, axis: i32, keepdims: bool
) -> (out: tensor<?1x?3xf32>) {
    newtensor(?1x?3, f32)->(mm)
    matmul(A, W)-> (mm)
    newtensor(?1x?3, f32)-> bias
    add(mm, b)-> bias
    deltensor(mm)-> mm
    constant(1e-5)-> eps
    newtensor(?1, f32)-> std
    sum(bias, axis, keepdims)-> std
    add(std, eps)-> std
    deltensor(std)-> std
    div(bias, std)-> out
}
func example_use_fused_linear_norm() -> (out: tensor<2x3xf32>) {
    newtensor([2,4], f32)-> A
    newtensor([4,3], f32)-> W
    newtensor([3], f32)-> b
    fused_linear_norm(A, W, b, 1, false) -> out
}
"""


def test_the_faults_of_the_documented_example_are_found() -> None:
    """As in deepx's own document: a broadcast nobody asked for, and a tensor used after it was deleted."""
    found = [place(d)[::2] for d in problems(DOCUMENTED_EXAMPLE, VerifyError)]
    assert found == [(7, "b"), (14, "std")]


# --- anything at all ----------------------------------------------------------------------------------------------

_TOKENS = re.compile(r"[\w.]+|\s+|.")
_SCRAPS = [
    "->", "<-", "(", ")", "[", "]", ",", ":", "0", "-1", "1e400", "nan", "9" * 30, "tensor<float32>:t", "vector<int32>:[2 3]",
    "?1", "@", "//", "\n", "float32", "[t u]", "True", "", "matmul", "transpose", "switch", "load", "argset", "\u202e",
]  # fmt: skip


def _told(text: str, options: ReadOptions) -> str | None:
    """What the user reads about the text; None when it is a program that verifies."""
    try:
        verify(read_deepx(Source("damaged.dx", text), options).module)
    except DeepxGraphError as e:
        return str(e)
    return None


@pytest.mark.parametrize("seed", range(6))
def test_damaged_programs_are_read_or_refused_and_nothing_else(seed: int) -> None:
    rng = random.Random(seed)
    texts = [*SAME_PROGRAM.values(), NORM, HEAD + "add@float32 t1(t2) t2(t1)<-t2(t2)\n"]
    for _ in range(150):
        tokens = _TOKENS.findall(rng.choice(texts))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(tokens))
            tokens[at : at + rng.randint(0, 2)] = rng.choice([[], [rng.choice(_SCRAPS)], [rng.choice(tokens)]])
            tokens = tokens or [""]
        told = _told("".join(tokens), ReadOptions(broadcast=rng.random() < 0.3))
        assert told is None or "error: " in told
