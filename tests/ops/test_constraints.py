"""Declarations: constraints in words, operands by name and in segments, and ops that reject the rest."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pytest

from deepx_graph.errors import InferError, VerifyError
from deepx_graph.ir import Attr, Builder, Op, Operand
from deepx_graph.ir.constraint import (
    BOOLS,
    FLOATS,
    INTEGERS,
    SCALAR,
    SQUARE,
    Constraint,
    axes_of,
    combines,
    dtypes,
    equally_many,
    one_for_each_axis,
    rank,
    same_element_type,
    same_shape,
    some,
)
from deepx_graph.ir.signature import SEGMENTS, portions
from deepx_graph.ops import (
    OPS,
    add,
    broadcast_in_dim,
    compare,
    concatenate,
    dot_general,
    dynamic_slice,
    iota,
    pad,
    reduce,
    reverse,
    select,
    slice_,
    subtract,
    transpose,
)
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.types import ANY, BOOL, C64, F16, F32, I32, STATE, U8, FunctionType, TupleType, Type, scalar, tensor

X = tensor(F32, (2, 3))


@pytest.mark.parametrize(("constraint", "yes", "no", "words"), [
    (FLOATS, [X, scalar(F16), tensor(ANY, None)], [scalar(I32), STATE, TupleType(())], "a tensor of float"),
    (INTEGERS & SCALAR, [scalar(U8), tensor(I32, None)], [scalar(F32), tensor(I32, (1,))], "a tensor of int or uint, of rank 0"),
    (BOOLS | FLOATS, [scalar(BOOL), X], [scalar(I32)], "a tensor of bool or a tensor of float"),
    (rank(1, 2), [X, tensor(F32, None)], [scalar(F32), tensor(F32, (1, 2, 3))], "of rank 1 to 2"),
    (rank(2), [X], [scalar(F32)], "of rank 2 or more"),
    (SQUARE, [tensor(F32, (5, 2, 2)), tensor(F32, ("?1", 2)), tensor(F32, None)], [X, scalar(F32)],
     "square in the last two dimensions"),
    (dtypes(F32, C64), [X, tensor(ANY, (2,))], [scalar(F16)], "a tensor of f32 or c64"),
])  # fmt: skip
def test_constraints_compose_and_say_what_they_ask(constraint: Constraint, yes: list[Any], no: list[Any], words: str) -> None:
    assert all(map(constraint.holds, yes))
    assert not any(map(constraint.holds, no))
    assert constraint.words == words


BODY = monoid_body(add, F32)


@pytest.mark.parametrize(("relation", "yes", "no"), [
    (same_element_type("a", "b"), (X, scalar(F32)), (X, scalar(I32))),
    (same_element_type("a", "b"), (X, tensor(ANY, None)), ((X, X), (X, scalar(I32)))),
    (same_shape("a", "b"), (X, tensor(I32, ("?1", 3))), (X, tensor(F32, (3, 2)))),
    (same_shape("a"), ((X, X),), ((X, scalar(F32)),)),
    (some("a"), ((X,),), ((),)),
    (equally_many("p", "q"), ((1, 2), (0, 0)), ((1,), ())),
    (one_for_each_axis("a", "p"), (X, (1, 2)), (X, (1,))),
    (one_for_each_axis("a", "p"), (tensor(F32, None), (1,)), ((X, X), (1,))),
    (axes_of("a", "p", "q"), (X, (0,), 1), (X, (0,), 0)),
    (axes_of("a", "p"), (tensor(F32, None), (7,)), (X, (2,))),
    (axes_of("a", "p"), (X, ()), (X, (-1,))),
    (combines("body", "a"), (BODY, (X,)), (BODY, (X, X))),
])  # fmt: skip
def test_relations_hold_and_do_not(relation: Any, yes: tuple[Any, ...], no: tuple[Any, ...]) -> None:
    assert relation.holds(*yes)
    assert not relation.holds(*no)


# --- operands: by name, optional, in segments -----------------------------------------------------------------------

_LOOSE = Op("loose", "T.", operands=(Operand("x"), Operand("bias", optional=True)), infer=lambda types: types[0])
_CUT = Op("cut", "T.",
          operands=(Operand("a", variadic=True, type=FLOATS), Operand("b", optional=True), Operand("c", variadic=True)),
          attrs=(Attr(SEGMENTS, "ints"),), infer=lambda types, sizes: types[0])


def test_inputs_fall_to_operands_by_number() -> None:
    one, run = Operand("x"), Operand("xs", variadic=True)
    assert portions((one, run), 4) == (1, 3)
    assert portions((run, one, run), 5) == (2, 1, 2)
    assert portions((one, Operand("o", optional=True)), 1) == (1, 0)
    for operands, count in (((one, run), 0), ((run, one, run), 4), ((one, Operand("o", optional=True)), 3), ((), 1)):
        with pytest.raises(InferError, match="operands and got"):
            portions(operands, count)
    with pytest.raises(InferError):
        portions((run, one), 3, (3, 0))


def test_an_optional_operand_may_be_left_out() -> None:
    b = Builder()
    x = b.param(0, X, "x")
    assert b(_LOOSE, x).operands.bias is None
    assert b(_LOOSE, x, x).operands.bias is x
    assert b(_LOOSE, bias=x, x=x).inputs == (x, x)
    with pytest.raises(VerifyError, match="takes at least 1 operands and got 3"):
        b(_LOOSE, x, x, x)
    with pytest.raises(VerifyError, match="'x' is missing"):
        b(_LOOSE, bias=x)


def test_segments_say_which_operand_takes_how_many() -> None:
    b = Builder()
    x, n = b.param(0, X, "x"), b.param(1, scalar(I32), "n")
    node = b(_CUT, a=[x, x], c=[n])
    assert node.attr(SEGMENTS) == (2, 0, 1)
    assert (node.operands.a, node.operands.b, node.operands.c) == ((x, x), None, (n,))
    with pytest.raises(VerifyError, match="operand 0, a, is an i32"):
        b(_CUT, a=[n], b=x)
    with pytest.raises(VerifyError, match="got 1"):
        b(_CUT, x, **{SEGMENTS: (1, 1, 0)})


def test_operands_are_given_and_read_by_name() -> None:
    b = Builder()
    x, y = b.param(0, X, "x"), b.param(1, X, "y")
    node = b(subtract, rhs=y, lhs=x)
    assert node.inputs == (x, y)
    assert node.operands.rhs is y
    assert b(compare, x, rhs=y, direction="LT").attrs[0] == "LT"
    total = b(reduce, inputs=[x], init_values=[b.constant(0.0, F32)], dimensions=(0,), body=BODY)
    assert total.operands.inputs == (x,)
    with pytest.raises(VerifyError, match="by position and by name"):
        b(subtract, x, lhs=y)
    assert reduce.adapt([X, scalar(F32)], total.attrs).body is BODY


# --- the declarations -----------------------------------------------------------------------------------------------

B, N, F, T = scalar(BOOL), tensor(I32, (2, 3)), X, STATE

PAIR = Builder().function("pair", [("a", scalar(F32))], lambda x: (x, x), public=False)

PADDING = dict.fromkeys(("edge_padding_low", "edge_padding_high", "interior_padding"), (0, 0))

WRONG: list[tuple[Op, list[Any], dict[str, Any], str]] = [
    (add, [T, T], {}, "a tensor of bool or int"),
    (subtract, [B, B], {}, "a tensor of int or uint or float or complex"),
    (compare, [N, N], {"direction": "LT", "compare_type": "TOTALORDER"}, "floats, for compare_type TOTALORDER"),
    (compare, [tensor(C64, ()), tensor(C64, ())], {"direction": "LT"}, "direction EQ or NE, for complex numbers"),
    (compare, [N, N], {"direction": "<"}, "one of EQ, NE, LT, LE, GT, GE"),
    (select, [N, F, F], {}, "a tensor of bool"),
    (transpose, [F], {"permutation": (0, 0)}, "an order of 0, 1, 2, ..."),
    (transpose, [F], {"permutation": (0, 2, 1)}, "one value of permutation for each axis of operand"),
    (reverse, [F], {"dimensions": (2,)}, "dimensions to name different axes of operand"),
    (broadcast_in_dim, [F], {"shape": (2, 3), "broadcast_dimensions": (0, 0)}, "without a value twice"),
    (broadcast_in_dim, [F], {"shape": (2, 3), "broadcast_dimensions": (0, 2)}, "broadcast_dimensions within shape"),
    (iota, [], {"dtype": BOOL, "shape": (2,)}, "an element type of int or uint or float or complex"),
    (iota, [], {"dtype": F32, "shape": (-2,)}, "sizes of at least 0"),
    (concatenate, [], {"dimension": 0}, "at least one of inputs"),
    (concatenate, [F, N], {"dimension": 0}, "one element type of inputs"),
    (concatenate, [F, scalar(F32)], {"dimension": 0}, "inputs of one shape but for the size of dimension"),
    (slice_, [F], {"start_indices": (0, 0), "limit_indices": (1, 1), "strides": (1, 0)}, "at least 1"),
    (slice_, [F], {"start_indices": (0,), "limit_indices": (1,), "strides": (1,)},
     "one value of start_indices for each axis of operand"),
    (pad, [F, scalar(I32)], PADDING,
     "one element type of operand and padding_value"),
    (pad, [F, F], PADDING, "a tensor, of rank 0"),
    (dynamic_slice, [F, scalar(I32)], {"slice_sizes": (1,)}, "one value of start_indices for each axis of operand"),
    (dynamic_slice, [F, F, F], {"slice_sizes": (1, 1)}, "a tensor of int or uint, of rank 0"),
    (dot_general, [F, F], {"lhs_contracting_dimensions": (1,)},
     "equally many lhs_contracting_dimensions and rhs_contracting_dimensions"),
    (dot_general, [F, N], {}, "one element type of lhs and rhs"),
    (reduce, [F, scalar(I32)], {"dimensions": (0,), "body": BODY}, "the element types of inputs for init_values"),
    (reduce, [F, scalar(F32)], {"dimensions": (0,), "body": PAIR}, "body to take two values and give one for each of inputs"),
    (OPS["cholesky"], [F], {}, "a tensor of float or complex, square in the last two dimensions"),
    (OPS["fft"], [F], {"fft_type": "FFT", "fft_length": (3,)}, "floats for RFFT, complex numbers for the others"),
    (OPS["fft"], [F], {"fft_type": "RFFT", "fft_length": ()}, "of 1 to 3 values"),
    (OPS["batch_norm_inference"], [F, *[tensor(F32, (2,))] * 4], {"epsilon": 0.1, "feature_index": 1},
     "one value of scale, offset, mean and variance for each feature of operand"),
    (OPS["sort"], [F], {"dimension": 0, "comparator": PAIR}, "comparator to take two values for each of inputs and give one"),
    (OPS["print"], [F, F], {}, "the state"),
    (OPS["proj"], [F], {"index": 0}, "a tuple or several results"),
    (OPS["call_value"], [F], {}, "a function value"),
]


@pytest.mark.parametrize(("op", "types", "attrs", "words"), WRONG, ids=[f"{w[0].name}-{w[3][:30]}" for w in WRONG])
def test_wrong_uses_are_rejected_in_the_ops_own_words(op: Op, types: list[Any], attrs: dict[str, Any], words: str) -> None:
    b = Builder()
    with pytest.raises(VerifyError) as caught:
        b(op, *(b.param(k, t) for k, t in enumerate(types)), **attrs)
    diagnostic = caught.value.diagnostics[0]
    assert diagnostic.message.startswith(f"{op.name}: ")
    assert words in (diagnostic.expected or "")


def test_concatenated_tensors_have_one_rank() -> None:
    """Without the axis they may look alike."""
    with pytest.raises(InferError, match="one shape but for"):
        concatenate.infer([tensor(F32, (2, 7)), tensor(F32, (2,))], 1)


TYPES = (tensor(F32, (2,)), TupleType((scalar(F32),)), FunctionType((scalar(F32),), (scalar(F32),)), STATE)


@pytest.mark.parametrize("op", [op for op in OPS.values() if any(a.kind == "type" for a in op.attrs)], ids=lambda op: op.name)
def test_an_attribute_may_be_of_any_type_and_is_refused_in_words(op: Op) -> None:
    """Whatever stands where a type is said, and whatever the operands are: InferError or a type, and nothing else."""
    for said, operand in itertools.product(TYPES, TYPES):
        given = {a.name: said if a.kind == "type" else {"int": 0, "str": "x"}.get(a.kind, a.default) for a in op.attrs}
        with contextlib.suppress(InferError):
            assert isinstance(op.infer([operand] * sum(not o.variadic for o in op.operands), *op.bind(given)), Type)
