"""`compile`: what a caller sees. Inputs and outputs, complaints before anything runs, specialisation, limits, profiles, threads."""

from __future__ import annotations

import gc
import json
import threading
import warnings
from collections.abc import Sequence
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepx_graph.cycles import NEW
from deepx_graph.errors import LimitError, RunError, UsageError
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.structure import CONSTANT, TUPLE
from deepx_graph.ops import (
    add,
    broadcast_in_dim,
    compare,
    ensure_type,
    load,
    module_seed,
    multiply,
    negate,
    print_,
    reduction,
    reshape,
    rng_uniform,
    save,
    transpose,
)
from deepx_graph.ops.math.random import derive_seed
from deepx_graph.rewrite.specialise import specialise
from deepx_graph.runtime import engines
from deepx_graph.runtime.compile import compile
from deepx_graph.types import (
    ANY,
    F32,
    F64,
    I32,
    I64,
    STATE,
    FunctionType,
    TupleType,
    Type,
    add_dims,
    dim_value,
    mul_dims,
    scalar,
    tensor,
)

VECTOR = tensor(F32, (3,))
ONES = np.ones(3, np.float32)


def module(body: Any, *types: Type, names: Sequence[str] = (), functions: Sequence[Function] = (), **fields: Any) -> Module:
    b = Builder()
    params = [(names[k] if k < len(names) else f"x{k}", t) for k, t in enumerate(types)]
    return Module((b.function("main", params, lambda *x: body(b, *x), **fields), *functions))


def call(m: Module, *args: Any, **options: Any) -> tuple[Any, ...]:
    return compile(m, engine="numpy", **options)(*args)


def double(b: Builder, x: Node) -> Sequence[Node]:
    return [b(add, x, x)]


# --- inputs and outputs --------------------------------------------------------------------------------------------


def test_names_and_types() -> None:
    f = compile(module(lambda b, x, y: [b(add, x, y)], VECTOR, VECTOR, names=("left", ""), result_names=("sum",)))
    assert [(p.name, str(p.type)) for p in f.inputs] == [("left", "f32[3]"), ("arg1", "f32[3]")]
    assert [(p.name, str(p.type)) for p in f.outputs] == [("sum", "f32[3]")]
    np.testing.assert_array_equal(f(ONES, arg1=2 * ONES)[0], 3 * ONES)
    np.testing.assert_array_equal(f(left=ONES, arg1=2 * ONES)[0], 3 * ONES)


def test_tuples_are_their_leaves() -> None:
    pair = TupleType((VECTOR, TupleType((scalar(F32),))))

    def body(b: Builder, p: Node) -> Sequence[Node]:
        x, inner = b.items(p)
        return [b(TUPLE, p, b(negate, x)), b.items(inner)[0]]

    f = compile(module(body, pair, names=("p",)), engine="numpy")
    assert [p.name for p in f.inputs] == ["p.0", "p.1.0"]
    assert [str(p.type) for p in f.outputs] == ["f32[3]", "f32[]", "f32[3]", "f32[]"]
    found = f(ONES, np.float32(7))
    assert [r.tolist() for r in found] == [[1, 1, 1], 7, [-1, -1, -1], 7]


def test_the_state_is_hidden(tmp_path: Path) -> None:
    def body(b: Builder, x: Node, state: Node) -> Sequence[Node]:
        return [b(add, x, x), b(save, b(print_, state, x), x, path="kept")]

    f = compile(module(body, VECTOR, STATE, names=("x", "state")), engine="numpy", data_root=tmp_path, out=StringIO())
    assert [p.name for p in f.inputs] == ["x"]
    assert len(f.outputs) == len(f(ONES)) == 1
    assert np.fromfile(tmp_path / "kept.data", np.float32).tolist() == [1, 1, 1]


def test_results_are_fresh() -> None:
    """An input, a constant, a view, and the same value twice: what comes out is the caller's to change."""
    def body(b: Builder, x: Node) -> Sequence[Node]:
        twice = b(add, x, x)
        return [x, b.splat(5, VECTOR), b(transpose, x, permutation=(0,)), twice, twice, b(reshape, twice, shape=(3, 1))]

    x = ONES.copy()
    f = compile(module(body, VECTOR), engine="numpy")
    first = f(x)
    for k, array in enumerate(first):
        assert not np.may_share_memory(array, x)
        assert not any(np.may_share_memory(array, other) for other in first[:k])
        array[...] = 99
    assert [r.reshape(-1).tolist() for r in f(x)] == [[1] * 3, [5] * 3, [1] * 3, [2] * 3, [2] * 3, [2] * 3]


def test_results_stay_when_it_is_called_again() -> None:
    f = compile(module(lambda b, x: [b(multiply, b(add, x, x), x)], tensor(F32, (100_000,))))
    first = f(np.full(100_000, 2, np.float32))[0]
    f(np.full(100_000, 3, np.float32))
    assert first[0] == first[-1] == 8


def test_numbers_and_other_layouts_are_taken() -> None:
    f = compile(module(lambda b, x, k: [b(multiply, x, k)], tensor(F32, (2, 3)), scalar(F32)), engine="numpy")
    x = np.arange(6, dtype=np.float32).reshape(3, 2).T
    np.testing.assert_array_equal(f(x, 2)[0], 2 * x)
    np.testing.assert_array_equal(f(x.astype(">f4"), 2.0)[0], 2 * x)


# --- complaints ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "named", "message", "expected"),
    [
        ((), {}, "input 'x' is missing", "x: f32[3]"),
        ((ONES,), {}, "input 'n' is missing", "n: i32[]"),
        ((ONES, 1, 2), {}, "3 inputs are given and the program takes 2", "x: f32[3], n: i32[]"),
        ((ONES, 1), {"m": 1}, "the program has no input 'm'", "x: f32[3], n: i32[]"),
        ((ONES, 1), {"n": 1}, "input 'n' is given twice", "x: f32[3], n: i32[]"),
        ((np.ones(4, np.float32), 1), {}, "input 'x' is an f32[4]", "f32[3]"),
        ((np.ones((3, 1), np.float32), 1), {}, "input 'x' is an f32[3,1]", "f32[3]"),
        ((np.ones(3), 1), {}, "input 'x' is an f64[3]", "f32[3]"),
        ((ONES, np.int64(1)), {}, "input 'n' is an i64[]", "i32[]"),
        ((ONES, "1"), {}, "input 'n' is a string[]", "i32[]"),
        (([[1], [2, 3]], 1), {}, "input 'x' is not an array", "f32[3]"),
        ((np.ma.array(ONES, mask=[0, 1, 0]), 1), {}, "input 'x' has masked elements", "f32[3]"),
    ],
)
def test_ill_typed_inputs(args: tuple[Any, ...], named: dict[str, Any], message: str, expected: str) -> None:
    out = StringIO()

    def body(b: Builder, x: Node, n: Node, state: Node) -> Sequence[Node]:
        return [b(print_, b(print_, state, n), x)]

    f = compile(module(body, VECTOR, scalar(I32), STATE, names=("x", "n", "state")), engine="numpy", out=out)
    with pytest.raises(RunError) as caught:
        f(*args, **named)
    assert message in caught.value.diagnostics[0].message
    assert caught.value.diagnostics[0].expected == expected
    assert out.getvalue() == ""


def test_a_nearly_right_name_gets_a_hint() -> None:
    with pytest.raises(RunError, match="did you mean 'weights'"):
        compile(module(double, VECTOR, names=("weights",)), engine="numpy")(wieghts=ONES)


def test_unknown_engines_and_entries() -> None:
    with pytest.raises(UsageError, match="did you mean 'numpy'"):
        compile(module(double, VECTOR), engine="nunpy")
    with pytest.raises(UsageError, match="no function 'mian'"):
        compile(module(double, VECTOR), entry="mian")
    with pytest.raises(UsageError, match="0 threads"):
        engines.get("numpy", 0)
    assert engines.get("auto").name == ("native" if engines.has_native() else "numexpr")


def test_what_is_missing_without_llvmlite_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    api = import_module("deepx_graph.api.execution")
    monkeypatch.setattr(engines, "has_native", lambda: False)
    api._tell_of_native.cache_clear()
    with pytest.warns(UserWarning, match=r"pip install 'deepx-graph\[native\]'"):
        f = api.compile(module(double, VECTOR))
    assert f.engine.name == "numexpr"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        api.compile(module(double, VECTOR)), api.compile(module(double, VECTOR), engine="numpy")
    assert not said
    api._tell_of_native.cache_clear()


def test_the_search_for_cycles_is_rare_in_a_compilation_and_as_before_behind_the_last() -> None:
    before, found = gc.get_threshold(), []

    def prepare(m: Module) -> Module:
        found.append(gc.get_threshold())
        return m

    def another(m: Module) -> Module:
        inner = threading.Thread(target=lambda: compile(m, engine="numpy", prepare=prepare))
        inner.start()
        inner.join()
        return prepare(m)

    compile(module(double, VECTOR), engine="numpy", prepare=another)
    assert found == [(NEW, *before[1:])] * 2
    assert gc.get_threshold() == before


def test_another_entry() -> None:
    b = Builder()
    other = b.function("other", [("y", VECTOR)], lambda y: [b(negate, y)])
    m = module(double, VECTOR, functions=[other])
    np.testing.assert_array_equal(call(m, ONES, entry="other")[0], -ONES)


def test_memory_is_bounded_before_anything_is_allocated() -> None:
    m = module(lambda b, x: [b(broadcast_in_dim, x, shape=(10**6, 10**6), broadcast_dimensions=())], scalar(F64))
    with pytest.raises(LimitError, match="needs 8000000000000 bytes"):
        compile(m)
    small = module(lambda b, x: [b(add, x, x)], tensor(F64, (100,)))
    with pytest.raises(LimitError, match="needs 800 bytes at its peak, more than the limit of 799"):
        compile(small, max_bytes=799)
    assert call(small, np.ones(100), max_bytes=800)[0][0] == 2


# --- specialisation ------------------------------------------------------------------------------------------------


def test_symbols_and_ranks_take_the_sizes_of_the_inputs() -> None:
    def body(b: Builder, x: Node, y: Node) -> Sequence[Node]:
        flat = b(reshape, x, shape=(mul_dims(("?1", "?2")),))
        return [reduction(b, add, flat, (0,)), b(add, y, y), b(ensure_type, y, type=tensor(F32, None))]

    f = compile(module(body, tensor(F32, ("?1", "?2")), tensor(F32, None), names=("x", "y")), engine="numpy")
    with pytest.raises(RunError, match="known only once it is called"):
        _ = f.plan
    for shape in ((2, 3), (4, 1)):
        total, doubled, same = f(np.ones(shape, np.float32), ONES)
        assert (total, doubled.tolist(), same.tolist()) == (shape[0] * shape[1], [2, 2, 2], [1, 1, 1])
        assert f.schedule.function.params[0].type == tensor(F32, shape)


def test_one_symbol_is_one_size() -> None:
    f = compile(module(lambda b, x, y: [b(add, x, y)], tensor(F32, ("?1",)), tensor(F32, ("?1",)), names=("x", "y")))
    with pytest.raises(RunError, match=r"size \?1 is 3 in input 'x' and 4 in input 'y'"):
        f(ONES, np.ones(4, np.float32))


def test_what_does_not_fit_the_inputs_is_an_error_at_its_node() -> None:
    unknown = tensor(F32, None)
    f = compile(module(lambda b, x, y: [b(add, x, y)], unknown, unknown))
    with pytest.raises(RunError, match="add: "):
        f(ONES, np.ones(4, np.float32))


def test_an_unknown_dtype_is_that_of_the_input() -> None:
    f = compile(module(double, tensor(ANY, None)), engine="numpy")
    assert f(np.arange(3, dtype=np.int16))[0].dtype == np.int16
    assert f(np.ones((2, 2)))[0].dtype == np.float64


def test_control_flow_of_unknown_shapes() -> None:
    def body(b: Builder, x: Node) -> Sequence[Node]:
        def iteration(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
            (y,) = b.branch(b(compare, v[0], b.constant(1, I32), direction="LT"), [b(add, v[1], x)], [b(negate, v[1])])
            return b(compare, v[0], b.constant(2, I32), direction="LT"), [b(add, v[0], b.constant(1, I32)), y]

        return b.loop([b.constant(0, I32), x], iteration)[1:]

    f = compile(module(body, tensor(F32, None)), engine="numpy")
    np.testing.assert_array_equal(f(ONES)[0], -2 * ONES)
    np.testing.assert_array_equal(f(np.ones((2, 2), np.float32))[0], -2 * np.ones((2, 2)))


def test_functions_are_copied_for_each_signature() -> None:
    b = Builder()
    unknown = tensor(F32, None)
    f = b.function("f", [("x", unknown)], lambda x: double(b, x))
    closed = b.function("closed", [("x", VECTOR)], lambda x: [b(negate, x)])

    def body(b: Builder, x: Node, y: Node) -> Sequence[Node]:
        return [*b.call(f, x), *b.call(f, y), *b.call(f, x), *b.call(closed, x)]

    m = specialise(module(body, unknown, unknown, functions=[f, closed]), [VECTOR, scalar(F32)])
    assert [(g.name, [str(t) for t in g.type.params]) for g in m.functions] == [
        ("main", ["f32[3]", "f32[]"]), ("f", ["f32[3]"]), ("f.1", ["f32[]"]), ("closed", ["f32[3]"]),
    ]  # fmt: skip
    assert m["closed"] is closed
    assert [r.tolist() for r in call(m, ONES, np.float32(4))] == [[2] * 3, 8, [2] * 3, [-1] * 3]


def test_recursion_takes_the_declared_types() -> None:
    b = Builder()
    symbolic = tensor(F32, ("?1",))
    type = FunctionType((symbolic, scalar(I32)), (symbolic,))

    def body(x: Node, n: Node) -> Sequence[Node]:
        more = b(compare, n, b.constant(0, I32), direction="GT")
        return b.branch(more, b.call(("f", type), b(add, x, x), b(add, n, b.constant(-1, I32))), [x])

    f = b.function("f", [("x", symbolic), ("n", scalar(I32))], body)
    np.testing.assert_array_equal(call(Module((f,), "f"), ONES, np.int32(3))[0], 8 * ONES)


def test_what_is_known_is_left_alone() -> None:
    m = module(double, VECTOR)
    assert specialise(m, [VECTOR]) is m
    with pytest.raises(RunError, match="input 'x0' of 'main' is an f32"):
        specialise(m, [tensor(F32, (4,))])


def test_loaded_files_give_their_types(tmp_path: Path) -> None:
    (tmp_path / "t.shape").write_text("dtype: int64\ndim: 1\nshape: [4]\nstride: [1]\nsize: 4\n")
    np.arange(4, dtype="<i8").tofile(tmp_path / "t.data")

    def body(b: Builder, state: Node) -> Sequence[Node]:
        x, state = b.items(b(load, state, path="t", type=tensor(ANY, None)))
        return [b(add, x, x), state]

    m = module(body, STATE)
    f = compile(m, engine="numpy", data_root=tmp_path)
    assert str(f.outputs[0].type) == "i64[4]"
    assert f()[0].tolist() == [0, 2, 4, 6]
    with pytest.raises(RunError, match="--data-root"):
        compile(m, engine="numpy")


def test_seeds_come_from_the_seed_of_the_run() -> None:
    def body(b: Builder) -> Sequence[Node]:
        return [b(rng_uniform, b.constant(0.0), b.constant(1.0), b(module_seed, index=k), shape=(4,), dtype=F64) for k in (0, 1)]

    m = module(body)
    first, second = call(m, seed=7)
    assert first.tolist() != second.tolist()
    assert [r.tolist() for r in call(m, seed=7)] == [first.tolist(), second.tolist()]
    assert call(m, seed=8)[0].tolist() != first.tolist()
    constants = [n.attrs[0].array for n in specialise(m, [], seed=7).entry.nodes if n.op is CONSTANT]
    assert {derive_seed(7, 0), derive_seed(7, 1)} <= {int(c) for c in constants if c.dtype == np.int64}


@pytest.mark.parametrize(
    ("dim", "value"),
    [(5, 5), ("?1", 2), (add_dims("?1", "?2", 4), 9), (mul_dims(("?1", add_dims("?2", 1), 5)), 40), ("?9", "?9"),
     ("?1*?9", "?1*?9"), ("(?1", "(?1"), (")", ")"), ("div(?1*?2+1,?2)", 2), ("div(?1,0)", "div(?1,0)"), ("div(?1)", "div(?1)"),
     ("what(?1,2)", "what(?1,2)"), ("(?1,?2)", "(?1,?2)"),
     ("window(window(?1+8,3,1,0,1,2),2,2,-1,1,1)*?2", 6), ("window(?9,", "window(?9,")],
)  # fmt: skip
def test_symbolic_arithmetic(dim: Any, value: Any) -> None:
    assert dim_value(dim, {"?1": 2, "?2": 3}) == value


# --- profile, threads ----------------------------------------------------------------------------------------------


def test_the_profile_counts_calls_and_bytes() -> None:
    f = compile(module(lambda b, x: [b(negate, b(add, x, x))], VECTOR), engine="numpy", profile=True)
    assert f.profile is not None
    for _ in range(3):
        f(ONES)
    rows = {r.kernel: r for r in f.profile.rows()}
    assert {k: (r.function, r.calls, r.bytes, r.type) for k, r in rows.items()} == {
        "add": ("main", 3, 3 * 3 * 12, "f32[3]"), "negate": ("main", 3, 3 * 2 * 12, "f32[3]"),
    }  # fmt: skip
    assert sum(r.share for r in rows.values()) == pytest.approx(1)
    assert [row["kernel"] for row in json.loads(json.dumps(f.profile.to_json()))] == [r.kernel for r in f.profile.rows()]
    assert len(str(f.profile).splitlines()) == 4


def test_threads_may_share_one_compiled_module() -> None:
    n = 20_000

    def body(b: Builder, x: Node) -> Sequence[Node]:
        for _ in range(6):
            x = b(add, b(multiply, x, x), x)
            x = b(negate, b(multiply, x, b.like(1e-3, x)))
        return [x]

    f = compile(module(body, tensor(F32, (n,))))
    want = {k: f(np.full(n, k, np.float32))[0] for k in range(1, 5)}
    wrong: list[int] = []

    def work(k: int) -> None:
        x = np.full(n, k, np.float32)
        wrong.extend(k for _ in range(20) if not np.array_equal(f(x)[0], want[k]))

    threads = [threading.Thread(target=work, args=(k,)) for k in want]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_an_input_of_integers_beyond_the_dtype_is_refused() -> None:
    with pytest.raises(RunError, match="input 'x0' is not an array"):
        call(module(double, scalar(I64)), 2**70)


@pytest.mark.filterwarnings("ignore:.*was never created")
def test_prepare_sees_the_types_that_the_inputs_bring() -> None:
    import deepx_graph as dx

    module = dx.loads("exp@float32 x -> y\nexp@float32 y -> z\n", "deepx")
    seen: list[str] = []

    def prepare(found: Any) -> Any:
        seen.extend(str(p.type) for p in found.entry.params)
        return dx.optimize(found)

    f = compile(module, prepare=prepare)
    assert seen == []
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(f(x)[1], np.exp(np.exp(x)), rtol=1e-6)
    assert seen == ["f32[2,3]"]
