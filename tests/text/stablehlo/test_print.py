"""Printing StableHLO: what is printed means what was read, in our reader and, where it is at hand, in XLA itself."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

from deepx_graph import ops
from deepx_graph.errors import CheckFailed, Source, VerifyError
from deepx_graph.ir import Builder, Function, Module
from deepx_graph.literal import Literal
from deepx_graph.ops.host.host import Host
from deepx_graph.passes.pipeline import parse_pipeline, run_pipeline
from deepx_graph.text import read, write
from deepx_graph.text.stablehlo.literals import dense_text, parse_dense
from deepx_graph.types import ANY, BF16, BOOL, C64, F32, I4, I64, STATE, U8, FunctionType, TupleType, tensor, type_of_array
from deepx_graph.verify import verify
from tests.support import jax_oracle, laws
from tests.support.generate import random_inputs, random_module
from tests.support.jax_corpus import arguments, files, load, mismatches, needs_corpus
from tests.support.one_op import check_attributes
from tests.support.reference import evaluate, same
from tests.support.stablehlo_suite import SUITE, failing, needs_suite, run_section, sections

needs_jax = pytest.mark.skipif(jax_oracle.VARIABLE not in os.environ,
                               reason=f"{jax_oracle.VARIABLE} does not name a Python that has jaxlib")


def again(module: Module) -> Module:
    """The module printed and read; printing that must change nothing."""
    text = write(module, "stablehlo")
    back = read(Source("printed", text), "stablehlo").module
    verify(back)
    assert write(back, "stablehlo") == text
    return back


# --- real programs


@needs_corpus
@pytest.mark.parametrize("name", files("stablehlo", "hlo"))
def test_real_programs_keep_their_meaning(name: str) -> None:
    module = load(name)
    back = again(module)
    assert mismatches(name, evaluate(back, arguments(name, back))) == []
    if name.endswith(".stablehlo"):
        assert back.entry == module.entry


def print_section(monkeypatch: pytest.MonkeyPatch, folder: str, name: str, k: int) -> None:
    """A program of the suite that checks itself, after it was printed and read."""
    import tests.text.stablehlo.test_read as suite

    def reread(source: Source, options: object):
        found = suite_read(source, options)
        text = write(found.module, "stablehlo")
        back = suite_read(Source("printed", text), options)
        assert write(back.module, "stablehlo") == text
        return back

    suite_read = suite.read
    monkeypatch.setattr(suite, "read", reread)
    if f"{folder}/{name}#{k}" in failing():
        with pytest.raises(CheckFailed):
            run_section(folder, name, k)
    else:
        run_section(folder, name, k)


@needs_suite
@pytest.mark.parametrize(("folder", "name", "k"), [
    (f, n, k) for f, step in (("testdata", 16), ("interpret", 1), ("math", 3)) for n, k in sections(f, step)])
def test_official_suite_sampled(monkeypatch: pytest.MonkeyPatch, folder: str, name: str, k: int) -> None:
    print_section(monkeypatch, folder, name, k)


@needs_suite
@pytest.mark.conformance
@pytest.mark.parametrize(("folder", "name", "k"), [(f, n, k) for f in ("testdata", "math") for n, k in sections(f)])
def test_official_suite(monkeypatch: pytest.MonkeyPatch, folder: str, name: str, k: int) -> None:
    print_section(monkeypatch, folder, name, k)


# --- any program


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed: int) -> None:
    rng = random.Random(seed)
    module = random_module(rng, 70)
    args = random_inputs(rng, module)
    for version in (module, run_pipeline(module, parse_pipeline("default"))):
        assert all(map(same, evaluate(again(version), args), evaluate(version, args)))


UNWRITTEN = {ops.rng_uniform, ops.rng_normal, ops.module_seed, ops.bessel_i0e}
"""Ops that StableHLO has no words for: draws with a seed, and what CHLO does not have."""


@pytest.mark.parametrize("op", [o for o in laws.LAWFUL if o not in UNWRITTEN], ids=lambda o: o.name)
def test_every_operation(op) -> None:
    for arrays, attrs in laws.samples(op):
        module = Module((laws.one_op(op, arrays, attrs),), "law")
        back = again(module)
        check_attributes(module, back)
        for got, want in zip(evaluate(back, arrays), evaluate(module, arrays), strict=True):
            assert np.allclose(got, want, rtol=1e-6) if op is ops.index_add else same(got, want)  # another order of sums


def main(params, body, **fields) -> Module:
    return Module((Builder().function("main", params, body, **fields),))


SCALAR, VECTOR = tensor(F32, ()), tensor(F32, (3,))
b = Builder()


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8])
def test_floor_mod_has_the_sign_of_the_divisor(dtype) -> None:
    x = np.array([7, 7, 0, 5, 251, 6] if dtype is np.uint8 else [7, -7, 0, 5, -5, -6], dtype)
    y = np.array([3, 3, 4, 2, 7, 3] if dtype is np.uint8 else [-3, 3, -4, 0, -7, 3], dtype)
    module = main([("x", type_of_array(x)), ("y", type_of_array(y))], lambda x, y: [b(ops.floor_mod, x, y)])
    keep = slice(None) if dtype is not np.float32 else [0, 1, 2, 4, 5]
    with np.errstate(all="ignore"):
        want = np.where(y == 0, x, np.mod(x, y))
    got = evaluate(again(module), [x, y])[0]
    assert same(got[keep], want.astype(dtype)[keep])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64])
def test_a_case_takes_any_integer(dtype) -> None:
    """Numbers beyond the branches take the last one, also those that would wrap to a branch as an i32."""
    module = main([("s", type_of_array(dtype(0)))], lambda s: b.branch(s, [b.constant(0)], [b.constant(1)], [b.constant(2)]))
    back = again(module)
    values = [0, 1, 2, 3, np.iinfo(dtype).max] + ([-1] if np.iinfo(dtype).min else []) + ([2**32] if dtype(0).itemsize == 8 else [])
    assert [int(evaluate(back, [dtype(v)])[0]) for v in values] == [0, 1] + [2] * (len(values) - 2)


def shared_loop(x):
    """Adds the invariant sin(x) to a sum while its double, which the body uses too, is below 10."""

    def iteration(phis):
        double = b(ops.add, phis[0], phis[0])
        return b(ops.compare, double, b.constant(10, F32), direction="LT"), [b(ops.add, double, b(ops.sine, x))]

    return b.loop([b.constant(1, F32)], iteration)


def test_what_test_and_body_of_a_loop_share_is_in_both_and_invariants_are_in_neither() -> None:
    module = main([("x", SCALAR)], shared_loop)
    lines = [line.strip() for line in write(module, "stablehlo").splitlines()]
    start = next(k for k, line in enumerate(lines) if "stablehlo.while" in line)
    assert [k < start for k, line in enumerate(lines) if "stablehlo.sine" in line] == [True]
    iteration = lines.index("}, {")
    assert [k < iteration for k, line in enumerate(lines) if '"stablehlo.add"(%iterArg' in line] == [True, False]
    args = [np.float32(0.5)]
    assert same(evaluate(again(module), args)[0], evaluate(module, args)[0])


def test_what_one_branch_needs_stands_in_it() -> None:
    def body(p, x):
        once, both = b(ops.sine, x), b(ops.cosine, x)
        return b.branch(p, [b(ops.add, once, both)], [both])

    text = write(main([("p", tensor(BOOL)), ("x", SCALAR)], body), "stablehlo")
    place = {word: text.index(word) for word in ("stablehlo.sine", "stablehlo.cosine", "stablehlo.if", "}, {")}
    assert place["stablehlo.cosine"] < place["stablehlo.if"] < place["stablehlo.sine"] < place["}, {"]


def test_a_scalar_beside_a_tensor_is_broadcast_but_not_a_predicate() -> None:
    module = main([("p", tensor(BOOL)), ("x", VECTOR), ("y", SCALAR)], lambda p, x, y: [b(ops.select, p, b(ops.add, x, y), x)])
    text = write(module, "stablehlo")
    assert text.count("broadcast_in_dim") == 1
    assert "(tensor<i1>, tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>" in text
    again(module)


def test_tuples_are_made_where_a_whole_is_used() -> None:
    module = main([("x", VECTOR)], lambda x: [b(ops.top_k, x, k=2), b.pack(x, b.pack(x))])
    text = write(module, "stablehlo")
    assert "tuple<tensor<2xf32>, tensor<2xi32>>, tuple<tensor<3xf32>, tuple<tensor<3xf32>>>" in text
    args = [np.array([1, 3, 2], "f4")]
    assert all(map(same, evaluate(again(module), args), [(np.array([3, 2], "f4"), np.array([1, 2], "i4")), (args[0], (args[0],))]))
    taken = main([("t", TupleType((SCALAR, VECTOR)))], lambda t: [b.proj(t, 1)])
    assert same(evaluate(again(taken), [(np.float32(0), args[0])])[0], args[0])


def test_loops_and_branches_carry_no_tuples() -> None:
    def iteration(phis):
        sum_, rest = b.items(phis[0])
        go_on = b(ops.compare, sum_, b.constant(10, F32), direction="LT")
        (other,) = b.branch(go_on, [b.pack(sum_, rest)], [b.pack(b.constant(0, F32), rest)])
        return go_on, [b.pack(b(ops.add, sum_, b.proj(b.proj(other, 1), 0)), b.pack(b.proj(other, 0)))]

    module = main([("x", SCALAR)], lambda x: b.loop([b.pack(x, b.pack(x))], iteration))
    text = write(module, "stablehlo")
    shown = [line for line in text.splitlines() if "tuple" in line]
    words = ("func.func", "stablehlo.tuple", "stablehlo.tuple", "return")
    assert all(word in line for word, line in zip(words, shown, strict=True))
    assert evaluate(again(module), [np.float32(2)]) == evaluate(module, [np.float32(2)]) == [(10, (6,))]


def test_deep_nesting_needs_no_deep_stack() -> None:
    def body(x):
        value = x
        for k in range(3000):
            (value,) = b.branch(b(ops.compare, x, b.constant(k, F32), direction="GT"), [b(ops.negate, value)], [x])
        return [value]

    assert write(main([("x", SCALAR)], body), "stablehlo").count("stablehlo.if") == 3000


# --- names


def test_names_are_kept_made_legal_and_given_once() -> None:
    source = """func.func @main(%x: tensor<f32>, %y.1: tensor<f32>) -> tensor<f32> {
      %sum = stablehlo.add %x, %y.1 : tensor<f32>
      %7 = stablehlo.negate %sum : tensor<f32>
      return %7 : tensor<f32>
    }"""
    text = write(read(Source("t", source), "stablehlo").module, "stablehlo")
    assert "@main(%x: tensor<f32>, %y.1: tensor<f32>)" in text
    assert "%sum = " in text and "%0 = " in text
    odd = main([("a b", SCALAR), ("x", SCALAR), ("x", SCALAR)], lambda a, x, y: [b(ops.add, b(ops.add, a, x), y)])
    assert "(%arg0: tensor<f32>, %x: tensor<f32>, %x_0: tensor<f32>)" in write(odd, "stablehlo")
    again(odd)


def test_functions_are_quoted_and_the_entry_is_main() -> None:
    inner = b.function('f-"1"', [("x", SCALAR)], lambda x: [x], public=False)
    other = b.function("main", [("x", SCALAR)], lambda x: [b(ops.negate, x)])
    start = b.function("start", [("x", SCALAR)], lambda x: [*b.call(inner, x), *b.call(other, x)], public=False)
    module = Module((inner, other, start), "start")
    text = write(module, "stablehlo")
    assert 'func.func private @"f-_1_"(' in text and 'func.call @"f-_1_"(' in text
    assert "func.func @main_0(" in text
    assert [float(v) for v in evaluate(again(module), [np.float32(2)])] == [2, -2]


def test_closures_called_where_they_are_made_are_calls() -> None:
    f = b.function("f", [("x", SCALAR), ("y", SCALAR)], lambda x, y: [b(ops.subtract, x, y)])
    module = Module((b.function("main", [("x", SCALAR)], lambda x: b.call_value(b.partial(f, x), b.constant(1, F32))), f))
    assert "func.call @f(%x, " in write(module, "stablehlo")
    assert evaluate(again(module), [np.float32(3)]) == [2]


# --- constants


@pytest.mark.parametrize(("array", "text"), [
    (np.float32([1, 0.5]), "dense<[1.000000e+00, 5.000000e-01]>"),
    (np.float32(0.1), "dense<1.0000000149011612e-01>"),
    (np.full((2, 3), np.inf, "f4"), "dense<0x7F800000>"),
    (np.float32([-0.0, np.nan]), "dense<[-0.000000e+00, 0x7FC00000]>"),
    (np.array([[1], [-2]], "i1"), "dense<[[1], [-2]]>"),
    (np.array([True, False]), "dense<[true, false]>"),
    (np.zeros((2, 0)), "dense<>"),
    (np.complex64(1 - 2j), "dense<(1.000000e+00, -2.000000e+00)>"),
    (np.uint64(2**64 - 1), "dense<18446744073709551615>"),
    (np.arange(65, dtype="u1"), 'dense<"0x' + bytes(range(65)).hex().upper() + '">'),
])  # fmt: skip
def test_constants(array, text: str) -> None:
    assert dense_text(Literal(np.asarray(array))) == text


@pytest.mark.parametrize("dtype", [F32, BF16, I4, U8, C64, BOOL])
@pytest.mark.parametrize("size", [1, 5, 100])
def test_constants_read_back_to_the_same_bits(dtype, size: int) -> None:
    rng = np.random.default_rng(0)
    array = rng.integers(0, 8, size).astype(dtype.np)
    if dtype.is_differentiable:
        array = (array / 3).astype(dtype.np)
        array[0] = np.nan
    text = dense_text(Literal(array))
    back = parse_dense(text.removeprefix("dense<").removesuffix(">"), tensor(dtype, (size,))).array
    assert back.dtype == array.dtype and back.tobytes() == array.tobytes()


# --- checks, draws, the unknown


def test_the_state_of_checks_is_not_shown() -> None:
    source = """func.func @main(%x: tensor<f32>) {
      func.call @f(%x) : (tensor<f32>) -> ()
      check.expect_eq_const %x, dense<1.0> : tensor<f32>
      return
    }
    func.func private @f(%x: tensor<f32>) {
      check.expect_close %x, %x, max_ulp_difference = 3 : tensor<f32>, tensor<f32>
      return
    }"""
    module = read(Source("t", source), "stablehlo").module
    text = write(module, "stablehlo")
    assert "token" not in text and "state" not in text
    evaluate(again(module), [np.float32(1), Host()])
    with pytest.raises(CheckFailed):
        evaluate(again(module), [np.float32(2), Host()])


def test_random_draws_of_the_module_are_rng() -> None:
    draw = {"shape": (2, 3), "dtype": F32}
    module = main([("m", SCALAR)], lambda m: [b(ops.rng_normal, m, b.constant(1), b(ops.module_seed, index=0), **draw)])
    assert "rng_distribution NORMAL" in write(module, "stablehlo")
    assert again(module).entry.results[0].op is ops.rng_normal


def test_unknown_operations_stand_as_they_stood() -> None:
    source = """func.func @main(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<f32>) {
      %a = stablehlo.negate %x : tensor<2xf32>
      %b:2 = stablehlo.custom_call @foo(%a, %x) {backend_config = "%a \\" b"} :
        (tensor<2xf32>, tensor<2xf32>) -> (tensor<2xf32>, tensor<f32>)
      %c = "my.op"(%b#0) ({
      ^bb0(%a0: tensor<f32>):
        "my.yield"(%a0) : (tensor<f32>) -> ()
      }) : (tensor<2xf32>) -> tensor<2xf32>
      return %c, %b#1 : tensor<2xf32>, tensor<f32>
    }"""
    text = write(again(read(Source("t", source), "stablehlo").module), "stablehlo")
    assert '%b:2 = stablehlo.custom_call @foo(%a, %x) {backend_config = "%a \\" b"} :' in text
    assert '"my.yield"(%a0)' in text and '%c = "my.op"(%b#0) ({' in text


# --- what cannot be expressed


def refused(module: Module) -> list[str]:
    with pytest.raises(VerifyError) as failure:
        write(module, "stablehlo")
    return [d.message for d in failure.value.diagnostics]


def test_what_cannot_be_expressed_is_reported_with_its_location() -> None:
    function = FunctionType((SCALAR,), (SCALAR,))
    printed = main([("x", SCALAR), ("state", STATE)], lambda x, s: [b(ops.print_, s, x, format="%d")])
    saved = main([("x", SCALAR), ("state", STATE)], lambda x, s: [b(ops.save, b(ops.print_, s, x, format="%d"), x, path="p")])
    seeded = main([("x", SCALAR)], lambda x: [b(ops.rng_uniform, x, x, b.constant(5, I64), shape=(2,), dtype=F32)])
    unknown = main([("x", tensor(ANY, None))], lambda x: [x])
    closure = main([("f", function), ("x", SCALAR)], lambda f, x: b.call_value(f, x))
    assert "StableHLO has no print with a format" in refused(printed)
    assert {"StableHLO has no print with a format", "StableHLO has no operation 'save'"} <= set(refused(saved))
    assert "StableHLO has no rng_uniform from a given seed" in refused(seeded)
    assert "StableHLO has no values of type any[*]" in refused(unknown)
    assert any("call_value" in m for m in refused(closure))


def test_what_cannot_be_expressed_has_its_location_in_the_source() -> None:
    source = """func.func @main(%x: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.negate %x : tensor<f32>
      %1 = "my.op"(%0) ({
        "my.yield"(%x) : (tensor<f32>) -> ()
      }) : (tensor<f32>) -> tensor<f32>
      return %1 : tensor<f32>
    }"""
    with pytest.raises(VerifyError, match=r"t:3:7: error: .*its region uses '%x' from outside"):
        write(read(Source("t", source), "stablehlo").module, "stablehlo")


def test_a_broadcast_to_an_unknown_shape_is_reported() -> None:
    module = main([("x", tensor(F32, ("?n",))), ("y", SCALAR)], lambda x, y: [b(ops.add, x, y)])
    assert refused(module) == ["add: a scalar cannot be broadcast to the unknown shape of f32[?n]"]


def test_a_slice_of_an_unknown_shape_is_reported() -> None:
    params = [("x", tensor(F32, None)), ("k", tensor(I64, (2,)))]
    messages = refused(main(params, lambda x, k: [b(ops.torch_index_select, x, k, dim=0)]))
    assert messages == ["torch_index_select: the shape of f32[*] is not known", "StableHLO has no values of type f32[*]"]


# --- XLA's own judgement


@pytest.mark.conformance
@needs_jax
@needs_corpus
def test_xla_computes_the_same_from_what_is_printed() -> None:
    programs = {}
    for name in files("stablehlo", "hlo"):
        module = load(name)
        programs[name] = (write(module, "stablehlo"), arguments(name, module))
    answers = jax_oracle.ask(programs)
    assert {n: a for n, a in answers.items() if isinstance(a, str)} == {}
    assert [n for n, a in answers.items() if mismatches(n, a)] == []


@pytest.mark.conformance
@needs_jax
@needs_suite
def test_mlir_accepts_the_official_suite_as_printed() -> None:
    programs = {}
    for folder in ("testdata", "interpret", "math"):
        for name, k in sections(folder):
            text = (SUITE / folder / name).read_text().split("// -----")[k]
            try:
                module = read(Source(name, text), "stablehlo").module
            except Exception:
                continue  # what is not read is counted by the tests of reading
            programs[f"{name}#{k}"] = (write(module, "stablehlo"), None)
    assert len(programs) > 1000
    assert {n: a for n, a in jax_oracle.ask(programs).items() if isinstance(a, str)} == {}


def flat(values):
    return [x for v in values for x in (flat(v) if isinstance(v, tuple) else [v])]


def close(got, want) -> bool:
    got, want = np.asarray(got), np.asarray(want)
    if got.dtype != want.dtype or got.dtype.kind in "biu":
        return got.dtype == want.dtype and np.array_equal(got, want)
    tolerance = {2: 2e-2, 4: 1e-4}.get(want.dtype.itemsize, 1e-6)
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    return np.allclose(got.astype(wide), want.astype(wide), rtol=tolerance, atol=tolerance, equal_nan=True)


def leaves_of(f: Function) -> Function:
    """The same with the leaves of its results as results, as XLA gives no tuples."""
    results = [x for r in f.results for x in (b.items(r) if isinstance(r.type, TupleType) else [r])]
    return f.with_(results=tuple(results))


@pytest.mark.conformance
@needs_jax
def test_xla_computes_every_operation_and_random_programs_alike() -> None:
    programs, wanted = {}, {}
    for op in laws.LAWFUL:
        for k, (arrays, attrs) in enumerate(laws.samples(op) if op not in UNWRITTEN else ()):
            module = Module((leaves_of(laws.one_op(op, arrays, attrs)),), "law")
            programs[f"{op.name}#{k}"], wanted[f"{op.name}#{k}"] = (write(module, "stablehlo"), arrays), evaluate(module, arrays)
    for seed in range(100):
        rng = random.Random(5000 + seed)
        module = random_module(rng, 60, exact=True)
        args = random_inputs(rng, module)
        programs[f"random#{seed}"], wanted[f"random#{seed}"] = (write(module, "stablehlo"), args), evaluate(module, args)
    answers = jax_oracle.ask(programs)
    assert {n: a for n, a in answers.items() if isinstance(a, str)} == {}
    assert [n for n, a in answers.items() if len(a) != len(flat(wanted[n])) or not all(map(close, a, flat(wanted[n])))] == []
