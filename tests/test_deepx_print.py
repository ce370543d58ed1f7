"""Printed deepx reads back as the same function of its inputs, in dialects A, E and F; what a dialect cannot say is refused."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepx_graph.errors import DeepxGraphError, Source, UsageError, VerifyError
from deepx_graph.ir import Builder, Function, Module, Node, Op
from deepx_graph.ops import (
    World,
    abs_,
    add,
    and_,
    atan2,
    broadcast_in_dim,
    clamp,
    compare,
    concatenate,
    convert,
    cosine,
    divide,
    dot_general,
    exponential,
    floor_mod,
    fusion,
    iota,
    load,
    log,
    logistic,
    maximum,
    minimum,
    module_seed,
    multiply,
    negate,
    not_,
    or_,
    pad,
    power,
    print_,
    reduction,
    reshape,
    reverse,
    rng_uniform,
    rsqrt,
    save,
    select,
    slice_,
    sqrt,
    subtract,
    torch_index_select,
    transpose,
    xor,
)
from deepx_graph.text import ReadOptions, deepx, open_source
from deepx_graph.types import BOOL, C64, F16, F32, F64, I8, I32, I64, STATE, U8, U32, Type, scalar, tensor
from deepx_graph.verify import verify
from tests.generate import random_module
from tests.reference import evaluate

DIALECTS = ("seed", "wire", "function")
X = tensor(F32, (2, 3))
CORPUS = Path(__file__).parents[2] / "shared" / "corpus" / "deepx"


def module(body: Callable[..., Any], *types: Type, b: Builder | None = None, **fields: Any) -> Module:
    b = b or Builder()
    return Module((b.function("main", [(f"x{k}", t) for k, t in enumerate(types)], body, **fields),))


def again(m: Module, dialect: str) -> Module:
    back = deepx.read(Source(dialect, deepx.write(m, dialect)), ReadOptions()).module
    verify(back)
    f, g = m.entry, back.entry
    assert [p.type for p in g.params] == [p.type for p in f.params]
    assert len(g.results) == len(f.results)
    return back


def inputs_for(m: Module, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [
        np.asarray(rng.integers(-2, 3, p.type.shape) * (0.75 if p.type.dtype.is_float else 1)).astype(p.type.dtype.np)
        for p in m.entry.params
    ]  # type: ignore[attr-defined]


def assert_same(m: Module, dialect: str) -> None:
    """Written and read back, the module computes the same, bit for bit but for the sign of zero and the bits of NaN."""
    back = again(m, dialect)
    xs = inputs_for(m)
    with np.errstate(all="ignore"):
        for want, have in zip(evaluate(m, xs), evaluate(back, xs), strict=True):
            assert want.dtype == have.dtype
            np.testing.assert_array_equal(want, have)


CASES: dict[str, tuple[Callable[..., Any], tuple[Type, ...]]] = {
    "numbers on either side": (
        lambda b, x: [
            b(op, *pair)
            for op in (add, subtract, multiply, divide, power, maximum, minimum, floor_mod)
            for pair in ((x, b.like(1.5, x)), (b.like(0.1, x), x))
        ],
        (X,),
    ),
    "a computed scalar": (
        lambda b, x, s: [b(add, x, b(negate, s)), b(subtract, s, x), b(exponential, s)],
        (X, scalar(F32)),
    ),
    "scalar parameters": (lambda b, s, x, n: [b(multiply, s, x), b(add, s, s), n], (scalar(F32), X, scalar(I64))),
    "splats": (
        lambda b, x: [
            b(add, x, b.splat(2, X)),
            b.splat(float("-inf"), X),
            b.splat(-0.0, X),
            b.constant(np.float32(np.nan)),
        ],
        (X,),
    ),
    "made of others": (lambda b, x: [b(op, x) for op in (negate, abs_, rsqrt, logistic, sqrt, cosine, log)], (X,)),
    "integers": (
        lambda b, x: [b(negate, x), b(abs_, x), b(add, x, b.like(100, x)), b(divide, x, b.like(-3, x))],
        (tensor(I8, (4,)),),
    ),
    "wide integers": (lambda b, x: [b(add, x, b.like(2**62 + 1, x))], (tensor(I64, (4,)),)),
    "half floats": (
        lambda b, x: [b(multiply, x, b.like(0.1, x)), b.constant(np.array([1, 1.5, 2, 2.5], np.float16))],
        (tensor(F16, (4,)),),
    ),
    "bools": (
        lambda b, x, y: [b(and_, x, y), b(or_, x, y), b(xor, x, y), b(not_, x), b(select, x, y, x)],
        (tensor(BOOL, (5,)), tensor(BOOL, (5,))),
    ),
    "comparisons": (
        lambda b, x, y: [
            b(compare, *p, direction=d)
            for d in ("EQ", "NE", "LT", "LE", "GT", "GE")
            for p in ((x, y), (x, b.like(0, x)), (b.like(0, x), y))
        ],
        (X, X),
    ),
    "choices": (
        lambda b, p, x, s: [
            b(select, p, x, b.like(0, x)),
            b(select, b(compare, s, s, direction="EQ"), x, x),
            b(clamp, b.like(-1, x), x, s),
        ],
        (tensor(BOOL, (2, 3)), X, scalar(F32)),
    ),
    "conversions": (lambda b, x: [b(convert, x, dtype=d) for d in (F64, I32, BOOL, I8)], (X,)),
    "shapes": (
        lambda b, x: [
            b(reshape, x, shape=(6,)),
            b(transpose, x, permutation=(1, 0)),
            b(reshape, b(reshape, x, shape=(6, 1)), shape=(3, 2)),
            b(broadcast_in_dim, x, shape=(4, 2, 3), broadcast_dimensions=(1, 2)),
            b(broadcast_in_dim, x, shape=(2, 4, 3), broadcast_dimensions=(0, 2)),
            b(broadcast_in_dim, x, shape=(3, 2), broadcast_dimensions=(1, 0)),
        ],
        (X,),
    ),
    "cutting and joining": (
        lambda b, x: [
            b(slice_, x, start_indices=(0, 1), limit_indices=(2, 3), strides=(1, 2)),
            b(reverse, x, dimensions=(0, 1)),
            b(concatenate, x, x, x, dimension=1),
            b(slice_, x, start_indices=(1, 0), limit_indices=(1, 3), strides=(1, 1)),
            b(pad, x, b.like(9, x), edge_padding_low=(1, 0), edge_padding_high=(2, 3), interior_padding=(0, 0)),
        ],
        (X,),
    ),
    "picking": (
        lambda b, x, i: [b(torch_index_select, x, b(maximum, i, b.like(0, i)), dim=1)],
        (tensor(F32, (2, 3)), tensor(I32, (5,))),
    ),
    "counting": (
        lambda b: [
            b(iota, dtype=d, shape=s, iota_dimension=k)
            for d in (I32, F32)
            for s, k in (((4,), 0), ((2, 3), 0), ((2, 3), 1), ((1, 3), 1))
        ],
        (),
    ),
    "constants": (
        lambda b: (
            [b.constant(np.array(v, np.float32)) for v in ([1, 3, 5], [[0, 0.25], [0.5, 0.75]], [[3, 1], [4, 1]])]
            + [b.constant(np.zeros((0, 2), np.int32)), b.constant(np.array([True, False]))]
        ),
        (),
    ),
    "reductions": (
        lambda b, x: [
            reduction(b, op, x, d) for op in (add, multiply, maximum, minimum) for d in ((0,), (1,), (0, 1), ())
        ],
        (X,),
    ),
    "reductions of bools": (lambda b, x: [reduction(b, op, x, (0,)) for op in (and_, or_)], (tensor(BOOL, (2, 3)),)),
    "products": (
        lambda b, x, y: [
            _dot(b, x, y, (), (), (1,), (0,)),
            _dot(b, x, x, (), (), (1,), (1,)),
            _dot(b, x, x, (), (), (0, 1), (0, 1)),
            _dot(b, x, x, (0,), (0,), (1,), (1,)),
            _dot(b, x, y, (), (), (), ()),
        ],
        (X, tensor(F32, (3, 4))),
    ),
    "batched products": (
        lambda b, x, y: [_dot(b, x, y, (0,), (0,), (2,), (1,)), _dot(b, x, y, (1,), (2,), (2,), (1,))],
        (tensor(F64, (2, 3, 4)), tensor(F64, (2, 4, 3))),
    ),
    "results twice and parameters": (lambda b, x, y: [y, b.like(1, x), b(add, x, y), x, y], (X, X)),
    "empty tensors": (lambda b, x: [b(add, x, x), b(concatenate, x, x, dimension=0)], (tensor(F32, (0, 3)),)),
}


def _dot(b: Builder, x: Node, y: Node, *axes: tuple[int, ...]) -> Node:
    names = (
        "lhs_batching_dimensions",
        "rhs_batching_dimensions",
        "lhs_contracting_dimensions",
        "rhs_contracting_dimensions",
    )
    return b(dot_general, x, y, **dict(zip(names, axes, strict=True)))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("case", CASES)
def test_every_operation(case: str, dialect: str) -> None:
    make, types = CASES[case]
    b = Builder()
    assert_same(module(lambda *xs: make(b, *xs), *types, b=b), dialect)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_generated_programs(dialect: str) -> None:
    written = 0
    for seed in range(60):
        m = random_module(random.Random(seed), control=False, exact=True)
        if can_say(m, dialect):
            written += 1
            assert_same(m, dialect)
    assert written > 20


def can_say(m: Module, dialect: str) -> bool:
    """Whether the program has no floor, sign or the like, which deepx has not."""
    try:
        return bool(deepx.write(m, dialect))
    except VerifyError:
        return False


# --- the texts -------------------------------------------------------------------------------------------------------


def small() -> Module:
    b = Builder()
    return module(lambda x: [b(multiply, b(add, x, b.like(0.5, x)), x)], X, b=b, result_names=("out",))


def test_dialect_a_sets_arguments_and_deletes_what_is_no_result() -> None:
    assert deepx.write(small(), "seed") == (
        "argset@int32 2 3->v1\n"
        "newtensor@float32 v1->out\n"
        "newtensor@float32 v1->p1\n"
        "max@float32 x0 x0->p1\n"
        "deltensor p1\n"
        "newtensor@float32 v1->t1\n"
        "argset@float32 0.5->a1\n"
        "add_scalar@float32 x0 a1->t1\n"
        "mul@float32 t1 x0->out\n"
        "deltensor t1\n"
    ).replace("deltensor ", "deltensor ")


def test_dialect_e_types_every_operand() -> None:
    assert deepx.write(small(), "wire") == (
        "newtensor (vector<int32>:[2 3]) -> (tensor<float32>:out)\n"
        "newtensor (vector<int32>:[2 3]) -> (tensor<float32>:p1)\n"
        "max (tensor<float32>:x0, tensor<float32>:x0) -> (tensor<float32>:p1)\n"
        "deltensor () -> (tensor<float32>:p1)\n"
        "newtensor (vector<int32>:[2 3]) -> (tensor<float32>:t1)\n"
        "addscalar (tensor<float32>:x0, var<float32>:0.5) -> (tensor<float32>:t1)\n"
        "mul (tensor<float32>:t1, tensor<float32>:x0) -> (tensor<float32>:out)\n"
        "deltensor () -> (tensor<float32>:t1)\n"
    )


def test_dialect_f_is_a_function() -> None:
    assert deepx.write(small(), "function") == (
        "deepxir main(x0: tensor<2x3xf32>) -> (out: tensor<2x3xf32>) {\n"
        "  newtensor([2,3], f32)-> t1\n"
        "  addscalar(x0, 0.5)-> t1\n"
        "  mul(t1, x0)-> out\n"
        "}\n"
    )


HOSTILE = [
    "a b", 'q"', "x//y", "a,b", "f(x)", "1e5", "inf", "true", "->", "v1", "a1", "t1", "", "\u202e", "x:y", "[z]", "f32", "func",
    "é", "x\n", "__import__('os')", "p1",
]  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
def test_hostile_names_are_replaced_and_legal_ones_kept(dialect: str) -> None:
    b = Builder()
    params = tuple(b.param(k, X, name) for k, name in enumerate(HOSTILE + ["weight_1.w"]))
    total = params[0]
    for p in params[1:]:
        total = b(subtract, total, p)
    m = Module((Function("ev il()", params, (total, *params[:3]), (*HOSTILE[:2], "weight_1.w", "ok")),), "ev il()")
    assert_same(m, dialect)
    text = deepx.write(m, dialect)
    assert text.isascii()
    assert "weight_1.w" in text
    assert "__import__" not in text


def test_names_and_types_of_inputs_and_outputs_are_kept() -> None:
    b = Builder()
    f = b.function(
        "main",
        [("w.b", X), ("n", scalar(I32)), ("unused", tensor(I8, (4,)))],
        lambda w, n, u: [b(add, w, w), n],
        result_names=("y.0", "count"),
    )
    for dialect in DIALECTS:
        g = again(Module((f,)), dialect).entry
        assert [p.name for p in g.params] == ["w.b", "n", "unused"]
        assert [g.result_name(k) for k in range(2)] == ["y.0", "count"]


@pytest.mark.parametrize("dialect", ["seed", "wire"])
def test_unknown_shapes_stay_unknown(dialect: str) -> None:
    b = Builder()
    types = (tensor(F32, None), tensor(F32, None))
    m = module(lambda x, y: [b(add, y, b(negate, x))], *types, b=b)
    f = again(m, dialect).entry
    xs = [np.float32([1, 2]), np.float32([5, 7])]
    np.testing.assert_array_equal(evaluate(again(m, dialect), xs)[0], np.float32([4, 5]))
    assert f.type == m.entry.type


def test_symbols_of_dialect_f() -> None:
    b = Builder()
    m = module(lambda x: [b(add, x, x)], tensor(F32, ("n", 2)), b=b)
    text = deepx.write(m, "function")
    assert "x0: tensor<?1x2xf32>" in text
    assert again_dims(text) == ("?1", 2)


def again_dims(text: str) -> Any:
    return deepx.read(Source("f", text), ReadOptions()).module.entry.results[0].type.dims  # type: ignore[attr-defined]


# --- functions, fusions, effects, draws --------------------------------------------------------------------------------


def test_functions_and_calls() -> None:
    b = Builder()
    two = b.function(
        "add", [("a", X), ("s", scalar(F32))], lambda a, s: [b(multiply, a, s), b(add, s, s)], public=False
    )
    other = b.function("main", [("a", X)], lambda a: [b.call(two, a, b.constant(3, F32))[0]], public=False)

    def body(x: Node, s: Node) -> list[Node]:
        first, second = b.call(two, x, s)
        return [first, b.call(other, first)[0], b.call(two, x, second)[1]]

    entry = b.function("start", [("x", X), ("s", scalar(F32))], body)
    m = Module((entry, two, other), "start")
    assert_same(m, "function")
    text = deepx.write(m, "function")
    assert text.count("deepxir ") == 3
    assert again(m, "function").entry.name == "start"
    for dialect in ("seed", "wire"):
        with pytest.raises(VerifyError, match="inline it first"):
            deepx.write(m, dialect)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_fusions_are_written_as_their_bodies(dialect: str) -> None:
    b = Builder()
    one = b.function("one", [("a", X), ("c", X)], lambda a, c: [b(exponential, b(add, a, c))])
    two = b.function("two", [("a", X)], lambda a: [b(negate, a), a, b(multiply, a, b.like(2, a))])

    def body(x: Node, y: Node) -> list[Node]:
        again = b(fusion, b(fusion, x, y, body=one), x, body=one)
        return [again, *b.items(b(fusion, again, body=two)), b(fusion, y, y, body=one)]

    assert_same(module(body, X, X, b=b), dialect)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_effects_stay_in_order(dialect: str, tmp_path: Path) -> None:
    b = Builder()

    def body(x: Node, s: Node) -> list[Node]:
        s = b(print_, s, x, format="%.4f")
        s = b(save, s, b(add, x, x), path="twice")
        value, s = b.items(b(load, s, path="twice", type=X))
        s = b(print_, s, b(negate, value))
        s = b(save, s, x, path="other")
        again, s = b.items(b(load, s, path="other", type=X))
        third, s = b.items(b(load, s, path="other", type=X))
        return [b(add, again, third), value, s]

    m = module(body, X, STATE, b=b, result_names=("other", "twice", "state"))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    shown = []
    for program in (m, again(m, dialect)):
        out = io.StringIO()
        results = evaluate(program, [x, World(tmp_path, out)])
        np.testing.assert_array_equal(results[0], 2 * x)
        np.testing.assert_array_equal(results[1], 2 * x)
        shown.append(out.getvalue())
    assert shown[0] == shown[1] != ""
    assert again(m, dialect).entry.result_name(1) == "twice"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_draws_keep_their_seeds(dialect: str) -> None:
    b = Builder()

    def draw(seed: Node) -> Node:
        return b(rng_uniform, b.constant(0, F32), b.constant(2, F32), seed, shape=(2, 3), dtype=F32)

    seeds = [b.constant(7, I64), b.constant(0, I64), b.constant(42, U32)]
    assert_same(module(lambda: [draw(s) for s in seeds], b=b), dialect)
    m = module(lambda: [draw(b(module_seed, index=k)) for k in (0, 2, 3)], b=b)
    found = [n.attrs[0] for n in again(m, dialect).entry.nodes if n.op is module_seed]
    assert found == [0, 2, 3]
    with pytest.raises(VerifyError, match="seed number 0 after number 1"):
        deepx.write(module(lambda: [draw(b(module_seed, index=k)) for k in (1, 0)], b=b), dialect)


# --- what cannot be said --------------------------------------------------------------------------------------------------


def _atan(b: Builder, x: Node) -> list[Node]:
    return [b(atan2, x, x)]


def _branch(b: Builder, x: Node) -> list[Node]:
    return list(b.branch(b.constant(True), [x], [x]))


def _loop(b: Builder, x: Node) -> list[Node]:
    return list(b.loop([x], lambda v: (b.constant(False), [v[0]])))


def _dense(b: Builder, x: Node) -> list[Node]:
    return [b.constant(np.arange(30, dtype=np.float32) ** 2)]


def _complex(b: Builder, x: Node) -> list[Node]:
    return [b(convert, x, dtype=C64)]


def _order(b: Builder, x: Node) -> list[Node]:
    return [b(compare, x, x, direction="LT", compare_type="TOTALORDER")]


def _small(b: Builder, x: Node) -> list[Node]:
    return [b(convert, x, dtype=U32)]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("body", "says"), [
    (_atan, "atan2: has no form in deepx"), (_branch, "region: has no form"), (_loop, "loop_begin: has no form"),
    (_dense, "no literal of 30 elements"), (_complex, "no element type c64"), (_order, "no total order"),
    (_small, "no element type u32"),
])  # fmt: skip
def test_what_deepx_cannot_say_is_named(body: Callable[..., list[Node]], says: str, dialect: str) -> None:
    b = Builder()
    m = module(lambda x: body(b, x), X, b=b)
    with pytest.raises(VerifyError) as caught:
        deepx.write(m, dialect)
    assert says in str(caught.value)
    assert len(caught.value.diagnostics) == 1


def test_all_that_cannot_be_said_is_named_with_its_line() -> None:
    lines = ["  %a = tanh %x : f32[2]", "  %b = floor %a : f32[2]", "  return %b", "}"]
    text = "\n".join(["sea 1", "entry @main", "func public @main(%x: f32[2]) -> (%y: f32[2]) {", *lines])
    from deepx_graph.text import read

    with pytest.raises(VerifyError) as caught:
        deepx.write(read(Source("m.sea", text)).module, "wire")
    assert [d.span.line for d in caught.value.diagnostics if d.span][:1] == [4]


@pytest.mark.parametrize("path", ["a,b", "a//b", "a->b", "a[0]", "a\nb", " a", "dir/x y"])
def test_paths_that_would_break_the_line_are_refused(path: str) -> None:
    b = Builder()
    m = module(lambda s: list(b.items(b(load, s, path=path, type=X))), STATE, b=b)
    for dialect in DIALECTS:
        with pytest.raises(VerifyError):
            deepx.write(m, dialect)


def test_unknown_dialects() -> None:
    with pytest.raises(UsageError, match="did you mean 'wire'"):
        deepx.write(small(), "wired")


def test_element_types_of_dialect_f() -> None:
    b = Builder()
    m = module(lambda x: [b(maximum, x, b.like(3, x))], tensor(U8, (2,)), b=b)
    assert_same(m, "function")
    with pytest.raises(VerifyError, match="no element type u8"):
        deepx.write(m, "wire")


# --- the corpus ----------------------------------------------------------------------------------------------------------------


def test_the_corpus_is_written_and_read_back() -> None:
    if not CORPUS.is_dir():
        print(f"left out: no corpus at {CORPUS}")
        pytest.skip(f"no corpus at {CORPUS}")
    files = sorted(CORPUS.rglob("*.dx"))
    for file in files[::3]:
        try:
            m = deepx.read(open_source(file), ReadOptions()).module
        except DeepxGraphError:
            continue  # recorded malformed
        for dialect in ("seed", "wire"):
            back = again(m, dialect)
            if dialect == "wire":
                assert [back.entry.result_name(k) for k in range(len(back.entry.results))] == [
                    m.entry.result_name(k) for k in range(len(m.entry.results))
                ]
            if (
                not any(p.type == STATE for p in m.entry.params)
                and not any(n.op is module_seed for n in m.entry.nodes)
                and all(p.type.is_static for p in m.entry.params)
            ):  # type: ignore[attr-defined]
                assert_same(m, dialect)


def test_every_row_of_the_table_is_tried() -> None:
    from deepx_graph.text.deepx.print_ops import EMITTERS

    tried: set[Op] = set()
    for make, types in CASES.values():
        b = Builder()
        tried |= {n.op for n in module(lambda *xs, make=make, b=b: make(b, *xs), *types, b=b).entry.nodes}
    left = {op.name for op in set(EMITTERS) - tried}
    assert left <= {"sine", "tan", "ensure_type", "rng_uniform", "rng_normal", "exponential"}
