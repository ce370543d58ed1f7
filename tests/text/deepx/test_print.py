"""Printed deepx: names, functions, fusions, effects and draws in dialects A, E and F; what a dialect cannot say is refused."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepx_graph.errors import DeepxGraphError, Source, UsageError, VerifyError
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ops import (
    add,
    compare,
    convert,
    exponential,
    fusion,
    load,
    maximum,
    module_seed,
    multiply,
    negate,
    next_after,
    print_,
    rng_uniform,
    save,
    subtract,
)
from deepx_graph.ops.host.host import Host
from deepx_graph.text import ReadOptions, deepx, open_source
from deepx_graph.types import C64, F32, I8, I32, I64, STATE, U8, U32, scalar, tensor
from tests.support.deepx_printed import CORPUS, DIALECTS, X, again, assert_same, module
from tests.support.generate import random_module
from tests.support.reference import evaluate


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
        results = evaluate(program, [x, Host(tmp_path, out)])
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


def _next(b: Builder, x: Node) -> list[Node]:
    return [b(next_after, x, x)]


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
    (_next, "next_after: has no form in deepx"), (_branch, "region: has no form"), (_loop, "loop_begin: has no form"),
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
    lines = ["  %a = next_after %x, %x : f32[2]", "  %b = floor %a : f32[2]", "  return %b", "}"]
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
