"""Declared forms of the sea text: what they look like, that the general form reads too, and what is said when one is not met."""

from __future__ import annotations

import pytest

from deepx_graph.errors import DeepxGraphError, Source
from deepx_graph.ir import Attr, Op, Operand
from deepx_graph.ops import OPS
from deepx_graph.text import sea
from deepx_graph.text.sea.assembly import assembly_of

FORMS = [
    ("%a = compare LT, %x, %x : bool[2,3]", '%a = compare %x, %x {direction = "LT"} : bool[2,3]'),
    ("%a = compare EQ, %x, %x {compare_type = \"TOTALORDER\"} : bool[2,3]",
     '%a = compare %x, %x {direction = "EQ", compare_type = "TOTALORDER"}'),
    ("%a = transpose %x, dims = [1, 0] : f32[3,2]", "%a = transpose %x {permutation = [1, 0]}"),
    ("%a = reshape %x : f32[6]", "%a = reshape %x {shape = [6]} : f32[6]"),
    ("%a = convert %x : i8[2,3]", "%a = convert %x {dtype = i8}"),
    ("%a = iota dim = 1 : u8[2,3]", "%a = iota {dtype = u8, shape = [2, 3], iota_dimension = 1}"),
    ("%a = broadcast_in_dim %x, dims = [1, 2] : f32[4,2,3]",
     "%a = broadcast_in_dim %x {shape = [4, 2, 3], broadcast_dimensions = [1, 2]} : f32[4,2,3]"),
    ("%a = constant dense<1.5> : f32[2]", "%a = constant {value = dense<1.5> : f32[2]}"),
    ("%a = dot_general %x, %x, contracting = [0] x [0] : f32[3,3]",
     "%a = dot_general %x, %x {lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]}"),
    ("%a = dot_general %x, %x, batching = [0] x [0], contracting = [1] x [1] : f32[2]",
     "%a = dot_general %x, %x {lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], "
     "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]}"),
    ("%a = dot_general %x, %x : f32[2,3,2,3]", "%a = dot_general %x, %x"),
    ("%a = slice %x, from [0, 1] to [2, 3] by [1, 2] : f32[2,1]",
     "%a = slice %x {start_indices = [0, 1], limit_indices = [2, 3], strides = [1, 2]}"),
    ("%a = concatenate %x, %x, dim = 0 : f32[4,3]", "%a = concatenate %x, %x {dimension = 0}"),
]


def text(line: str) -> str:
    head = "sea 1\nentry @main\nfunc public @main(%x: f32[2,3]) -> (%out: f32[2,3]) {\n"
    return f"{head}  {line}\n  return %x\n}}\n"


def line_of(module_text: str) -> str:
    """The line of the node %a, which is made a result so that it stays."""
    with_result = module_text.replace("(%out: f32[2,3])", "(%out: any[*])").replace("return %x", "return %a")
    written = sea.write(sea.read(Source("t.sea", with_result)).module)
    return next(s.strip() for s in written.splitlines() if s.strip().startswith("%a = "))


@pytest.mark.parametrize(("form", "general"), FORMS, ids=[f[0].split(" = ")[1][:24] for f in FORMS])
def test_a_form_is_written_and_both_forms_read(form: str, general: str) -> None:
    assert line_of(text(form)) == form
    assert line_of(text(general)) == form


@pytest.mark.parametrize(("line", "says"), [
    ("%a = transpose %x, dim = [1, 0] : f32[3,2]", "expected: 'dims'"),
    ("%a = transpose %x, dims = [1, 1] : f32[3,2]", "expected: an order of 0, 1, 2, ..."),
    ("%a = compare LESS, %x, %x : bool[2,3]", "expected: one of EQ, NE, LT"),
    ("%a = compare 3, %x, %x : bool[2,3]", "expected: a word, one of EQ, NE"),
    ("%a = compare LT, %x : bool[2,3]", "takes 2 operands and got 1"),
    ("%a = iota dim = 0", "needs the attribute 'dtype'"),
    ("%a = dot_general %x, %x, contracting = [0] : f32[3,3]", "expected: 'x'"),
    ("%a = concatenate %x, %y, dim = 0 : f32[4,3]", "no value %y"),
    ("%a = reshape %x", "needs the attribute 'shape'"),
])  # fmt: skip
def test_what_does_not_meet_the_form_is_shown_with_its_location(line: str, says: str) -> None:
    with pytest.raises(DeepxGraphError) as caught:
        sea.read(Source("t.sea", text(line)))
    assert says in str(caught.value)
    assert "t.sea:4:" in str(caught.value)


@pytest.mark.parametrize("op", [o for o in OPS.values() if o.assembly is not None], ids=lambda op: op.name)
def test_every_declared_form_names_what_the_op_has(op: Op) -> None:
    assert assembly_of(op).named <= op.operand_names | set(op.attr_index)


@pytest.mark.parametrize("assembly", ["$y", "operands, $nothing", "$x, operands", "operands (, $a"])
def test_a_form_that_does_not_fit_its_op_is_refused(assembly: str) -> None:
    op = Op("toy", "T.", operands=(Operand("x"), Operand("y")), attrs=(Attr("a", "int", 0),), infer=lambda t, a: t[0],
            assembly=assembly)
    with pytest.raises(ValueError, match="the assembly of toy"):
        assembly_of(op)
