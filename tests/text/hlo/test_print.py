"""HLO text that is written: it reads back as the same function, is written the same again, and XLA takes it."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepx_graph.errors import Source, Span, VerifyError
from deepx_graph.ir import Builder, Module, Node, Op, Origin
from deepx_graph.ops import OPS, reduction
from deepx_graph.passes.pipeline import PIPELINES, parse_pipeline, run_pipeline
from deepx_graph.text import ReadOptions
from deepx_graph.text.hlo import read, write
from deepx_graph.text.hlo.printer.ops import EMITTERS, LACKING
from deepx_graph.types import BOOL, F32, F64, I8, I32, I64, U8, U64, DType, FunctionType, scalar, tensor
from deepx_graph.verify import verify
from tests.support import jax_corpus, laws
from tests.support.generate import random_inputs, random_module
from tests.support.one_op import check_attributes
from tests.support.paths import ROOT
from tests.support.reference import evaluate, same


def load(text: str, name: str = "t.hlo") -> Module:
    module = read(Source(name, text), ReadOptions()).module
    verify(module)
    return module


def flat(values: Any) -> list[Any]:
    return [leaf for v in values for leaf in (flat(v) if isinstance(v, tuple) else [v])]


@jax_corpus.needs_corpus
@pytest.mark.parametrize("name", jax_corpus.files("hlo"))
def test_real_programs_mean_the_same_when_written_and_read_again(name: str) -> None:
    text = write(jax_corpus.load(name))
    again = load(text)
    assert jax_corpus.mismatches(name, evaluate(again, jax_corpus.arguments(name, again))) == []
    assert write(again) == text


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_mean_the_same_when_written_and_read_again(seed: int) -> None:
    rng = random.Random(seed)
    module = random_module(rng, rng.choice((5, 20, 60)), exact=True)
    args = random_inputs(rng, module)
    text = write(module)
    again = load(text)
    want, got = flat(evaluate(module, args)), flat(evaluate(again, args))
    assert len(want) == len(got)
    assert all(map(same, want, got))
    assert write(again) == text


# --- every op


def _close(op: Op, got: Any, want: Any) -> bool:
    """Equal; within rounding for the ops that are written as formulas of several steps."""
    got, want = np.asarray(got), np.asarray(want)
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if (op not in EMITTERS or op in LACKING) and want.dtype.char in "fdFD":
        return bool(np.allclose(got, want, rtol=4 * float(np.finfo(want.dtype).eps), atol=1e-7, equal_nan=True))
    return laws.same(got, want)


UNWRITABLE = {"module_seed", "rng_uniform", "rng_normal"}
"""Ops whose samples HLO has no words for: random draws with a seed."""

ABSOLUTE = {"lgamma", "digamma"}
"""Ops whose formulas are exact to rounding of their terms, which is more than rounding near a root: see test_hlo_special."""


@pytest.mark.parametrize("op", [o for o in laws.LAWFUL if o.name not in UNWRITABLE | ABSOLUTE], ids=lambda op: op.name)
def test_every_op_computes_the_same_after_writing_and_reading(op: Op) -> None:
    written = 0
    for arrays, attrs in laws.samples(op):
        module = Module((laws.one_op(op, arrays, attrs),), "law")
        if op.name == "atan" and arrays[0].dtype.kind == "c":
            continue
        again = load(write(module))
        if op.name != "broadcast_in_dim":  # of an axis that is stretched HLO takes its one element
            check_attributes(module, again)
        want, got = flat(evaluate(module, arrays)), flat(evaluate(again, arrays))
        assert len(want) == len(got)
        assert all(_close(op, g, w) for g, w in zip(got, want, strict=True))
        written += 1
    assert written


@pytest.mark.parametrize("name", sorted(UNWRITABLE - {"module_seed"}))
def test_what_hlo_has_no_operation_for_is_refused_by_name(name: str) -> None:
    arrays, attrs = next(iter(laws.samples(OPS[name])))
    with pytest.raises(VerifyError, match=name):
        write(Module((laws.one_op(OPS[name], arrays, attrs),), "law"))


def test_a_refusal_shows_the_location_in_the_source() -> None:
    source = Source("f.mlir", 'y = module_seed')
    b = Builder(origin=Origin("y", (Span(source, 0, 15),)))
    function = b.function("main", [("x", scalar(F32))], lambda x: [b(OPS["module_seed"], index=0)])
    with pytest.raises(VerifyError, match=r"f\.mlir:1:1: error: HLO has no value for 'module_seed' \(%y\)"):
        write(Module((function,)))


@pytest.mark.parametrize("name", ["asin", "acos", "atan", "acosh", "asinh", "atanh", "sinh", "cosh"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_formulas_hold_at_the_edges(name: str, dtype: Any) -> None:
    """Against numpy in f64: zeros with their signs, the ends of the domain, and numbers near overflow."""
    most = float(np.finfo(dtype).max)
    x = np.array([0.0, -0.0, 1, -1, 1e-8, -1e-3, 0.5, -0.999, 1.0001, 3, -20, 80, most / 3, -most, np.inf, -np.inf, np.nan], dtype)
    b = Builder()
    function = b.function("main", [("x", tensor(F32 if dtype is np.float32 else F64, x.shape))], lambda x: [b(OPS[name], x)])
    got = evaluate(load(write(Module((function,)))), [x])[0]
    with np.errstate(all="ignore"):
        want = getattr(np, "arc" + name[1:] if name[0] == "a" else name)(x.astype(np.float64)).astype(dtype)
    np.testing.assert_allclose(got, want, rtol=40 * float(np.finfo(dtype).eps), atol=0)
    np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


# --- by hand


def test_the_text_of_a_small_program() -> None:
    b = Builder()

    def body(x: Node, scale: Node) -> list[Node]:
        y = b(OPS["multiply"], x, scale)
        return [b(OPS["add"], y, y), reduction(b, OPS["maximum"], y, (1,))]

    module = Module((b.function("main", [("x y", tensor(F32, (2, 3))), ("f32", scalar(F32))], body),))
    assert write(module) == """\
HloModule main, entry_computation_layout={(f32[2,3]{1,0}, f32[])->(f32[2,3]{1,0}, f32[2]{0})}

maximum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT maximum = f32[] maximum(a, b)
}

ENTRY main {
  x_y = f32[2,3]{1,0} parameter(0)
  f32_ = f32[] parameter(1)
  broadcast = f32[2,3]{1,0} broadcast(f32_), dimensions={}
  multiply = f32[2,3]{1,0} multiply(x_y, broadcast)
  add = f32[2,3]{1,0} add(multiply, multiply)
  constant = f32[] constant(-inf)
  reduce = f32[2]{0} reduce(multiply, constant), dimensions={1}, to_apply=maximum
  ROOT tuple = (f32[2,3]{1,0}, f32[2]{0}) tuple(add, reduce)
}
"""


def test_invariant_values_travel_in_the_tuple_of_a_loop() -> None:
    b = Builder()

    def body(x: Node, n: Node) -> list[Node]:
        step = b(OPS["negate"], n)
        return [b.loop([x], lambda v: (b(OPS["compare"], v[0], n, direction="LT"), [b(OPS["subtract"], v[0], step)]))[0]]

    text = write(Module((b.function("main", [("x", scalar(I32)), ("n", scalar(I32))], body),)))
    entry = text[text.index("ENTRY") :]
    assert "negate" in entry, "invariant code stands outside the loop"
    assert "init = (s32[], s32[], s32[]) tuple(x, n, negate)" in entry
    assert "ROOT next = (s32[], s32[], s32[]) tuple(subtract, arg.1, arg.2)" in text
    assert evaluate(load(text), [np.int32(1), np.int32(3)]) == [4]


def test_what_condition_and_body_share_stands_in_both() -> None:
    """A branch and an inner loop among it, whose own computations are written once."""
    b = Builder()

    def iteration(v: tuple[Node, ...]) -> tuple[Node, list[Node]]:
        one = b.constant(1, I32)
        small = b(OPS["compare"], v[0], b.constant(3, I32), direction="LT")
        twice = b.branch(small, [b(OPS["add"], v[0], v[0])], [b(OPS["negate"], v[0])])[0]
        up = b.loop([twice], lambda u: (b(OPS["compare"], u[0], v[0], direction="LT"), [b(OPS["add"], u[0], one)]))[0]
        go_on = b(OPS["and"], b(OPS["compare"], v[0], b.constant(6, I32), direction="LT"),
                  b(OPS["compare"], up, b.constant(90, I32), direction="LT"))
        return go_on, [b(OPS["add"], v[0], one), b(OPS["add"], v[1], up)]

    module = Module((b.function("main", [("x", scalar(I32)), ("n", scalar(I32))], lambda x, n: list(b.loop([x, n], iteration))),))
    text = write(module)
    assert text.count("true_computation=") == 2
    assert text.count(" while(") == 3
    assert text.count(".branch0 {") == 1
    for x, n in ((0, 0), (-50, 1), (7, 2)):
        args = [np.int32(x), np.int32(n)]
        assert evaluate(load(text), args) == evaluate(module, args)


def test_code_of_one_branch_stands_in_its_computation() -> None:
    b = Builder()

    def body(p: Node, x: Node) -> list[Node]:
        return list(b.branch(p, [b(OPS["tanh"], x)], [b(OPS["sine"], x)]))

    text = write(Module((b.function("main", [("p", scalar(BOOL)), ("x", scalar(F32))], body),)))
    entry = text[text.index("ENTRY") :]
    assert "conditional(p, x, x), true_computation=" in entry
    assert "tanh" not in entry
    assert "sine" not in entry


@pytest.mark.parametrize("dtype", [I8, I64, U8, U64])
def test_any_integer_selects_a_branch(dtype: DType) -> None:
    """The last branch where it is out of range, also where its low 32 bits are in range."""
    b = Builder()
    values = [b.constant(v, F32) for v in (10, 20, 30)]
    function = b.function("main", [("k", scalar(dtype))], lambda k: b.branch(k, *[[v] for v in values]))
    again = load(write(Module((function,))))
    for k, want in ((0, 10), (1, 20), (2, 30), (3, 30), (100, 30), (-1, 30), (1 << 32, 30)):
        if np.iinfo(np.dtype(dtype.np)).min <= k <= np.iinfo(np.dtype(dtype.np)).max:
            assert evaluate(again, [np.array(k, dtype.np)]) == [want]


def test_constants_keep_every_bit() -> None:
    rng = np.random.default_rng(0)
    f32 = rng.integers(0, 1 << 32, 300, np.uint32).view(np.float32)
    f16 = np.arange(0, 1 << 16, 7, np.uint16).view(np.float16)
    f64 = np.array([0.1, -0.0, np.inf, -np.inf, np.nan, 5e-324, 1.7976931348623157e308])
    ints = np.array([[-(1 << 63), (1 << 63) - 1]])
    arrays = [f32, f16, f64, ints, np.zeros((2, 0, 3), np.int8), np.array([1 + 2j, -0.5j], np.complex64), np.array([True, False]),
              np.array(True), np.full((4, 100), -0.0, np.float32)]
    b = Builder()
    again = load(write(Module((b.function("main", [], lambda: [b.constant(a) for a in arrays]),))))
    for got, want in zip(evaluate(again, []), arrays, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        assert np.ascontiguousarray(got).tobytes() == want.tobytes()


KEPT = """HloModule kept

sum { x = f32[] parameter(0)
 y = f32[] parameter(1)
 ROOT r = f32[] add(x, y) }

ENTRY e { x = f32[2] parameter(0)
 token = token[] after-all()
 all = f32[2] all-reduce(x), replica_groups={{0,1}}, to_apply=sum, metadata={op_name="a" stack_frame_id=3}
 in = (f32[2], token[]) infeed(token), infeed_config="to_apply=sum"
 i = f32[2] get-tuple-element(in), index=0
 ROOT c = f32[2] custom-call(all, i), custom_call_target="my \\"k", called_computations={sum}, control-predecessors={i}
}
"""


def test_operations_that_are_only_kept_print_back_as_they_stood() -> None:
    text = write(load(KEPT))
    assert 'all-reduce(x), replica_groups={{0,1}}, to_apply=sum, metadata={op_name="a"}\n' in text
    assert 'infeed(after-all), infeed_config="to_apply=sum"\n' in text
    assert 'custom-call(all, in.data), custom_call_target="my \\"k", called_computations={sum}\n' in text
    assert text.count("\nsum {") == 1
    assert write(load(text)) == text


TOLD = """HloModule told, input_output_alias={ {0}: (0, {}, may-alias) }

FileNames
1 "model.py"
2 "train.py"

FunctionNames
1 "loss"
2 "main"

FileLocations
1 {file_name_id=2 function_name_id=2 line=7 end_line=7 column=1 end_column=9}
2 {file_name_id=1 function_name_id=1 line=42 end_line=42 column=4 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}

ENTRY e {
  x = f32[2,3]{0,1:T(8,128)} parameter(0), sharding={devices=[2,1]<=[2]}, metadata={op_name="x[0]"}
  c = f32[2,3]{1,0} copy(x), metadata={op_name="jit(f)/copy \\"a\\"" stack_frame_id=2}
  n = f32[2,3]{1,0} negate(c), frontend_attributes={a="b"}, backend_config={"k":[1]}, metadata={source_file="o.py" source_line=3}
  ROOT pair = (f32[2,3]{1,0}, f32[2,3]{1,0}) tuple(n, c), sharding={{replicated}, {replicated}}
}
"""


def test_what_a_text_says_beside_its_meaning_is_kept() -> None:
    """Places, layouts, sharding, names of module and root: printed back, the tables of frames too."""
    module = load(TOLD)
    negated, copied = module.entry.results
    assert copied.span.place.chain() == "model.py:42 in loss, called from train.py:7 in main"
    assert copied.span.place.label == 'jit(f)/copy "a"'
    assert str(negated.span.place) == "o.py:3"
    assert copied.span.described == "t.hlo:21:3 (model.py:42 in loss)"
    text = write(module)
    assert text[text.index("ENTRY") :] == TOLD[TOLD.index("ENTRY") :]
    assert text.startswith("HloModule told, input_output_alias={ {0}: (0, {}, may-alias) }, entry_computation_layout=")
    again = load(text)
    assert again.entry.results[1].span.place.chain() == "model.py:42 in loss, called from train.py:7 in main"
    assert write(again) == text
    optimised = write(run_pipeline(module, parse_pipeline("simplify")))
    assert "copy(" not in optimised
    assert "sharding={devices=[2,1]<=[2]}" in optimised


def test_errors_name_the_line_of_the_users_program() -> None:
    with pytest.raises(VerifyError, match=r"made from: model\.py:42 in loss, called from train\.py:7 in main"):
        load(TOLD.replace("f32[2,3]{1,0} copy(x)", "f32[3]{0} copy(x)"))


def test_a_bitcast_reads_memory_in_the_order_of_the_layouts() -> None:
    module = load("HloModule b\nENTRY e { x = f32[2,3]{1,0} parameter(0)\n t = f32[3,2]{0,1} bitcast(x)\n"
                  " u = f32[6]{0} bitcast(t)\n ROOT r = (f32[3,2]{0,1}, f32[6]{0}) tuple(t, u) }")
    x = np.arange(6, dtype="f4").reshape(2, 3)
    t, u = evaluate(module, [x])
    np.testing.assert_array_equal(t, x.T)
    np.testing.assert_array_equal(u, x.reshape(6))


def test_a_draw_without_seed_is_an_rng() -> None:
    text = "HloModule m\nENTRY e { a = f32[] constant(0)\n b = f32[] constant(1)\n"
    text += " ROOT r = f32[3] rng(a, b), distribution=rng_normal }"
    assert "ROOT r = f32[3]{0} rng(a, b), distribution=rng_normal" in write(load(text))


def test_calls_are_written_once_and_before_their_use() -> None:
    b = Builder()
    f = b.function("f", [("x", scalar(F32))], lambda x: [b(OPS["negate"], x), x])
    main = b.function("main", [("x", scalar(F32))], lambda x: [*b.call(f, x), b.call(f, b.call(f, x)[0])[1]])
    text = write(Module((main, f)))
    assert text.count("to_apply=f") == 3
    assert text.index("\nf {") < text.index("ENTRY main {")
    assert evaluate(load(text), [np.float32(2)]) == [-2, 2, -2]


def test_recursion_is_refused() -> None:
    b = Builder()
    signature = FunctionType((scalar(F32),), (scalar(F32),))
    f = b.function("f", [("x", scalar(F32))], lambda x: b.call(("f", signature), x))
    with pytest.raises(VerifyError, match="'f' calls itself"):
        write(Module((f,), "f"))


def test_shapes_that_are_not_known_are_refused() -> None:
    b = Builder()
    f = b.function("main", [("x", tensor(F32, None))], lambda x: [b(OPS["negate"], x)])
    with pytest.raises(VerifyError, match="until its rank and element type are known"):
        write(Module((f,)))


def test_fused_programs_keep_their_kernels() -> None:
    b = Builder()
    f = b.function("main", [("x", tensor(F32, (3,)))], lambda x: [b(OPS["tanh"], b(OPS["add"], x, x))])
    text = write(run_pipeline(Module((f,)), parse_pipeline("fuse")))
    assert re.search(r"fusion\(x\), kind=kLoop, calls=\w+", text)
    np.testing.assert_allclose(evaluate(load(text), [np.array([0, 1, 2], "f4")])[0], np.tanh([0, 2, 4]), rtol=1e-6)


def test_deep_and_wide_programs_are_written() -> None:
    """No recursion over the graph; a chain of branches does not nest without end."""
    b = Builder()

    def body(p: Node, x: Node) -> list[Node]:
        y = x
        for _ in range(20_000):
            y = b(OPS["add"], y, x)
        for _ in range(500):
            y = b.branch(p, [b(OPS["negate"], y)], [x])[0]
        return [y]

    text = write(Module((b.function("main", [("p", scalar(BOOL)), ("x", scalar(F32))], body),)))
    assert len(load(text).entry.nodes) > 20_000


# --- XLA itself

XLA = "DEEPX_GRAPH_JAX_PYTHON"


@pytest.mark.conformance
@pytest.mark.skipif(XLA not in os.environ, reason=f"{XLA} does not name a Python interpreter that has jax")
@pytest.mark.parametrize("pipeline", ["none", "default"])
def test_xla_takes_what_is_written_and_computes_the_same(tmp_path: Path, pipeline: str) -> None:
    expected: dict[str, list[Any]] = {}
    for name in jax_corpus.files("hlo"):
        module, stored = jax_corpus.load(name), jax_corpus.case_of(name)[1]
        _hand_over(tmp_path, name, module, jax_corpus.arguments(name, module), pipeline)
        expected[name] = [stored[f"out{k}"] for k in range(len(module.entry.results))]
    for seed in range(40):
        rng = random.Random(seed)
        module = random_module(rng, rng.choice((5, 20, 60)), exact=True)
        args = random_inputs(rng, module)
        _hand_over(tmp_path, f"random{seed}", module, args, pipeline)
        expected[f"random{seed}"] = flat(evaluate(module, args))
    script = ROOT / "tests" / "support" / "xla_run.py"
    subprocess.run([os.environ[XLA], str(script), str(tmp_path)], check=True, capture_output=True, timeout=1000)
    assert json.loads((tmp_path / "errors.json").read_text()) == {}
    assert [n for n, want in expected.items() if not _agree(n, np.load(tmp_path / f"{n}.out.npz"), want)] == []


def _hand_over(folder: Path, name: str, module: Module, args: list[Any], pipeline: str) -> None:
    module = run_pipeline(module, parse_pipeline(PIPELINES[pipeline]))
    (folder / f"{name}.hlo").write_text(write(module))
    dtypes = [p.type.dtype.name for p in module.entry.params]
    wide = [np.asarray(a, np.float32) if d == "bf16" else a for a, d in zip(args, dtypes, strict=True)]
    np.savez(folder / f"{name}.npz", dtypes=np.array(dtypes, str), **{f"in{k}": a for k, a in enumerate(wide)})


def _agree(name: str, got: Any, want: list[Any]) -> bool:
    case = {} if name.startswith("random") else jax_corpus.case_of(name)[0]["tol"]
    return len(got.files) == len(want) and all(
        got[f"out{k}"].shape == w.shape and np.allclose(
            got[f"out{k}"], w, rtol=case.get(f"out{k}", (1e-5, 0))[0], atol=case.get(f"out{k}", (0, 0))[1], equal_nan=True)
        for k, w in enumerate(map(np.asarray, want)))
