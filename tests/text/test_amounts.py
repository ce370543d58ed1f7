"""Numbers of a text that ask for memory or time: parts to be made, sizes to be multiplied, constants to be taken apart.

What the seeds of `tests/support/mutants.py` do not reach stands here. Each of these texts took all memory, or did not end, once.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

import deepx_graph as dx
from deepx_graph.errors import InferError, ParseError
from deepx_graph.literal import MAX_BOUNDED, Literal
from deepx_graph.text.mindir.control import SPECIAL
from deepx_graph.text.mindir.rules import RULES
from deepx_graph.text.xla.literals import is_nested
from deepx_graph.types import F32, DataType, FunctionType, TupleType, Type, add_dims, mul_dims, tensor
from tests.support.memory_bound import memory_of
from tests.support.mindir_messages import field, graph, info, many, model, node, shape
from tests.support.mutant_trials import ENDS, verdict
from tests.support.mutants import Seed

MOST = 1 << 26
"""Bytes that reading one of these texts may take."""
WORD = 9223372036854775807


def relay(expression: str, type: str = "Tensor[(2, 3), float32]") -> tuple[str, str]:
    return "relay", f"def @main(%x: {type}) {{ {expression} }}"


def stablehlo(body: str, type: str = "tensor<2x3xf32>") -> tuple[str, str]:
    return "stablehlo", f"func.func @main(%x: {type}) -> {type} {{\n{body}\nreturn %x : {type}\n}}\n"


def sea(*lines: str) -> tuple[str, str]:
    return "sea", "\n".join(["sea 1", "entry @f", "func @f(%x: f32[2,3]) -> (%y: f32[2,3]) {", *lines, "return %x }"])


def doubled(step: str, first: str = "%x", count: int = 40) -> str:
    """Relay's bindings of which each takes the one before twice."""
    return f"let %a0 = {first}; " + " ".join(f"let %a{k + 1} = {step.format(f'%a{k}')};" for k in range(count)) + f" %a{count}"


def sizes(op: str, first: str) -> str:
    """A shape that is computed from a size by the same step again and again."""
    steps = "\n".join(f"%s{k + 1} = stablehlo.{op} %s{k}, %s{k} : tensor<1xi64>" for k in range(40))
    return f"{first}\n{steps}\n%i = stablehlo.dynamic_iota %s40, dim = 0 : (tensor<1xi64>) -> tensor<?xf32>"


SIZE = """%d = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
%e = stablehlo.convert %d : (tensor<i32>) -> tensor<i64>
%s0 = stablehlo.reshape %e : (tensor<i64>) -> tensor<1xi64>"""
REDUCER = "({^b(%a: tensor<f32>, %b: tensor<f32>):\n%r = stablehlo.add %a, %b : tensor<f32>\nstablehlo.return %r : tensor<f32>})"
ASKED = {
    "new axes": relay("expand_dims(%x, axis=0, num_newaxis=1000000000)"),
    "parts": relay("split(%x, indices_or_sections=1000000000, axis=0)", "Tensor[(1000000000,), float32]"),
    "a shape of zeros": relay("dyn.reshape(%x, zeros(shape=[1000000000000], dtype=\"int64\"))"),
    "windows over nothing": relay("nn.avg_pool2d(%x, pool_size=[2, 2], padding=[1, 1, 1, 1])",
                                  f"Tensor[(0, 3, {10**17}, 5), float32]"),
    "products of symbols": relay(doubled("reshape(nn.dense({0}, {0}), newshape=[-1, 1])"), "Tensor[(?, 1), float32]"),
    "sums of symbols": relay(doubled("concatenate(({0}, {0}), axis=0)"), "Tensor[(?,), float32]"),
    "tuples of tuples": relay(doubled("({0}, {0})")),
    "items of nothing": stablehlo(f"%c = stablehlo.constant dense<[]> : tensor<{WORD}x0xf32>"),
    "a shape of so many": stablehlo('%p = "stablehlo.transpose"(%x) {permutation = dense<0> : tensor<1000000000xi64>} : '
                                    "(tensor<2x3xf32>) -> tensor<3x2xf32>"),
    "groups": stablehlo(f'%p = "stablehlo.all_reduce"(%x) {REDUCER} {{replica_groups = dense<0> : tensor<99999x99999xi64>}} : '
                        "(tensor<2x3xf32>) -> tensor<2x3xf32>"),
    "a product of sizes": stablehlo(sizes("multiply", SIZE), "tensor<?xf32>"),
    "a sum of sizes": stablehlo(sizes("add", SIZE), "tensor<?xf32>"),
    "powers": stablehlo(sizes("multiply", f"%s0 = stablehlo.constant dense<{WORD}> : tensor<1xi64>"), "tensor<?xf32>"),
    "a window to look into": stablehlo(
        "%z = stablehlo.constant dense<0> : tensor<i64>\n%o = stablehlo.constant dense<1> : tensor<1xi64>\n"
        f'%s = "stablehlo.reduce_window"(%o, %z) {REDUCER.replace("f32", "i64")} {{window_dimensions = array<i64: 1000000001>, '
        "padding = dense<[[1000000000, 0]]> : tensor<1x2xi64>} : (tensor<1xi64>, tensor<i64>) -> tensor<1xi64>\n"
        "%i = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi64>) -> tensor<?xf32>"),
    "branches": sea("%c = constant {value = dense<1> : i32[]}", "%r = region %c {branches = 999999999}"),
    "tuples": sea("%t0 = tuple %x, %x", *(f"%t{k + 1} = tuple %t{k}, %t{k}" for k in range(40))),
    "bits": ("hlo", f"HloModule m\nENTRY e {{ ROOT r = f32[] constant(0x{'f' * 5000}) }}"),
    "a tensor of nothing": ("deepx", f"newtensor@float32 0 {WORD} {WORD} ->t\nexp@float32 t->t\n"),
}


@pytest.mark.parametrize("name", ASKED)
def test_sizes_that_a_text_asks_for_are_bounded(name: str) -> None:
    format, text = ASKED[name]
    with memory_of(MOST):
        outcome = verdict(Seed(name, format, text), text, ())
    assert outcome in ENDS


# --- models of MindIR ---------------------------------------------------------------------------------------------


def constant(name: str, value: int | tuple[int, ...]) -> bytes:
    if isinstance(value, tuple):
        return node(name, "Constant", (), field(5, field(1, "value") + many(17, (field(10, v) + field(16, 7) for v in value))
                                                + field(16, 20)))
    return node(name, "Constant", (), field(5, field(1, "value") + field(10, value) + field(16, 7)))


def calls(primitive: str) -> Iterator[bytes]:
    """Models that call a primitive with a hostile number where it may take an option: given, in a list, or made by `Fill`."""
    for number in (-1, 1_000_000_000, WORD):
        for value in (number, (number, number)):
            nodes = [constant("i64", 35), constant("many", (1_000_000_000,)), constant("c", value),
                     node("f", "REF::Fill", ["i64", "many", "c"], shape((1_000_000_000,), 7))]
            for inputs in (["x", "c"], ["x", "x", "c"], ["c", "c", "c"], ["x", "f"]):
                main = graph("main", [*nodes, node("r", f"REF::{primitive}", inputs, shape((2, 3)))], [info("x", (2, 3))],
                             [info("r", (2, 3))])
                yield model(main, (), [primitive, "Fill"])


@pytest.mark.parametrize("primitive", sorted({*RULES, *SPECIAL}))
def test_sizes_that_a_model_asks_for_are_bounded(primitive: str) -> None:
    for data in calls(primitive):
        text = data.decode("latin-1")
        with memory_of(MOST):
            outcome = verdict(Seed(primitive, "mindir", text, True), text, ())
        assert outcome in ENDS


def test_functions_that_take_functions_twice_have_types_that_are_read_once() -> None:
    """Each graph takes the one before as either of two parameters, so that its type holds that of the first 2^k times."""
    def taking(name: str, graph: str) -> bytes:
        return field(1, name) + field(5, field(5, graph) + field(16, 27))

    graphs = [graph("g0", [], [info("x", (2,))], [info("x", (2,))])]
    graphs += [graph(f"g{k}", [], [taking(f"g{k}:a", f"g{k - 1}"), taking(f"g{k}:b", f"g{k - 1}")], [info("x", (2,))])
               for k in range(1, 60)]
    data = model(graph("main", [], [info("x", (2,))], [taking("g59", "g59")]), graphs)
    with memory_of(MOST), pytest.raises(ParseError, match="'g16:a': a type of 163838 types"):
        dx.loads(data, "mindir")


# --- the bounds ---------------------------------------------------------------------------------------------------


def test_a_splat_is_no_list_of_numbers() -> None:
    assert Literal.splat(1, tensor(F32, (MAX_BOUNDED,))).bounded().size == MAX_BOUNDED
    with pytest.raises(InferError, match=r"f32\[1048577\]"):
        Literal.splat(1, tensor(F32, (MAX_BOUNDED + 1,))).bounded()
    for dims in ((0, WORD, WORD), (-1,), (WORD, WORD)):
        with pytest.raises(InferError, match="no array is"):
            Literal.splat(1, tensor(F32, dims))


@pytest.mark.parametrize(("skeleton", "shape", "right"), [
    ("", (), True), ("[]", (0,), True), ("[,]", (2,), True), ("[]", (1,), True), ("[[,],[,]]", (2, 2), True),
    ("[[],[]]", (2, 0), True),
    ("[]", (0, WORD), True), ("[]", (WORD, 0), False), ("[,]", (3,), False), ("[[,,],]", (2, 2), False), ("[,", (1,), False),
])  # fmt: skip
def test_brackets_are_those_of_a_shape(skeleton: str, shape: tuple[int, ...], right: bool) -> None:
    assert is_nested(skeleton, shape, "[]") is right
    assert is_nested(skeleton.translate({91: "{", 93: "}"}), shape, "{}") is right


def test_a_type_is_of_so_many_parts() -> None:
    """Also where they are the same object, which costs nothing until somebody goes through them."""
    type: Type = tensor(F32, ())
    for _ in range(16):
        type = TupleType((type, type))
    assert type.count == 2**17 - 1 and hash(type) == hash(pickle.loads(pickle.dumps(type)))
    for wrong in (lambda: TupleType((type, type)), lambda: FunctionType((type,), (type,)), lambda: DataType("List", (type, type))):
        with pytest.raises(InferError, match="types"):
            wrong()


def test_sums_and_products_of_symbols_are_of_some_length() -> None:
    assert add_dims("n", 2, "m", 3) == "m+n+5" and mul_dims(["n", 2, "m+1"]) == "(m+1)*n*2"
    for wrong in (lambda: add_dims("n" * 2048, "m" * 2049), lambda: mul_dims(["n" * 4097])):
        with pytest.raises(InferError, match="expression"):
            wrong()
