"""Every rule keeps the meaning: to the bit when it claims to be exact; and the compact before/after table of what rules do."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from deepx_graph.errors import InferError, VerifyError
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.ops import (
    abs_,
    add,
    and_,
    broadcast_in_dim,
    clamp,
    compare,
    concatenate,
    convert,
    divide,
    ensure_type,
    exponential,
    floor,
    maximum,
    multiply,
    negate,
    not_,
    pad,
    power,
    reduction,
    reshape,
    reverse,
    select,
    slice_,
    sqrt,
    subtract,
    transpose,
    xor,
)
from deepx_graph.passes.pipeline import parse_pipeline, run_pipeline
from deepx_graph.passes.scalar.simplify import ALGEBRA, CANONICAL
from deepx_graph.rewrite.base import PassError, RewriteControl
from deepx_graph.rewrite.engine import InterningBuilder, Rule, RuleSet, assert_normal_form, rewrite, rule
from deepx_graph.rewrite.pattern import C, Const, OpPattern, Pattern, Var, X, op_of
from deepx_graph.types import BOOL, F32, F64, I32, DType, TensorType, scalar, tensor
from tests.support.generate import random_array
from tests.support.integers import PROGRAMS as OF_INTEGERS
from tests.support.reference import evaluate, same

PATTERNED = [r for r in (*ALGEBRA, *CANONICAL) if r.pattern is not None and r.name not in OF_INTEGERS]


# --- laws -----------------------------------------------------------------------------------------------------------


def instance(r: Rule, dtype: DType, shape: tuple[int, ...], rng: random.Random) -> Function | None:
    """A function whose result matches the rule's pattern over operands of the dtype; None where its op has no such type."""
    b = InterningBuilder()
    made: dict[str, Node] = {}
    params: list[Node] = []

    def build(p: Pattern, type: TensorType) -> Node:
        if isinstance(p, OpPattern):
            types = [tensor(BOOL, shape) if o.name == "pred" else type for o in p.op.operands]
            operands = list(map(build, p.args, types))
            return b(p.op, *operands, **attributes(p, rng, shape, dtype))
        if isinstance(p, Var):
            if p.name not in made:
                params.append(b.param(len(params), type, p.name))
                made[p.name] = params[-1]
            return made[p.name]
        if isinstance(p, Const):
            numbers = (True,) if type.dtype is BOOL else (2, -4, 3, -1)
            return made.setdefault(p.name, b.constant(rng.choice(numbers), type.dtype))
        return b.splat(p, type)

    try:
        result = build(r.pattern, tensor(dtype, shape))  # type: ignore[arg-type]
    except (InferError, VerifyError, ValueError, OverflowError):
        return None
    return Function("f", tuple(params), (result,))


def attributes(p: OpPattern, rng: random.Random, shape: tuple[int, ...], dtype: DType) -> dict[str, Any]:
    """Values for the attributes that the pattern leaves open, valid for operands of the shape."""
    n = len(shape)
    choice: dict[str, Any] = {
        "direction": rng.choice(("EQ", "NE", "LT", "LE", "GT", "GE")), "dtype": rng.choice((F64, F32, dtype)), "shape": shape,
        "permutation": tuple(rng.sample(range(n), n)), "broadcast_dimensions": tuple(range(n)),
        "start_indices": (0,) * n, "limit_indices": shape, "strides": (1,) * n, "dimension": rng.randrange(max(n, 1)),
    }  # fmt: skip
    open_ = [a for a in p.op.attrs if a.name in choice or a.name in p.attrs]
    return {a.name: p.attrs.get(a.name, choice.get(a.name)) for a in open_}


def module_of(function: Function) -> Module:
    return Module((function,), function.name)


@pytest.mark.parametrize("r", PATTERNED, ids=lambda r: r.name)
def test_a_rule_keeps_the_meaning(r: Rule) -> None:
    fired = 0
    rng = random.Random(r.name)
    for dtype in (F32, F64, I32, BOOL):
        for shape in ((), (2, 3), (1, 4), (0,), (2, 2)):
            before = instance(r, dtype, shape, rng)
            if before is None:
                continue
            after = r.apply(before.results[0], InterningBuilder())
            if after is None or after.type != before.results[0].type:
                continue
            fired += 1
            changed = before.with_(results=(after,))
            for _ in range(4):
                check_same(r, before, changed, rng)
    assert fired, "the rule never applied to an instance of its own pattern"


def check_same(r: Rule, before: Function, after: Function, rng: random.Random) -> None:
    args = [random_array(rng, p.type) for p in before.params]  # type: ignore[arg-type]
    if r.fast_math:  # true of real numbers: compare where floats behave as such
        args = [np.where(np.isfinite(a), a, 1).astype(a.dtype) for a in args]
        args = [np.asarray(np.abs(a) % 3 + 0.5).astype(a.dtype) if a.dtype.kind == "f" else a for a in args]
    (x,), (y,) = evaluate(module_of(before), args), evaluate(module_of(after), args)
    if r.fast_math:
        np.testing.assert_allclose(np.asarray(x, np.float64), np.asarray(y, np.float64), rtol=1e-4, atol=1e-5)
    elif r.name in ("square", "inverse") and np.asarray(x).size:  # numpy's pow of whole arrays is off by an ulp or so
        np.testing.assert_allclose(x, y, rtol=1e-6)
    else:
        assert same(x, y), (r.equation, args, x, y)


def test_every_rule_has_a_name_of_its_own_and_an_equation() -> None:
    rules = (*ALGEBRA, *CANONICAL)
    assert len({r.name for r in rules}) == len(rules)
    assert all("=" in r.equation or " is " in r.equation or " are " in r.equation or " where " in r.equation for r in rules)


# --- before and after -----------------------------------------------------------------------------------------------


def show(node: Node) -> str:
    """A small expression tree as text: shapes where an operation has them as attributes."""
    if node.op is PARAM:
        return node.name
    if node.op is CONSTANT:
        value = node.attrs[0].splat_value
        number = str(value) if value is not None else str(node.attrs[0].array.tolist())
        return number + (str(list(node.type.dims)) if node.type.dims else "")  # type: ignore[attr-defined]
    attrs = "".join(f" {v}" for v, a in zip(node.attrs, node.op.attrs, strict=True) if a.kind != "function" and v != a.default)
    return f"{node.op.name}({', '.join(map(show, node.inputs))}{attrs})"


def simplified(build: Callable[..., Node], params: Sequence[tuple[str, TensorType]], pipeline: str = "simplify") -> str:
    b = Builder()
    f = b.function("main", params, lambda *xs: (build(b, *xs),))
    return show(run_pipeline(Module((f,)), parse_pipeline(pipeline)).entry.results[0])


M, V, I, B, S = tensor(F64, (2, 3)), tensor(F64, (3,)), tensor(I32, (2, 3)), tensor(BOOL, (2, 3)), scalar(F64)  # noqa: E741


def over(*types: TensorType) -> list[tuple[str, TensorType]]:
    return list(zip("xyz", types, strict=False))


TABLE: list[tuple[str, Callable[..., Node], list[tuple[str, TensorType]], str]] = [
    ("x * 1", lambda b, x: b(multiply, x, b.splat(1, M)), over(M), "x"),
    ("1 * x", lambda b, x: b(multiply, b.constant(1.0), x), over(M), "x"),
    ("a scalar times a full one keeps its shape", lambda b, x: b(multiply, x, b.splat(1, M)), over(S),
     "broadcast_in_dim(x (2, 3) ())"),
    ("x + 0.0 is not x", lambda b, x: b(add, x, b.constant(0.0)), over(M), "add(x, 0.0)"),
    ("x + -0.0 is", lambda b, x: b(add, x, b.constant(-0.0)), over(M), "x"),
    ("x - 0.0", lambda b, x: b(subtract, x, b.constant(0.0)), over(M), "x"),
    ("x - x of floats stays", lambda b, x: b(subtract, x, x), over(M), "subtract(x, x)"),
    ("x - x of ints", lambda b, x: b(subtract, x, x), over(I), "0[2, 3]"),
    ("x * 0 of floats stays", lambda b, x: b(multiply, x, b.constant(0.0)), over(M), "multiply(x, 0.0)"),
    ("(x + 1) + 2 of ints", lambda b, x: b(add, b.constant(2, I32), b(add, x, b.constant(1, I32))), over(I), "add(x, 3)"),
    ("(x + 1) + 2 of floats stays", lambda b, x: b(add, b(add, x, b.constant(1.0)), b.constant(2.0)), over(M),
     "add(add(x, 1.0), 2.0)"),
    ("(x - 1) - 2 of ints", lambda b, x: b(subtract, b(subtract, x, b.constant(1, I32)), b.constant(2, I32)), over(I),
     "add(x, -3)"),
    ("x / 8", lambda b, x: b(divide, x, b.constant(8.0)), over(M), "multiply(x, 0.125)"),
    ("x / 3 stays", lambda b, x: b(divide, x, b.constant(3.0)), over(M), "divide(x, 3.0)"),
    ("--x", lambda b, x: b(negate, b(negate, x)), over(M), "x"),
    ("x + (-y)", lambda b, x, y: b(add, b(negate, y), x), over(M, M), "subtract(x, y)"),
    ("x ^ 2", lambda b, x: b(power, x, b.constant(2.0)), over(M), "multiply(x, x)"),
    ("x ^ 0.5 stays", lambda b, x: b(power, x, b.constant(0.5)), over(M), "power(x, 0.5)"),
    ("|-x|", lambda b, x: b(abs_, b(abs_, b(negate, x))), over(M), "abs(x)"),
    ("floor floor", lambda b, x: b(floor, b(floor, x)), over(M), "floor(x)"),
    ("max(x, x)", lambda b, x: b(maximum, x, x), over(M), "x"),
    ("x < x", lambda b, x: b(compare, x, x, direction="LT"), over(M), "False[2, 3]"),
    ("x == x of floats stays", lambda b, x: b(compare, x, x, direction="EQ"), over(M), "compare(x, x EQ)"),
    ("x == x of ints", lambda b, x: b(compare, x, x, direction="EQ"), over(I), "True[2, 3]"),
    ("not (x < y) of floats stays", lambda b, x, y: b(not_, b(compare, x, y, direction="LT")), over(M, M),
     "not(compare(x, y LT))"),
    ("not (x == y)", lambda b, x, y: b(not_, b(compare, x, y, direction="EQ")), over(M, M), "compare(x, y NE)"),
    ("1 < x", lambda b, x: b(compare, b.constant(1.0), x, direction="LT"), over(M), "compare(x, 1.0 GT)"),
    ("select(true)", lambda b, x, y: b(select, b.constant(True), x, y), over(M, M), "x"),
    ("select(not p)", lambda b, x, y, z: b(select, b(not_, z), x, y), over(M, M, B), "select(z, y, x)"),
    ("x xor x", lambda b, x: b(xor, x, x), over(I), "0[2, 3]"),
    ("x and not x", lambda b, x: b(and_, x, b(not_, x)), over(B), "False[2, 3]"),
    ("convert to wider and back", lambda b, x: b(convert, b(convert, x, dtype=F64), dtype=I32), over(I), "x"),
    ("convert to narrower and back stays", lambda b, x: b(convert, b(convert, x, dtype=F32), dtype=F64), over(M),
     "convert(convert(x f32) f64)"),
    ("reshape reshape", lambda b, x: b(reshape, b(reshape, x, shape=(6,)), shape=(3, 2)), over(M), "reshape(x (3, 2))"),
    ("reshape back", lambda b, x: b(reshape, b(reshape, x, shape=(6,)), shape=(2, 3)), over(M), "x"),
    ("transpose back", lambda b, x: b(transpose, b(transpose, x, permutation=(1, 0)), permutation=(1, 0)), over(M), "x"),
    ("transpose of a row", lambda b, x: b(transpose, x, permutation=(1, 0)), over(tensor(F64, (1, 3))), "reshape(x (3, 1))"),
    ("a broadcast scalar beside a full one", lambda b, x, y: b(add, x, b(broadcast_in_dim, y, shape=(2, 3),
     broadcast_dimensions=())), over(M, S), "add(x, y)"),
    ("only scalars", lambda b, x: b(exponential, b(broadcast_in_dim, x, shape=(2, 3), broadcast_dimensions=())), over(S),
     "broadcast_in_dim(exponential(x) (2, 3) ())"),
    ("broadcast twice", lambda b, x: b(broadcast_in_dim, b(broadcast_in_dim, x, shape=(2, 3), broadcast_dimensions=(1,)),
     shape=(2, 4, 3), broadcast_dimensions=(0, 2)), over(V), "broadcast_in_dim(x (2, 4, 3) (2,))"),
    ("broadcast of a reshape", lambda b, x: b(broadcast_in_dim, b(reshape, x, shape=(1, 3)), shape=(4, 3),
     broadcast_dimensions=(0, 1)), over(V), "broadcast_in_dim(x (4, 3) (1,))"),
    ("broadcast of a transpose", lambda b, x: b(broadcast_in_dim, b(transpose, x, permutation=(1, 0)), shape=(3, 5, 2),
     broadcast_dimensions=(0, 2)), over(M), "broadcast_in_dim(x (3, 5, 2) (2, 0))"),
    ("slice of all", lambda b, x: b(slice_, x, start_indices=(0, 0), limit_indices=(2, 3), strides=(1, 1)), over(M), "x"),
    ("slice of slice", lambda b, x: b(slice_, b(slice_, x, start_indices=(1,), limit_indices=(9,), strides=(2,)),
     start_indices=(1,), limit_indices=(4,), strides=(2,)), over(tensor(F64, (10,))), "slice(x (3,) (8,) (4,))"),
    ("slice of a part", lambda b, x, y: b(slice_, b(concatenate, x, y, dimension=0), start_indices=(4,), limit_indices=(6,),
     strides=(1,)), over(V, V), "slice(y (1,) (3,) (1,))"),
    ("pad by nothing", lambda b, x: b(pad, x, b.constant(0.0), edge_padding_low=(0, 0), edge_padding_high=(0, 0),
     interior_padding=(0, 0)), over(M), "x"),
    ("padded alike", lambda b, x, y: b(subtract, *(b(pad, i, b.constant(v), edge_padding_low=(1,), edge_padding_high=(2,),
     interior_padding=(0,)) for i, v in ((x, 3.0), (y, 1.0)))), over(V, V), "pad(subtract(x, y), 2.0 (1,) (2,) (0,))"),
    ("padded unlike", lambda b, x, y: b(add, *(b(pad, i, b.constant(0.0), edge_padding_low=(k,), edge_padding_high=(2 - k,),
     interior_padding=(0,)) for k, i in enumerate((x, y)))), over(V, V),
     "add(pad(x, 0.0 (0,) (2,) (0,)), pad(y, 0.0 (1,) (1,) (0,)))"),
    ("reverse twice", lambda b, x: b(reverse, b(reverse, x, dimensions=(0,)), dimensions=(0,)), over(M), "x"),
    ("reduce of size 1", lambda b, x: reduction(b, maximum, x, (0,)), over(tensor(F64, (1, 3))), "reshape(x (3,))"),
    ("a type that is known", lambda b, x: b(ensure_type, x, type=M), over(M), "x"),
    ("constants", lambda b, x: b(add, b.constant(2.0), b(multiply, b.constant(3.0), b.constant(4.0))), over(M), "14.0"),
    ("clamp of ints twice", lambda b, x: b(clamp, b.constant(0, I32), b(clamp, b.constant(0, I32), x, b.constant(5, I32)),
     b.constant(5, I32)), over(I), "clamp(0, x, 5)"),
]  # fmt: skip


@pytest.mark.parametrize(("build", "params", "after"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_before_and_after(build: Callable[..., Node], params: list[tuple[str, TensorType]], after: str) -> None:
    assert simplified(build, params) == after


@pytest.mark.parametrize(("build", "after"), [
    (lambda b, x: b(subtract, x, x), "0.0[2, 3]"),
    (lambda b, x: b(add, x, b.constant(0.0)), "x"),
    (lambda b, x: b(sqrt, b(multiply, x, x)), "abs(x)"),
    (lambda b, x: b(divide, b.constant(1.0), b(add, b.constant(1.0), b(exponential, b(negate, x)))), "logistic(x)"),
    (lambda b, x: b(add, b(add, x, b.constant(1.0)), b.constant(2.0)), "add(x, 3.0)"),
])  # fmt: skip
def test_fast_math_is_asked_for(build: Callable[..., Node], after: str) -> None:
    assert simplified(build, over(M), "simplify{fast-math}") == after
    assert simplified(build, over(M)) != after


# --- the engine -----------------------------------------------------------------------------------------------------


def test_equal_nodes_are_one_while_rewriting() -> None:
    assert simplified(lambda b, x, y: b(subtract, b(add, x, y), b(add, y, x)), over(I, I)) == "0[2, 3]"


def test_a_result_of_another_type_is_declined_and_counted() -> None:
    @rule(op_of(add, X, C))
    def left_only(x: Node) -> Node:
        """x + c = x"""
        return x

    b = Builder()
    control = RewriteControl()
    f = b.function("main", over(scalar(F64)), lambda x: (b(add, x, b.splat(0, M)),))
    assert show(rewrite(Module((f,)), RuleSet((left_only,)), control).entry.results[0]) == "add(x, 0.0[2, 3])"
    assert control.declined["left-only"] == 1
    assert not control.count


def test_rules_that_undo_each_other_are_named() -> None:
    @rule(op_of(abs_, X))
    def to_floor(b: Builder, x: Node) -> Node:
        """abs(x) = floor(x)"""
        return b(floor, x)

    @rule(op_of(floor, X))
    def to_abs(b: Builder, x: Node) -> Node:
        """floor(x) = abs(x)"""
        return b(abs_, x)

    b = Builder()
    f = b.function("main", over(M), lambda x: (b(abs_, x),))
    with pytest.raises(PassError, match=r"does not end.*'to-floor'.*'to-abs'"):
        rewrite(Module((f,)), RuleSet((to_floor, to_abs)), RewriteControl())


def test_a_rule_that_grows_for_ever_is_named() -> None:
    @rule(op_of(abs_, X))
    def deeper(b: Builder, x: Node) -> Node:
        """abs(x) = abs(-x)"""
        return b(abs_, b(negate, x))

    b = Builder()
    f = b.function("main", over(M), lambda x: (b(abs_, x),))
    with pytest.raises(PassError, match=r"does not end.*'deeper' \(1\d+ times\)"):
        rewrite(Module((f,)), RuleSet((deeper,)), RewriteControl())


def test_a_rule_that_raises_is_named_with_its_location() -> None:
    @rule(op_of(abs_, X))
    def broken(x: Node) -> Node:
        """abs(x) = ?"""
        raise ZeroDivisionError("oh")

    b = Builder()
    f = b.function("main", over(M), lambda x: (b(abs_, x),))
    with pytest.raises(PassError, match=r"rule 'broken' failed on .*: ZeroDivisionError: oh"):
        rewrite(Module((f,)), RuleSet((broken,)), RewriteControl())


def test_a_rule_is_checked_when_it_is_made() -> None:
    with pytest.raises(ValueError, match="unknown parameters"):
        rule(op_of(abs_, X))(lambda q: q)
    with pytest.raises(ValueError, match="does not take"):
        op_of(add, X)


def test_rewritten_nodes_keep_name_location_and_rules() -> None:
    b = Builder()
    x = b.param(0, M, "x")
    y = Node(power, (x, b.constant(2.0)), (), M, x.origin.__class__("y", (), ()))
    after = run_pipeline(Module((Function("main", (x,), (y,)),)), parse_pipeline("algebra")).entry
    assert after.results[0].name == "y"
    assert after.results[0].origin.rewrites == ("square",)
    assert after.result_name(0) == "y"


def test_result_names_survive_the_loss_of_their_nodes() -> None:
    b = Builder()
    x = b.param(0, M, "x")
    y = Node(negate, (b(negate, x),), (), M, x.origin.__class__("y"))
    after = run_pipeline(Module((Function("main", (x,), (y,)),)), parse_pipeline("algebra")).entry
    assert after.results == (x,)
    assert after.result_name(0) == "y"


@pytest.mark.parametrize("length", [10_000, pytest.param(100_000, marks=pytest.mark.conformance)])
def test_a_long_chain_is_no_deeper_than_a_short_one(length: int) -> None:
    b = Builder()

    def body(x: Node) -> list[Node]:
        for _ in range(length // 2):
            x = b(negate, b(add, b(multiply, x, b.constant(1.0)), x))
        return [x]

    m = Module((b.function("main", over(M), body),))
    after = run_pipeline(m, parse_pipeline("inline,sccp,cse,simplify,dce"))
    assert len(after.entry.nodes) == 1 + length
    assert_normal_form(after, RuleSet(ALGEBRA))


def test_integer_constants_of_a_long_chain_are_one() -> None:
    b = Builder()

    def body(x: Node) -> list[Node]:
        for _ in range(5_000):
            x = b(add, x, b.constant(3, I32))
        return [x]

    after = run_pipeline(Module((b.function("main", over(I), body),)), parse_pipeline("simplify"))
    assert show(after.entry.results[0]) == "add(x, 15000)"
    assert math.prod((3, 5000)) == 15000


def test_folding_a_huge_filled_tensor_makes_nothing_large() -> None:
    huge = tensor(F64, (10**6, 10**6))
    b = Builder()
    one, two = b.splat(1, huge), b.splat(2, huge)
    f = b.function("main", over(S), lambda x: (b(add, one, two), reduction(b, add, one, (0, 1))))
    results = run_pipeline(Module((f,)), parse_pipeline("fold")).entry.results
    assert results[0].op is CONSTANT
    assert float(results[0].attrs[0].splat_value) == 3.0
    assert results[1].op is not CONSTANT
