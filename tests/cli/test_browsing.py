"""The session behind front ends: versions, time lines, runs that are looked at, what is told of a node."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import RunError, UsageError
from deepx_graph.ir import Module, Node, Origin
from deepx_graph.ir.structure import PHI
from deepx_graph.ops import dot_general, exponential, multiply, reshape, subtract, tanh
from deepx_graph.passes.fusion.reason import Kind
from deepx_graph.session import programs
from deepx_graph.session.instrumented import parse_slice, slice_text, statistics
from deepx_graph.session.programs import complete_passes, explain_pass, pipeline_name
from deepx_graph.session.progress import Cancelled, Monitor
from deepx_graph.session.query.selection import cut
from deepx_graph.session.report.diff import diff
from deepx_graph.session.report.info import memory
from deepx_graph.session.session import Session
from deepx_graph.session.show.inspect import inspect
from deepx_graph.session.show.picture import ExportedPart, export
from deepx_graph.types import F32, is_state, tensor
from deepx_graph.verify import verify
from tests.support import viz_modules
from tests.support.browsing_programs import X, foldable, hunted
from tests.support.generate import random_module
from tests.support.paths import ROOT

# --- versions


def test_versions_are_walked_by_undo_and_redo() -> None:
    s = Session(foldable())
    first = s.module
    assert not s.undo() and not s.redo()
    s.push(s.optimise("cse"))
    s.push(s.optimise("simplify"))
    assert [v.title for v in s.versions] == ["loaded", "cse", "simplify"]
    assert s.undo() and s.undo() and s.module is first
    assert s.redo() and s.version.title == "cse"
    s.push(s.optimise("dce"))  # what was undone is gone
    assert [v.title for v in s.versions] == ["loaded", "cse", "dce"]
    assert diff(s.original, s.module).operations["tanh"] == (2, 1)


def test_a_gradient_is_a_version() -> None:
    s = Session(foldable())
    s.push(s.gradient(["x"]))
    assert s.version.title == "grad by x"
    assert len(s.module.entry.params) == 2


def test_a_mistake_leaves_the_session_as_it_was() -> None:
    s = Session(foldable())
    with pytest.raises(UsageError, match="did you mean 'fuse'"):
        s.optimise("fues")
    assert s.at == 0 and len(s.versions) == 1


def test_the_shell_line_is_quoted() -> None:
    s = Session(foldable(), path="a b.hlo")
    assert s.shell_line("fuse{max-ops=64}") == "deepx-graph opt 'a b.hlo' -p 'fuse{max-ops=64}'"


# --- time line


def test_each_rewrite_is_a_step_and_the_steps_lead_from_first_to_last() -> None:
    s = Session(foldable())
    version = s.optimise("default")
    timeline = version.timeline
    assert timeline is not None
    numbers = [e.rewrite.number for e in timeline.events if e.rewrite is not None]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) >= 4
    at = timeline.before
    for event in timeline.events:
        if event.rewrite is None:
            continue
        before, after, _ = timeline.step(event)
        assert not diff(at, before)  # every step starts where the last one ended
        at = after
    assert not diff(at, version.module)
    assert timeline.module_at(timeline.events[0].before) is s.module


def test_a_step_of_one_rewrite_is_what_the_limit_makes() -> None:
    s = Session(foldable())
    timeline = s.optimise("default").timeline
    assert timeline is not None
    for event in timeline.events:
        if event.rewrite is not None:
            limited = programs.optimise(s.module, "default", programs.Watch(rewrite_limit=event.rewrite.number)).module
            assert not diff(timeline.module_at(event.after), limited) or event.after.rewrites == 0


def test_a_step_of_a_pass_is_from_its_input_to_its_result_whether_it_tells_rewrites_or_not() -> None:
    module = dx.load(ROOT / "examples" / "transformer_block.dx")
    timeline = Session(module).optimise("cse,internalize,dce").timeline
    assert timeline is not None
    wholes = [e for e in timeline.events if e.rewrite is None]
    modules = [module, *(stage.module for stage in timeline.stages)]
    assert modules[2] is not modules[1] and not timeline.stages[1].rewrites
    for event, given, made in zip(wholes, modules, modules[1:], strict=False):
        before, after, _ = timeline.step(event)
        assert before is given and after is made


def test_passes_that_changed_nothing_are_hidden() -> None:
    timeline = Session(foldable()).optimise("default").timeline
    assert timeline is not None
    shown, everything = timeline.passes(), timeline.passes(unchanged=True)
    names = ["inline", "partial-evaluation", "tail-calls", "inline", "promote", "sccp", "cse", "simplify", "dce", "fuse"]
    assert [s.pass_.name for s, _ in everything] == names
    assert [s.pass_.name for s, _ in shown] == ["cse", "simplify", "fuse"]
    assert all(events[0].rewrite is None for _, events in shown)


def test_a_rule_gives_its_reason() -> None:
    timeline = Session(foldable()).optimise("simplify").timeline
    assert timeline is not None
    law = next(e for e in timeline.events if e.title == "declared-law")
    assert "op(x, e) = x" in law.reason


def test_when_a_node_appears_and_vanishes() -> None:
    s = Session(foldable())
    _, right = s.find("b2")
    version = s.optimise("default")
    timeline = version.timeline
    assert timeline is not None
    gone = timeline.sightings(right)
    assert [(x.kind, x.event.title) for x in gone] == [("vanished", "merge")]
    assert gone[0].event.rewrite is not None and gone[0].event.rewrite.before is right
    kernel = next(n for n in version.module.entry.nodes if n.op.name.startswith("fus"))
    assert [x.kind for x in timeline.sightings(kernel)] == ["appeared"]


# --- questions


def test_questions_about_nodes() -> None:
    s = Session(foldable())
    assert [n.name for _, n in s.query("op:tanh")] == ["a2", "b2"]
    f, n = s.find("a2")
    assert s.address(f, n) == f"#{f.nodes.index(n)}"
    assert s.function_of(n) is f
    assert s.why("a2", "y").kind is Kind.FUSED


def texts(sections: list[object]) -> str:
    return "\n".join(f"{e.label} {e.text}" for s in sections for e in s.entries)  # type: ignore[attr-defined]


def test_the_inspector_tells_where_a_node_is_from_and_what_it_costs(tmp_path: Path) -> None:
    path = tmp_path / "p.sea"
    path.write_text("sea 1\nentry @f\nfunc public @f(%x: f32[4]) -> (%y: f32[4]) {\n  %a = tanh %x : f32[4]\n"
                    "  %y = negate %a : f32[4]\n  return %y\n}\n")  # fmt: skip
    s = Session.open(path)
    f, a = s.find("a")
    told = texts(inspect(s, f, a))  # type: ignore[arg-type]
    for fact in ("name a", "type f32[4]", "bytes 16", "moved 32", "flops 4", "line 4 %a = tanh %x : f32[4]", "negate y", "depth 1"):
        assert fact in told
    entries = {e.label: e for section in inspect(s, f, a) for e in section.entries}
    assert entries["negate"].node is s.find("y")[1]
    assert entries["line 4"].line == 4


def test_every_node_of_every_kind_can_be_described() -> None:
    for module in (viz_modules.straight(), viz_modules.branch(), viz_modules.loop(), viz_modules.fused()):
        s = Session(module)
        for n in module.entry.nodes:
            assert inspect(s, module.entry, n)[0].entries


# --- running


def test_a_run_tells_where_a_nan_was_born_and_what_each_kernel_took() -> None:
    s = Session(hunted())
    result = s.run(s.inputs({"x": "ones", "y": "iota"}), engine="numpy")
    assert result.first_odd is s.find("gone")[1]
    s.accept(result)
    assert [n.name for _, n in s.query("nan")] == ["gone", "worse", "fine"]
    shares = sum(m.share for m in result.measured.values())
    assert shares == pytest.approx(1)
    assert all(m.calls == 1 for n, m in result.measured.items() if n.inputs)
    seen = result.values.seen[s.find("gone")[1]]
    assert seen.statistics.infs == 32 and seen.array is not None and np.isneginf(seen.array).all()
    assert result.values.seen[s.find("y")[1]].statistics.high == 31
    assert "-inf" not in texts(inspect(s, s.module.entry, s.find("y")[1]))  # type: ignore[arg-type]
    assert "32 infinite of 32" in texts(inspect(s, *s.find("gone")))  # type: ignore[arg-type]


def test_watched_results_are_those_of_a_plain_run() -> None:
    for module in (viz_modules.straight(), viz_modules.branch(), viz_modules.fused(), dx.optimize(foldable())):
        s = Session(module)
        inputs = s.inputs({}, seed=3)
        watched = s.run(inputs).outputs
        for (_, a), b in zip(watched, dx.compile(module, optimize=False)(**inputs), strict=True):
            np.testing.assert_array_equal(a, b)


def test_values_in_loops_are_those_of_the_last_iteration_and_prints_are_kept() -> None:
    s = Session(viz_modules.loop())
    result = s.run(s.inputs({"x": "zeros", "n": "3"}))
    assert result.printed.count("\n") >= 3
    calls = [m.calls for n, m in result.measured.items() if n.op.name == "add" and n.inputs[0].type == X]
    assert calls and all(c == calls[0] for c in calls)


def test_unknown_shapes_are_given_and_become_a_version() -> None:
    b = dx.Builder()
    s = Session(Module((b.function("main", [("x", tensor(F32, ("n",)))], lambda x: [b(tanh, x)]),)))
    with pytest.raises(UsageError, match="shape of input 'x' is not known"):
        s.inputs({})
    s.accept(s.run(s.inputs({"x": "random [5]"})))
    assert str(s.module.entry.results[0].type) == "f32[5]"
    assert [v.title for v in s.versions] == ["loaded", "types of the inputs"]


def test_wishes_for_inputs(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((4, 8), 7, "f4"))
    s = Session(foldable())
    assert s.inputs({"x": str(tmp_path / "x.npy")})["x"].max() == 7
    assert (s.inputs({"x": "2.5"})["x"] == 2.5).all()
    assert s.inputs({"x": "iota"})["x"][3, 7] == 31
    for bad, message in (("frandom", "cannot be 'frandom'"), ("ones q7[3]", "cannot have the"), ("ones f32[?]", "cannot have")):
        with pytest.raises(UsageError, match=message):
            s.inputs({"x": bad})
    with pytest.raises(UsageError, match="no input 'z'"):
        s.inputs({"z": "ones"})
    with pytest.raises(RunError, match="bytes"):
        s.inputs({"x": "ones f32[1000,1000]"}, max_bytes=1000)


def test_work_can_be_cancelled_and_tells_how_far_it_is() -> None:
    s = Session(foldable())
    told: list[str] = []
    monitor = Monitor(lambda text, done, total: told.append(f"{text} {done}/{total}"))
    s.optimise("cse,fuse", monitor=monitor)
    assert told and told[0] == "cse 0/2"
    cancelled = Monitor()
    threading.Thread(target=cancelled.cancel).run()
    for work in (lambda: s.optimise("default", monitor=cancelled), lambda: s.run(s.inputs({}), monitor=cancelled)):
        with pytest.raises(Cancelled):
            work()
    assert len(s.versions) == 1


# --- figures


def test_statistics_leave_odd_elements_out() -> None:
    s = statistics(np.array([1.0, 2.0, np.nan, np.inf, -np.inf, 0.0, 5.0]))
    assert (s.elements, s.nans, s.infs, s.zeros, s.low, s.high) == (7, 1, 2, 1, 0, 5)
    assert s.mean == 2 and sum(s.counts) == 4
    assert statistics(np.array([])).elements == 0
    assert statistics(np.array([True, False])).mean == 0.5
    assert statistics(np.array([3 + 4j])).high == 5
    assert statistics(np.full((3,), 1e308)).counts == (3,)
    assert statistics(np.array([np.nan])).counts == ()


def test_slices_are_read_and_bounded() -> None:
    a = np.arange(24).reshape(2, 3, 4)
    assert slice_text(a, "1, ::2, -1") == "[15 23]"
    assert slice_text(a, "..., 0") == str(a[..., 0])
    assert len(slice_text(np.zeros(10**6), "")) < 200
    assert parse_slice("") == ()
    for bad in ("1;2", "a", "1::0", "0,0,0,0", "7"):
        with pytest.raises(UsageError, match="index"):
            slice_text(a, bad)


def test_memory_over_time_peaks_where_most_is_alive() -> None:
    b = dx.Builder()

    def body(x: Node, w: Node) -> list[Node]:
        wide = b(dot_general, x, w, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(0,))
        return [b(dot_general, wide, w, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(1,))]

    f = b.function("main", [("x", X), ("w", tensor(F32, (8, 100)))], body)
    found = memory(f)
    assert found is not None
    assert max(found.alive) >= 4 * 100 * 4 + 4 * 8 * 4  # the wide product, the result made from it, and what the product needs
    assert found.peak_bytes >= max(found.alive)
    assert found.at_peak(1)[0][0] is f.nodes[2]
    assert memory(b.function("main", [("x", tensor(F32, None))], lambda x: [b(tanh, x)])) is None


# --- pipelines, parts, files


def test_half_written_passes_are_completed_and_explained() -> None:
    assert "simplify" in complete_passes("simp")
    assert "cse,fuse" in complete_passes("cse,fus")
    assert "cse,fuse{max-ops=" in complete_passes("cse,fuse{max-o")
    assert "fuse{max-ops=4 reductions=false" in complete_passes("fuse{max-ops=4 reductions=f")
    assert complete_passes("nothing{") == []
    assert pipeline_name("inline,partial-evaluation,tail-calls,inline,promote,sccp,cse,simplify,dce,fuse") == "default"
    assert pipeline_name("cse") == "cse"
    assert "max-ops=200" in explain_pass("fuse{max-ops=3}")[1]


def test_a_part_that_is_cut_out_computes_what_it_did_in_the_whole() -> None:
    compared = 0
    for seed in range(40):
        rng = random.Random(seed)
        module = random_module(rng, max_ops=14)
        f, whole = module.entry, Session(module)
        seen = whole.run(whole.inputs({}, seed=seed), engine="numpy").values.seen
        computed = [n for n in f.nodes if n in seen and n.inputs]
        if not computed or any(is_state(n.type) for n in f.nodes):
            continue
        part = cut(module, f, rng.sample(computed, min(3, len(computed))))
        verify(part)
        named = {n.name or f"v{k}": n for k, n in reversed(list(enumerate(f.nodes)))}
        given = {p.name: seen.get(named[p.name]) for p in part.entry.params}
        if all(s is not None and s.array is not None for s in given.values()):  # else it reads a branch that was not taken
            arrays = {name: s.array for name, s in given.items() if s is not None}
            outputs = dx.compile(part, engine="numpy", optimize=False)(**arrays)
            assert all(any(_alike(o, seen[n].array) for n in computed) for o in outputs)
            compared += 1
    assert compared > 10


def _alike(a: object, b: object) -> bool:
    return np.array_equal(np.asarray(a), np.asarray(b), equal_nan=np.asarray(a).dtype.kind in "fc")


def test_a_loop_is_cut_out_whole() -> None:
    module = viz_modules.loop()
    f = module.entry
    phi = next(n for n in f.nodes if n.op is PHI)
    part = cut(module, f, [phi])
    verify(part)
    assert sum(n.op.name == "loop_end" for n in part.entry.nodes) == 1
    assert [str(p.type) for p in part.entry.params][-1] == "state"
    with pytest.raises(UsageError, match="nothing is cut out"):
        cut(module, f, [f.params[0]])


def test_what_is_shown_is_exported_by_its_suffix(tmp_path: Path) -> None:
    module = foldable()
    f = module.entry
    tanh_node = next(n for n in f.nodes if n.op is tanh)
    export(ExportedPart(module, f"#{f.nodes.index(tanh_node)}", 1, f, (tanh_node,)), tmp_path / "part.sea")
    part = dx.load(tmp_path / "part.sea")
    assert [n.op.name for n in part.entry.nodes] == ["param", "tanh"]
    export(ExportedPart(module), tmp_path / "all.svg")
    assert "<svg" in (tmp_path / "all.svg").read_text()
    export(ExportedPart(module), tmp_path / "a.txt", text="lines\n")
    for path, message in ((tmp_path / "all.svg", "there already"), (tmp_path / "x.what", "does not say"),
                          (tmp_path / "no" / "x.svg", "no folder")):  # fmt: skip
        with pytest.raises(UsageError, match=message):
            export(ExportedPart(module), path)


def test_a_node_that_nobody_needs_any_more_vanished_by_the_rewrite_that_left_it_alone() -> None:
    b = dx.Builder()

    def body(x: Node) -> list[Node]:
        b.origin = Origin("lonely")
        e = b(exponential, x)
        b.origin = Origin("gone")
        zero = b(multiply, e, b.constant(1.0, F32))
        b.origin = Origin("y")
        return [b(subtract, b(tanh, x), b(reshape, b(reshape, zero, shape=(32,)), shape=(4, 8)))]

    s = Session(Module((b.function("main", [("x", X)], body),)))
    for name in ("lonely", "gone"):
        found = s.optimise("clean").timeline
        assert found is not None
        sightings = found.sightings(s.find(name)[1])
        assert len(sightings) == (name == "gone")
    middle = next(n for n in s.module.entry.nodes if n.op is reshape)
    timeline = s.optimise("simplify").timeline
    assert timeline is not None
    (sighting,) = timeline.sightings(middle)
    assert sighting.kind == "vanished" and sighting.event.rewrite is not None
