"""The pass that changed a result, and the operation in it: of dumped stages, of our own passes, of XLA in a child process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.session.diagnose.bisection import Inputs, bisect_pipeline, bisect_stages, bisect_xla, with_places
from deepx_graph.validation.stage_run import parse_sharding
from deepx_graph.validation.stages import CompilerStage
from tests.support.cli_runner import Run, run
from tests.support.wrong_rules import planted, with_rules

__all__ = ["run"]

SLICES = """HloModule slices
ENTRY main {
  x = s32[8] parameter(0)
  i = s32[] parameter(1)
  four = s32[] constant(4)
  j = s32[] add(i, four)
  y = s32[8] add(x, x)
  outer = s32[6] dynamic-slice(y, i), dynamic_slice_sizes={6}
  inner = s32[3] dynamic-slice(outer, j), dynamic_slice_sizes={3}
  ROOT r = s32[3] negate(inner) }
"""
MERGED = """HloModule slices
ENTRY main {
  a = s32[8] parameter(0)
  i = s32[] parameter(1)
  four = s32[] constant(4)
  zero = s32[] constant(0)
  two = s32[] constant(2)
  j = s32[] add(i, four)
  k = s32[] clamp(zero, i, two)
  start = s32[] add(j, k)
  y = s32[8] add(a, a)
  inner = s32[3] dynamic-slice(y, start), dynamic_slice_sizes={3}
  ROOT r = s32[3] negate(inner) }
"""
"""What XLA's algebraic simplifier makes of it: the inner start is not clamped to the outer slice."""


def stages(*texts: str) -> list[CompilerStage]:
    return [CompilerStage(f"pass{k}", lambda text=t: dx.loads(text, "hlo")) for k, t in enumerate(texts)]  # type: ignore[misc]


def test_the_pass_and_the_operation_are_named_and_reduced(tmp_path: Path) -> None:
    same = SLICES.replace("add(x, x)", "multiply(x, two)").replace("  y =", "  c = s32[] constant(2)\n  two = s32[8] broadcast(c), "
                                                                  "dimensions={}\n  y =")
    found = bisect_stages("m", stages(SLICES, same, MERGED, MERGED), Inputs())
    assert found.kind == "wrong element" and found.wrong is not None and found.wrong.stage.title == "pass2"
    assert found.departure is not None
    assert (found.departure.before.name, found.departure.after.name) == ("inner", "inner"), "not the negation after it"
    assert [n.name for n in found.departure.operations(found.departure.before)] == ["outer", "inner"]
    small = found.reproducer()
    assert small is not None
    module, inputs = small
    assert len([n for n in module.entry.nodes if n.op.name == "dynamic_slice"]) == 2 and len(inputs) == 3
    before = dx.compile(module, engine="numpy", optimize=False)(**inputs)
    assert before[0].shape == (3,)


def test_right_stages_and_rounding_are_no_finding() -> None:
    text = "HloModule m\nENTRY main { x = f32[64] parameter(0)\n y = f32[64] multiply(x, x)\n z = f32[64] multiply(y, x)\n" \
           " ROOT r = f32[64] tanh(z) }"
    other = text.replace("multiply(y, x)", "multiply(x, y)")
    moved = "HloModule m\nENTRY main { x = f32[64] parameter(0)\n c = f32[] constant(3)\n" \
            " t = f32[64] broadcast(c), dimensions={}\n ROOT z = f32[64] power(x, t) }"
    cubes = "HloModule m\nENTRY main { x = f32[64] parameter(0)\n y = f32[64] multiply(x, x)\n ROOT z = f32[64] multiply(y, x) }"
    assert not bisect_stages("m", stages(text, other, text), Inputs()).found
    ordinary = Inputs({"x": np.random.default_rng(0).standard_normal(64).astype(np.float32)})
    found = bisect_stages("m", stages(cubes, moved), ordinary)
    assert not found.found and "rounding" in "\n".join(found.lines())


def test_an_overflow_that_is_folded_is_called_so() -> None:
    log = "HloModule m\nENTRY main { x = f32[2] parameter(0)\n e = f32[2] exponential(x)\n ROOT l = f32[2] log(e) }"
    gone = "HloModule m\nENTRY main { ROOT x = f32[2] parameter(0) }"
    found = bisect_stages("m", stages(log, gone), Inputs())
    assert found.kind == "overflow folded"
    assert not bisect_stages("m", stages(log, gone), Inputs({"x": np.float32([1, 2])})).found


def test_which_zero_a_maximum_gives_is_left_open() -> None:
    text = "HloModule m\nENTRY main { x = f32[9] parameter(0)\n y = f32[9] parameter(1)\n ROOT m = f32[9] maximum(x, y) }"
    other = text.replace("maximum(x, y)", "maximum(y, x)")
    assert not bisect_stages("m", stages(text, other), Inputs()).found
    plus = "HloModule m\nENTRY main { x = f32[9] parameter(0)\n c = f32[] constant(0)\n z = f32[9] broadcast(c), dimensions={}\n" \
           " ROOT m = f32[9] add(x, z) }"
    gone = "HloModule m\nENTRY main { ROOT x = f32[9] parameter(0) }"
    assert bisect_stages("m", stages(plus, gone), Inputs()).kind == "sign of zero"


@pytest.mark.parametrize("call", ["maximum(x, y)", "minimum(x, y)", "clamp(x, y, y)"])
def test_which_zero_the_machine_chose_is_left_open(call: str) -> None:
    text = f"HloModule m\nENTRY main {{ x = f32[1] parameter(0)\n y = f32[1] parameter(1)\n ROOT m = f32[1] {call} }}"
    inputs, zeros = {"x": np.float32([-0.0]), "y": np.float32([0.0])}, [np.float32([0.0]), np.float32([-0.0])]
    found = [bisect_stages("m", stages(text, text), Inputs(inputs), machine=[(z,)]) for z in zeros]
    assert not any(f.found for f in found) and any(f.machine for f in found)
    sum_of = text.replace(call, "add(x, y)")
    assert bisect_stages("m", stages(sum_of, sum_of), Inputs(inputs), machine=[(zeros[1],)]).kind == "code generation"


def test_a_mistake_in_a_loop_is_found_in_its_body() -> None:
    text = """HloModule loop
c { s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT lt = pred[] compare(i, n), direction=LT }
b { s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  f = f32[] convert(i)
  g = f32[4] broadcast(f), dimensions={}
  h = f32[4] multiply(x, g)
  y = f32[4] add(h, x)
  ROOT t = (s32[], f32[4]) tuple(next, y) }
ENTRY main { x = f32[4] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[4]) tuple(zero, x)
  w = (s32[], f32[4]) while(t), condition=c, body=b
  r = f32[4] get-tuple-element(w), index=1
  ROOT q = f32[4] negate(r) }
"""
    wrong = text.replace("multiply(x, g)", "divide(x, g)")
    found = bisect_stages("m", stages(text, wrong), Inputs({"x": np.float32([1, 2, 3, 4])}))
    assert found.departure is not None
    assert (found.departure.before.op.name, found.departure.after.op.name) == ("multiply", "divide")


def test_stages_that_cannot_be_read_are_left_out_and_named() -> None:
    found = bisect_stages("m", stages(SLICES, "HloModule x\nENTRY main { nonsense", MERGED), Inputs())
    assert found.wrong is not None and len(found.search.between) == 1
    assert "left out: 'pass1'" in "\n".join(found.lines())


def test_endless_samples_are_left_out() -> None:
    text = """HloModule loop
c { s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  ROOT lt = pred[] compare(i, n), direction=LT }
b { s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT t = (s32[], s32[]) tuple(next, n) }
ENTRY main { n = s32[] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], s32[]) tuple(zero, n)
  w = (s32[], s32[]) while(t), condition=c, body=b
  ROOT r = s32[] get-tuple-element(w), index=0 }
"""
    found = bisect_stages("m", stages(text, text), Inputs())
    assert not found.found and 0 < len(found.search.reference.samples) < 20
    ended = Inputs().that_end(dx.loads(text))
    assert len(ended(dx.loads(text))) == len(found.search.reference.samples), "a machine is given those alone"


def test_what_the_machine_gave_tells_passes_from_code_generation() -> None:
    inputs = {"x": np.arange(8, dtype=np.int32), "i": np.int32(1)}
    right = dx.compile(dx.loads(SLICES), engine="numpy", optimize=False)(**inputs)
    found = bisect_stages("m", stages(SLICES, SLICES), Inputs(inputs), machine=[(right[0] + 1,)])
    assert found.kind == "code generation" and found.wrong is None
    least = found.reproducer()
    assert least is not None and least[0] is found.search.evaluated[0].module and least[1]["i"] == 1
    assert not bisect_stages("m", stages(SLICES, SLICES), Inputs(inputs), machine=[tuple(right)]).found


def test_what_a_machine_may_do_is_no_finding() -> None:
    small = "HloModule m\nENTRY e { x = f32[2] parameter(0)\n c = f32[2] constant({1e-20, 3})\n ROOT y = f32[2] multiply(x, c) }"
    inputs = {"x": np.array([1e-20, 2.0], np.float32)}

    def kind(text: str, inputs: dict[str, Any], *machine: Any) -> str:
        return bisect_stages("m", stages(text, text), Inputs(inputs), machine=[tuple(machine)]).kind  # type: ignore[arg-type]

    assert kind(small, inputs, np.array([0, 6], np.float32)).startswith("subnormal")
    assert kind(small, inputs, np.array([0, 0], np.float32)) == "code generation", "6 is no subnormal number"
    total = """HloModule m
f { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b) }
ENTRY e { x = f32[4] parameter(0)\n z = f32[] constant(0)\n ROOT y = f32[] reduce(x, z), dimensions={0}, to_apply=f }"""
    large = {"x": np.array([3e38, 3e38, -3e38, -3e38], np.float32)}
    others = [np.float32(v) for v in (0, np.inf, -np.inf, np.nan)]
    kinds = [kind(total, large, np.asarray(v)) for v in others]
    assert all(k == "" or k.startswith("sums in another order") for k in kinds) and kinds.count("") == 1
    assert kind(total, large, np.asarray(np.float32(1e38))) == "code generation", "no order gives that"
    product = total.replace("add(a", "multiply(a").replace("constant(0)", "constant(1)")
    factors = {"x": np.array([1e30, 1e30, 1e-30, 1e-30], np.float32)}
    kinds = [kind(product, factors, np.asarray(np.float32(v))) for v in (1, 0, np.inf, np.nan)]
    assert all(k == "" or k.startswith("sums in another order") for k in kinds) and kinds.count("") == 1
    assert [kind(product, factors, np.asarray(np.float32(v))) for v in (-1, -np.inf)] == ["code generation"] * 2


def test_products_fused_with_sums_do_not_overflow_alone() -> None:
    """The terms of each element one after the other, which no choice of infinities for each by chance would give."""
    text = """HloModule m
ENTRY e { x = f32[5,40] parameter(0)\n w = f32[40,3] parameter(1)
 ROOT y = f32[5,3] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0} }"""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((5, 40)) * 10.0 ** rng.integers(15, 24, (5, 40))).astype(np.float32)
    w = (rng.standard_normal((40, 3)) * 1e15).astype(np.float32)
    total = np.zeros((5, 3), np.float32)
    with np.errstate(all="ignore"):
        for k in range(40):
            total = (total + np.float64(x[:, k, None]) * np.float64(w[k])).astype(np.float32)
    assert np.isinf(total).any() and np.isfinite(total).any()
    found = bisect_stages("m", stages(text, text), Inputs({"x": x, "w": w}), machine=[(total,)])
    assert not found.found
    assert bisect_stages("m", stages(text, text), Inputs({"x": x / 1e10, "w": w}), machine=[(total,)]).found


WHOLE = """HloModule m, num_partitions=2
ENTRY main { x = f32[4,2] parameter(0), sharding={devices=[2,1]<=[2]}
  c = f32[] constant(2)
  t = f32[4,2] broadcast(c), dimensions={}
  ROOT y = f32[4,2] multiply(x, t), sharding={devices=[1,2]<=[2]} }
"""
PARTS = """HloModule m, num_partitions=2
ENTRY main { x = f32[2,2] parameter(0), sharding={devices=[2,1]<=[2]}
  c = f32[] constant(2)
  t = f32[2,2] broadcast(c), dimensions={}
  y = f32[2,2] multiply(x, t)
  r = f32[2,2,1] reshape(y)
  s = f32[2,2,1] all-to-all(r), channel_id=1, replica_groups={{0,1}}, dimensions={1}
  u = f32[2,2] reshape(s)
  w = f32[2,1,2] reshape(u)
  z = f32[2,2,1] transpose(w), dimensions={2,0,1}
  v = f32[4,1] reshape(z)
  ROOT o = f32[4,1] copy(v) }
"""


def test_a_partitioned_stage_runs_on_parts_of_the_inputs() -> None:
    found = bisect_stages("m", stages(WHOLE, PARTS.replace("constant(2)", "constant(3)")), Inputs())
    assert found.kind == "wrong element"
    good = "HloModule m, num_partitions=2\nENTRY main { x = f32[2,2] parameter(0), sharding={devices=[2,1]<=[2]}\n" \
           "  c = f32[] constant(2)\n  t = f32[2,2] broadcast(c), dimensions={}\n  ROOT y = f32[2,2] multiply(x, t) }\n"
    rows = WHOLE.replace("sharding={devices=[1,2]<=[2]}", "sharding={devices=[2,1]<=[2]}")
    right = bisect_stages("m", stages(rows, good), Inputs())
    assert not right.search.skipped and not right.found
    assert bisect_stages("m", stages(rows, good.replace("constant(2)", "constant(2.5)")), Inputs()).kind == "wrong element"


@pytest.mark.parametrize(("text", "shape", "devices"), [
    ("{devices=[2,2]<=[4]}", (4, 6), 4), ("{devices=[2,2]<=[2,2]T(1,0)}", (4, 6), 4), ("{devices=[4,1]0,2,1,3}", (5, 3), 4),
    ("{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}", (3, 4), 8), ("{replicated}", (3,), 4),
])  # fmt: skip
def test_a_sharding_cuts_and_joins(text: str, shape: tuple[int, ...], devices: int) -> None:
    sharding = parse_sharding(text, len(shape), devices)
    assert sharding is not None
    array = np.arange(np.prod(shape)).reshape(shape)
    parts = sharding.cut(array, devices)
    assert len({p.shape for p in parts}) == 1
    assert np.array_equal(sharding.joined(parts, shape), array)


def test_the_order_of_devices_is_that_of_the_transposed_iota() -> None:
    sharding = parse_sharding("{devices=[2,4]<=[4,2]T(1,0)}", 2, 8)
    assert sharding is not None and sharding.tile_of == (0, 4, 1, 5, 2, 6, 3, 7)
    assert parse_sharding("{maximal device=0}", 1, 2) is None and parse_sharding("{devices=[3]<=[2]}", 1, 2) is None


def test_of_our_own_passes_the_rewrite_is_named() -> None:
    module = dx.loads("""sea 1
entry @main
func public @main(%x: f32[3], %y: f32[3]) -> (%r: f32[3]) {
  %0 = add %x, %y : f32[3]
  %1 = negate %0 : f32[3]
  %2 = subtract %1, %y : f32[3]
  %r = exponential %2 : f32[3]
  return %r
}
""")
    assert not bisect_pipeline(module, "default", Inputs()).found
    with with_rules(planted):
        found = bisect_pipeline(module, "clean", Inputs())
    assert found.wrong is not None and found.wrong.stage.title == "simplify"
    assert found.rewrite is not None and found.rewrite.rule == "planted"


def test_the_command_reads_folders_and_files_and_writes_the_least_program(run: Run, tmp_path: Path) -> None:
    names = ["module_0003.f.before_optimizations.txt", "module_0003.f.0001.simplification.after_algsimp.before_dce.txt",
             "module_0003.f.0002.copy-insertion.after_adding_copies.txt"]
    for name, text in zip(names, (SLICES, MERGED, MERGED), strict=True):
        (tmp_path / name).write_text(text)
    done = run("bisect", str(tmp_path), "--reduce", str(tmp_path / "repro"))
    assert done.code == 1 and "after pass 'simplification: algsimp'" in done.out
    assert "was: outer = dynamic_slice(y, i, slice_sizes=(6,))" in done.out
    again = run("run", str(tmp_path / "repro.hlo"), "-p", "none", "--inputs", str(tmp_path / "repro.npz"))
    assert again.code == 0, again.err
    assert run("bisect", str(tmp_path), "--module", "3", "--json").json["modules"][0]["kind"] == "wrong element"
    files = [str(tmp_path / n) for n in names]
    assert run("bisect", *files).code == 1 and run("bisect", files[0], files[0]).code == 0
    program = run("bisect", files[0], "-p", "default")
    assert program.code == 0 and "no pass changed a result" in program.out


def test_arrays_without_names_are_inputs_in_order(run: Run, tmp_path: Path) -> None:
    text = "HloModule m\nENTRY e {\n x = f32[2] parameter(0)\n y = f32[] parameter(1)\n ROOT r = f32[2] add(x, x)\n}\n"
    (tmp_path / "p.hlo").write_text(text)
    x, y = np.ones(2, np.float32), np.float32(1)
    for arrays, named in (((x, y), {}), ((x, y, y), {}), ((x,), {"y": y})):
        np.savez(tmp_path / "in.npz", *arrays, **named)
        done = run("bisect", str(tmp_path / "p.hlo"), "-p", "default", "--inputs", str(tmp_path / "in.npz"))
        assert done.code == 0 and "1 set of inputs" in done.out, done.err


def test_numbered_files_are_stages_too(run: Run, tmp_path: Path) -> None:
    (tmp_path / "0000_input.hlo").write_text(SLICES)
    (tmp_path / "0010_merge.hlo").write_text(MERGED)
    (tmp_path / "notes.txt").write_text("nothing")
    done = run("bisect", str(tmp_path))
    assert done.code == 1 and "after pass 'merge'" in done.out


@pytest.mark.parametrize(("arguments", "said"), [
    (("missing",), "cannot read"), (("{file}",), "only one stage"), (("{file}", "{file}", "-p", "default"), "take one program"),
    (("{file}", "{file}", "--expected", "x.npz"), "cannot read"), (("{folder}",), "holds no dumped module"),
])  # fmt: skip
def test_what_cannot_be_searched_is_refused(run: Run, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    file, folder = tmp_path / "a.hlo", tmp_path / "empty"
    file.write_text(SLICES)
    folder.mkdir()
    done = run("bisect", *(a.format(file=file, folder=folder) for a in arguments))
    assert done.code in (2, 5) and said in done.err


def test_stages_are_told_the_lines_of_the_text_that_they_are_made_of(tmp_path: Path) -> None:
    file = tmp_path / "model.hlo"
    file.write_text(SLICES)
    written = dx.dumps(with_places(dx.load(file)), "hlo")
    lines = [k for k, line in enumerate(SLICES.splitlines(), 1) if "dynamic-slice(" in line]
    assert lines and all(f'source_file="{file}" source_line={k}' in written for k in lines)
    again = dx.loads(written)
    assert dx.dumps(with_places(again), "hlo") == dx.dumps(again, "hlo"), "the line of a user's program stays"


def test_what_a_machine_gave_needs_no_inputs_where_there_are_none(run: Run, tmp_path: Path) -> None:
    for name in ("0000_a.hlo", "0001_b.hlo"):
        (tmp_path / name).write_text("HloModule m\nENTRY e { ROOT c = s32[] constant(2) }")
    np.savez(tmp_path / "given.npz", np.int32(3))
    done = run("bisect", str(tmp_path), "--expected", str(tmp_path / "given.npz"))
    assert done.code == 1 and "code generation" in done.out
    (tmp_path / "0001_b.hlo").write_text(SLICES)
    (tmp_path / "0000_a.hlo").write_text(SLICES)
    assert "no array for input" in run("bisect", str(tmp_path), "--expected", str(tmp_path / "given.npz")).err


@pytest.mark.skipif("DEEPX_GRAPH_JAX_PYTHON" not in os.environ, reason="DEEPX_GRAPH_JAX_PYTHON names no Python with jaxlib")
def test_xla_in_a_child_process_is_searched() -> None:
    found = bisect_xla(dx.loads(SLICES), Inputs())
    assert found.compared and found.search.total > 10
    assert all("left out" not in line for line in found.lines())
