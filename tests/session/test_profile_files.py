"""Profiles of other runtimes laid over a program by name, module or place, and our own written and read back."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import deepx_graph as dx
from deepx_graph.errors import UsageError
from deepx_graph.session.profile_files import Overlay, laid_over, read_profile
from tests.support.cli_runner import Run

MODEL = """module {
  func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
    %a = stablehlo.exponential %x : tensor<4x4xf32> loc("jit(f)/Net/first/exp")
    %b = stablehlo.tanh %a : tensor<4x4xf32> loc("jit(f)/Net/second/inner/tanh")
    %c = stablehlo.add %b, %x : tensor<4x4xf32> loc("jit(f)/Net/second/add")
    return %c : tensor<4x4xf32>
  }
}"""

COMPILED = """HloModule m
%body.1 (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  %e = f32[4]{0} exponential(%p)
  ROOT %t = f32[4]{0} tanh(%e)
}

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  %exp_tanh_fusion = f32[4]{0} fusion(%x), kind=kLoop, calls=%body.1
  ROOT %n = f32[4]{0} negate(%exp_tanh_fusion)
}
"""


def event(name: str, dur: float, ts: float = 0.0, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "pid": 1, "tid": 1, "name": name, "ts": ts, "dur": dur, **more}


def overlay(tmp_path: Path, events: list[dict[str, Any]], text: str = MODEL) -> Overlay:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return laid_over(read_profile(path), dx.loads(text))


def test_onnxruntime_by_the_name_of_the_node(tmp_path: Path) -> None:
    times = ((90.0, "kernel_time"), (6.0, "nchwc_kernel_time"), (2.0, "kernel_time"), (1.0, "fence_before"))
    nodes = [event(f"jit(f)/Net/first/exp_{suffix}", dur, cat="Node") for dur, suffix in times]
    lost = [event("lost_kernel_time", 4.0, cat="Node")] * 3
    found = overlay(tmp_path, [*nodes, *lost, event("x", 1e9, cat="Session")])
    assert found.runtime == "onnxruntime" and found.runs == 3
    rows = {r.name: r for r in found.rows}
    row = rows["jit(f)/Net/first/exp"]
    assert row.node is not None and row.node.op.name == "exponential"
    assert (row.seconds, row.calls, row.scope) == (4e-6, 1, "Net/first"), "the median without the first"
    assert rows["lost"].node is None and found.matched == pytest.approx(0.5)


def test_onnxruntime_by_names_without_modules_and_with_what_was_fused(tmp_path: Path) -> None:
    """As it names the nodes of a model by torch's exporter, whose scopes are metadata; a name that two nodes have tells nothing."""
    names = ("exp", "tanh/SomeFusion", "jit(f)/Net/second/add/OtherFusion", "add")
    events = [event(f"{name}_kernel_time", 2.0, cat="Node") for name in names for _ in range(2)]
    twice = MODEL.replace("Net/first/exp", "Net/first/add")
    found = {r.name: r.node and r.node.op.name for r in overlay(tmp_path, events).rows}
    assert found == {"exp": "exponential", "tanh/SomeFusion": "tanh", "jit(f)/Net/second/add/OtherFusion": "add", "add": "add"}
    assert {r.name: r.node for r in overlay(tmp_path, events, twice).rows}["add"] is None


def test_xla_by_instructions_and_the_computations_that_they_call(tmp_path: Path) -> None:
    thunks = [event("thunk", dur, args={"hlo_op": name}) for dur, name in ((3.0, "exp_tanh_fusion"), (1.0, "n"))]
    found = overlay(tmp_path, thunks, COMPILED)
    nodes = {r.name: r.node.op.name if r.node else None for r in found.rows}
    assert nodes["exp_tanh_fusion"] in ("exponential", "tanh") and nodes["n"] == "negate"
    assert found.matched == pytest.approx(1.0)


def test_pytorch_by_modules_in_order_without_the_time_of_what_is_inside(tmp_path: Path) -> None:
    events = []
    for run in range(4):
        t = run * 1000.0
        events += [event("nn.Module: Net_0", 100.0, t), event("nn.Module: Linear_0", 20.0, t + 1),
                   event("nn.Module: Block_0", 60.0, t + 30), event("nn.Module: Tanh_0", 25.0, t + 31)]  # fmt: skip
    rows = {r.name: r for r in overlay(tmp_path, events).rows}
    assert {name: r.scope for name, r in rows.items()} == {
        "Net_0": "", "Net_0/Linear_0": "Net/first", "Net_0/Block_0": "Net/second", "Net_0/Block_0/Tanh_0": "Net/second/inner"}
    assert {r.name: round(r.seconds * 1e6) for r in rows.values()} == {
        "Net_0": 20, "Net_0/Linear_0": 20, "Net_0/Block_0": 35, "Net_0/Block_0/Tanh_0": 25}


def test_pytorch_where_a_module_was_folded_away(tmp_path: Path) -> None:
    """What has modules in it is still found in order; which of the others is gone cannot be told."""
    events = []
    for run in range(3):
        t = run * 1000.0
        events += [event("nn.Module: Net_0", 100.0, t), event("nn.Module: Embedding_0", 5.0, t + 1),
                   event("nn.Module: Linear_0", 20.0, t + 9), event("nn.Module: Block_0", 60.0, t + 30),
                   event("nn.Module: Tanh_0", 25.0, t + 31)]  # fmt: skip
    scopes = {r.name: r.scope for r in overlay(tmp_path, events).rows}
    assert scopes == {"Net_0": "", "Net_0/Embedding_0": "", "Net_0/Linear_0": "", "Net_0/Block_0": "Net/second",
                      "Net_0/Block_0/Tanh_0": "Net/second/inner"}  # fmt: skip


def test_pytorch_by_the_operators_that_no_other_called_each_sort_in_order(tmp_path: Path) -> None:
    """As of an exported program, whose modules are gone: the second `tanh` of each run is the second in the text."""
    lines = [f'  t{k} = f32[4] {op}({before}), metadata={{op_type="{op}"}}\n'
             for k, (op, before) in enumerate((("tanh", "x"), ("exponential", "t0"), ("tanh", "t1"), ("negate", "t2")))]
    text = f"HloModule m\nENTRY e {{\n  x = f32[4] parameter(0)\n{''.join(lines)}  ROOT r = f32[4] abs(t3)\n}}\n"
    events = [event("nn.Module: GraphModule_0", 90.0, 1000.0 * run) for run in range(3)]
    for run in range(3):
        for k, (kind, dur) in enumerate((("tanh", 20.0), ("exponential_", 9.0), ("tanh", 30.0), ("erf", 4.0))):
            at = 1000.0 * run + 40.0 * k
            events += [event(f"aten::{kind}", dur, at, cat="cpu_op"), event("aten::tanh", dur / 2, at + 1, cat="cpu_op")]
    found = overlay(tmp_path, events[3:], text)
    told = {(r.name, r.node and r.node.name): round(r.seconds * 1e6) for r in found.rows}
    assert told == {("aten::tanh", "t0"): 20, ("aten::tanh", "t2"): 30, ("aten::exponential_", "t1"): 9, ("aten::erf", None): 4}
    assert found.runs == 3 and overlay(tmp_path, events, text).matched == found.matched == pytest.approx(59 / 63)


def test_a_loop_counts_as_often_as_it_runs(tmp_path: Path) -> None:
    found = overlay(tmp_path, [event("k", 1.0, args={"hlo_op": name}) for name in ("n", "n", *["t"] * 8)], COMPILED)
    assert {r.name: (r.calls, r.seconds) for r in found.rows} == {"n": (1, 1e-6), "t": (4, 4e-6)}


@pytest.mark.parametrize("text", ["", "{", "[1, null, {}]", '{"traceEvents": 3}', '[{"ph": "X", "dur": "a"}]', "[" * 100_000])
def test_what_is_no_profile_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(UsageError):
        read_profile(path)
    path.write_bytes(b"\x1f\x8b" + text.encode())
    with pytest.raises(UsageError):
        read_profile(path)
    with pytest.raises(UsageError):
        read_profile(tmp_path / "missing")


def test_ours_is_written_for_perfetto_and_model_explorer_and_read_back(tmp_path: Path, run: Run) -> None:
    model, trace, data = tmp_path / "m.mlir", tmp_path / "t.json", tmp_path / "n.json"
    model.write_text(COMPILED)
    assert run("run", str(model), "--random-inputs", "-p", "none", "--engine", "numpy", "--trace", str(trace),
               "--node-data", str(data)).code == 0  # fmt: skip
    packed = tmp_path / "t.json.gz"
    packed.write_bytes(gzip.compress(trace.read_bytes()))
    found = laid_over(read_profile(packed), dx.loads(COMPILED))
    assert found.runtime == "deepx_graph" and found.matched == pytest.approx(1.0)
    assert {r.node.op.name for r in found.rows if r.node} >= {"negate"}
    (results,) = json.loads(data.read_text()).values()
    assert {"n"} <= set(results["results"]) and all(v["value"] >= 0 for v in results["results"].values())
    report = run("info", str(model), "--profile-from", str(packed), "--json").json
    assert report["runtime"] == "deepx_graph" and len(report["rows"]) == len(found.rows)
    assert run("draw", str(model), "--profile-from", str(packed), "-o", str(tmp_path / "x.html")).code == 0
