"""Floors 0 to 2: spans and diagnostics, types, literals, nodes, functions and the builder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepx_graph.errors import Diagnostic, InferError, Source, Span, UsageError, VerifyError, printable, suggest
from deepx_graph.files import STEP, mapped, replacing, write_pieces
from deepx_graph.ir import Builder, Function, Module, Op, Operand
from deepx_graph.ir.scalar_expr import Apply, Immediate, Variable, expr
from deepx_graph.ir.structure import CONSTANT, LOOP_BEGIN, LOOP_END, PHI, REGION
from deepx_graph.literal import Literal
from deepx_graph.ops import add, compare, multiply, negate, reduce, reduction, subtract
from deepx_graph.types import (
    ANY,
    BF16,
    BOOL,
    F32,
    F64,
    I32,
    STATE,
    DataType,
    FunctionType,
    RefType,
    TensorType,
    TupleType,
    Type,
    add_dims,
    merge_types,
    mul_dims,
    tensor,
)
from tests.support.resident import REASON, growth, is_told

X = tensor(F32, (2, 3))

# --- errors


def test_a_diagnostic_shows_the_location() -> None:
    source = Source("a.dx", "first line\nadd t1 t22 -> t3\n")
    start = source.text.index("t22")
    span = Span(source, start, start + 3)
    shown = Diagnostic("unknown tensor 't22'", span, expected="a tensor", hint="did you mean 't2'?").render()
    assert shown.splitlines() == [
        "a.dx:2:8: error: unknown tensor 't22'", "2 | add t1 t22 -> t3", "  |        ^^^", "  expected: a tensor",
        "  hint: did you mean 't2'?",
    ]  # fmt: skip


def test_a_long_line_is_cut_around_the_location() -> None:
    source = Source("a", "x" * 100_000 + "BAD" + "y" * 100_000)
    shown = Diagnostic("no", Span(source, 100_000, 100_003)).render()
    assert len(shown) < 500
    line, carets = shown.splitlines()[1:]
    assert line[carets.index("^") : carets.rindex("^") + 1] == "BAD"


@pytest.mark.parametrize("text", ["\x1b[31mred", "a\u202eb", "bell\x07", "zero\u200bwidth", "\udcff"])
def test_what_a_terminal_would_obey_is_escaped(text: str) -> None:
    shown = printable(text)
    assert shown.isascii()
    assert shown.isprintable()
    assert printable(Diagnostic(text, None).render()) == Diagnostic(text, None).render()


def test_printable_keeps_words_of_any_language() -> None:
    assert printable("тензор 张量 é") == "тензор 张量 é"


def test_suggest() -> None:
    assert suggest("addd", ["add", "sub"]) == "did you mean 'add'?"
    assert suggest("zzz", ["add", "sub"]) is None


# --- types


def test_types_print_as_they_are_read() -> None:
    assert [str(t) for t in (X, tensor(I32), tensor(BF16, None), tensor(F64, ("?1", 3)), TupleType((X, tensor(ANY, ())))) ] == [
        "f32[2,3]", "i32[]", "bf16[*]", "f64[?1,3]", "(f32[2,3], any[])"]  # fmt: skip


def test_merging_keeps_what_is_known() -> None:
    assert merge_types(tensor(F32, ("?1", 3)), tensor(ANY, (2, 3))) == X
    assert merge_types(tensor(F32, None), X) == X
    for other in (tensor(F32, (3, 2)), tensor(F32, (2,)), tensor(F64, (2, 3)), TupleType((X,))):
        with pytest.raises(InferError):
            merge_types(X, other)


def test_symbolic_sizes() -> None:
    assert add_dims(1, 2) == 3
    assert add_dims("n", 2) == "n+2"
    assert mul_dims(("n", 2, 3)) == "n*6"
    assert mul_dims(("n", 0)) == 0
    assert X.nbytes == 24
    with pytest.raises(InferError):
        _ = tensor(F32, ("n",)).nbytes


# --- literals


def test_literals_are_compared_by_bits() -> None:
    assert Literal(np.float32(0.0)) != Literal(np.float32(-0.0))
    assert Literal(np.array([np.nan])) == Literal(np.array([np.nan]))
    assert Literal(np.zeros(3)) == Literal.splat(0, tensor(F64, (3,)))
    assert hash(Literal(np.zeros(3))) == hash(Literal.splat(0, tensor(F64, (3,))))
    assert Literal(np.zeros(3)) != Literal(np.zeros(3, "f4"))


@pytest.mark.parametrize("dtype", ["b1", "f2", "f4", "f8", "c16"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_large_literals_are_equal_when_all_elements_are(dtype: str, order: Any) -> None:
    """Those included that are not looked at first, wherever they are."""
    for filled in (np.zeros((300, 200), dtype), (np.arange(60000).reshape(300, 200) % 7).astype(dtype)):
        plain = Literal(filled)
        same = Literal(np.array(filled, order=order))
        assert plain == same and hash(plain) == hash(same)
        for place in (0, 5000, 30001, 59999):
            other = filled.copy(order=order)
            other.flat[place] = 1 - other.flat[place]
            assert plain != Literal(other)
        uniform = Literal.splat(filled.flat[0], plain.type)
        assert (uniform == plain) == (plain == uniform) == (not filled.any()) == (plain.splat_value is not None)
        assert hash(uniform) == hash(plain) or filled.any()


@pytest.mark.skipif(not is_told(), reason=REASON)
def test_of_a_large_literal_a_few_elements_are_read(tmp_path: Path) -> None:
    """Where these are enough, and those of one stretch of a file are not read at all."""
    size = 1 << 24
    with open(tmp_path / "w", "wb") as stream:
        stream.write(np.arange(size, dtype="u4").tobytes())
    made = []
    for start in (0, 0, 4):
        with open(tmp_path / "w", "rb") as stream:
            made.append(Literal(np.frombuffer(mapped(stream.fileno())[start : start + 4 * size - 4], "u4")))
    assert growth(lambda: (made[0] == made[1], made[0] == made[2], made[0].splat_value)) < 2 * size
    assert made[0] == made[1] and made[0] != made[2]


def test_gaps_of_a_file_are_zeros_that_are_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "w", "wb") as stream:
        stream.seek(3 * STEP + 8)
        stream.write(b"here")
        stream.truncate(6 * STEP)
    with open(tmp_path / "w", "rb") as stream:
        data = np.frombuffer(mapped(stream.fileno()), np.uint8)
    assert Literal(data[: 3 * STEP]).splat_value == 0 and Literal(data).splat_value is None
    with replacing(tmp_path / "copy") as copy:
        write_pieces(copy, data)
    assert (tmp_path / "copy").read_bytes() == data.tobytes()
    assert (tmp_path / "copy").stat().st_blocks * 512 <= STEP


def test_a_splat_of_any_size_takes_no_memory() -> None:
    big = Literal.splat(1.5, tensor(F32, (10**6, 10**6)))
    assert big.splat_value == 1.5
    assert big.array.shape == (10**6, 10**6)
    assert hash(big) == hash(Literal.splat(1.5, tensor(F32, (10**6, 10**6))))


def test_a_literal_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Literal(np.zeros(3)).array[0] = 1


# --- ops and kernels


def test_a_declaration_is_checked_when_it_is_made() -> None:
    with pytest.raises(ValueError, match="no summary"):
        Op("x", "", infer=lambda types: types[0])
    with pytest.raises(ValueError, match="name twice"):
        Op("x", "Y.", operands=(Operand("a"), Operand("a")), infer=lambda types: types[0])


def test_kernel_text() -> None:
    assert expr("1 / (1 + exp(-x))", "x") == Apply(
        "div", (Immediate(1.0), Apply("add", (Immediate(1.0), Apply("exp", (Apply("neg", (Variable(0),)),))))))
    for text in ("__import__('os')", "x.real", "y", "exp(x, x)", "x if x else x"):
        with pytest.raises(ValueError, match="not in the kernel vocabulary"):
            expr(text, "x")


# --- builder


def test_the_builder_infers_and_says_what_does_not_fit() -> None:
    b = Builder()
    x, y = b.param(0, X, "x"), b.param(1, tensor(F32, (3, 2)), "y")
    assert b(add, x, b.like(1, x)).type == X
    with pytest.raises(VerifyError, match=r"operand 1 is an f32\[3,2\] and operand 0 an f32\[2,3\]"):
        b(add, x, y)
    with pytest.raises(VerifyError, match="takes 2 operands and got 1"):
        b(add, x)
    with pytest.raises(VerifyError, match="has no attribute 'axis'"):
        b(add, x, x, axis=1)
    with pytest.raises(VerifyError, match="did you mean 'direction'"):
        b(compare, x, x, directoin="EQ")
    with pytest.raises(VerifyError, match="is not one of EQ"):
        b(compare, x, x, direction="eq")


def test_a_plain_builder_keeps_what_it_is_asked_for() -> None:
    b = Builder()
    x = b.param(0, X)
    assert b(add, x, x) is not b(add, x, x)
    assert b(negate, b(negate, x)) is not x
    assert b(add, b.constant(1.0), b.constant(2.0)).op is add


def test_peepholes_fold_simplify_and_intern() -> None:
    b = Builder(peephole=True)
    x = b.param(0, X)
    one, zero = b.like(1, x), b.like(0, x)
    assert b(add, x, x) is b(add, x, x)
    assert b(negate, b(negate, x)) is x
    assert b(multiply, x, one) is x
    assert b(multiply, one, x) is x
    assert b(subtract, x, zero) is x
    folded = b(add, one, one)
    assert folded.op is CONSTANT
    assert folded.attrs[0].splat_value == 2


def test_peepholes_are_exact() -> None:
    b = Builder(peephole=True)
    x = b.param(0, X)
    assert b(add, x, b.like(0.0, x)) is not x, "-0.0 + 0.0 is 0.0"
    assert b(add, x, b.like(-0.0, x)) is x
    assert b(multiply, x, b.like(0, x)).op is multiply, "NaN * 0 is NaN"
    scalar = b.param(1, tensor(F32))
    assert b(multiply, scalar, b.splat(1, X)) is not scalar, "the result has another shape"


def test_branch_and_loop_build_the_control_nodes() -> None:
    b = Builder()
    p, x = b.param(0, tensor(BOOL), "p"), b.param(1, tensor(I32), "x")
    (taken,) = b.branch(p, [x], [b(negate, x)])
    assert taken.op is PHI
    assert taken.inputs[0].op is REGION
    (count,) = b.loop([taken], lambda v: (b(compare, v[0], b.like(9, v[0]), direction="LT"), [b(add, v[0], b.like(1, v[0]))]))
    assert count.inputs[0].op is LOOP_END
    assert count.inputs[0].inputs[0].op is LOOP_BEGIN
    with pytest.raises(VerifyError, match="different numbers"):
        b.branch(p, [x], [])
    with pytest.raises(VerifyError, match="loop variable 0 starts as"):
        b.loop([x], lambda v: (p, [p]))


def test_two_loops_are_never_one() -> None:
    b = Builder(intern=True)
    x = b.param(0, tensor(I32), "x")
    stop = b.constant(False)
    first, second = (b.loop([x], lambda v: (stop, [v[0]])) for _ in range(2))
    assert first[0].inputs[0].inputs[0] is not second[0].inputs[0].inputs[0]


# --- functions and modules


def sample_module() -> Module:
    b = Builder()
    f = b.function("f", [("x", X)], lambda x: [b(add, x, x)], public=False)
    main = b.function("main", [("x", X), ("y", X)], lambda x, y: b.call(f, b(multiply, x, y)))
    return Module((f, main))


def test_nodes_come_in_topological_order_and_users_mirror_inputs() -> None:
    main = sample_module()["main"]
    at = {n: k for k, n in enumerate(main.nodes)}
    assert all(at[i] < at[n] for n in main.nodes for i in n.inputs)
    uses = sorted((at[i], at[n]) for n in main.nodes for i in n.inputs)
    assert uses == sorted((at[n], at[u]) for n, users in main.users.items() for u in users)


def test_functions_are_equal_by_structure() -> None:
    first, second = sample_module()["main"], sample_module()["main"]
    assert first is not second
    assert first == second
    assert hash(first) == hash(second)
    assert first != sample_module()["f"]


def test_functions_that_differ_are_told_apart_without_being_written_out() -> None:
    """By a number, by what is joined to what, or by an operation: kernels of a long program are looked up by their bodies."""
    b = Builder()
    x, y = (b.param(k, X) for k in range(2))
    s, t = b(add, x, y), b(multiply, x, y)
    results = (s, t, b(add, x, b(add, x, y)), b(add, b(add, x, y), x), *(b(add, x, b.like(float(k), x)) for k in range(8)))
    functions = [Function("f", (x, y), (r,)) for r in results]
    assert len(set(functions)) == len(functions)
    assert not any("structure" in vars(f) for f in functions)


def test_reducers_are_recognised() -> None:
    b = Builder()
    total = reduction(b, add, b.param(0, X), [1])
    assert total.op is reduce
    assert total.attr("body").reducer is add
    assert total.type == TensorType(F32, (2,))
    swapped = b.function("r", [("a", tensor(F32)), ("b", tensor(F32))], lambda x, y: [b(subtract, x, y)])
    assert swapped.reducer is None


def test_networkx_view() -> None:
    import networkx

    graph = sample_module().to_networkx()
    assert networkx.is_directed_acyclic_graph(graph)
    assert sum(d["op"] == "param" for _, d in graph.nodes(data=True)) == 3
    assert graph.number_of_edges() == 2 + 2 + 1 + 1


def test_an_unknown_function_is_named() -> None:
    with pytest.raises(Exception, match="did you mean 'main'"):
        sample_module()["mian"]


def test_operands_by_name() -> None:
    b = Builder()
    x, y = b.param(0, X, "x"), b.param(1, X, "y")
    total = reduction(b, add, x, [0])
    assert total.operand("inputs") == (x,)
    assert total.operand("init_values") == (total.inputs[1],)
    assert b(subtract, x, y).operand("rhs") is y
    with pytest.raises(VerifyError, match="takes at least 0 operands and got 3"):
        b(reduce, x, y, x, dimensions=(), body=total.attr("body"))


def test_a_type_is_made_again_of_changed_parts() -> None:
    f32, f64 = tensor(F32, (2,)), tensor(F64, (2,))

    def wide(type: Type) -> Type:
        return f64 if type is f32 else type.map(wide)

    for make in (lambda t: TupleType((t, STATE)), lambda t: FunctionType((t, STATE), (t,)), RefType, lambda t: DataType("D", (t,))):
        assert make(f32).map(wide) == make(f64)
    assert FunctionType((f32,), (f64, STATE)).parts == (f32, f64, STATE)
    assert STATE.map(wide) is STATE


def test_what_is_no_operation_is_said_to_be_none() -> None:
    with pytest.raises(UsageError, match="'divide' is no operation"):
        Builder()("divide", Builder().param(0, X))  # type: ignore[arg-type]
