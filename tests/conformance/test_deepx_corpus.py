"""Every seed program and every recording of the deepx project's own front end equals its stored values.

Random draws of a recording are pinned: the stored array replaces the draw. Runs by plain `op.eval`, and compiled, unoptimised and
optimised. A sample in the normal run, all under the `conformance` marker.
"""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepx_graph.errors import DeepxGraphError, Source
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.literal import Literal
from deepx_graph.ops import rng_normal, rng_uniform
from deepx_graph.ops.host.host import Host
from deepx_graph.text import ReadOptions, detect, read
from deepx_graph.types import STATE, TensorType
from tests.support.paths import SHARED

CORPUS = SHARED / "corpus" / "deepx"
SEED_TOLERANCE = {"rtol": 2e-5, "atol": 2e-6}
UNEQUAL_SHAPES = {"e2_2025-03-04_8ef2599__3_module-1_linear.dx": "adds [4] to [1,4], which needs --broadcast"}


def _entries() -> list[dict[str, Any]]:
    if not CORPUS.is_dir():
        return []
    programs = json.loads((CORPUS / "index.json").read_text())["programs"]
    recordings = json.loads((CORPUS / "recorded" / "index.json").read_text())["recordings"]
    return [{**p, "folder": CORPUS} for p in programs] + [{**r, "folder": CORPUS / "recorded"} for r in recordings]


ENTRIES = _entries()
EXPECTED = [e for e in ENTRIES if "expected" in e]
LEFT_OUT = [e for e in ENTRIES if "expected" not in e]


def _params(entries: list[dict[str, Any]], step: int) -> list[Any]:
    """One parameter per entry; those left out of the sample run under the conformance marker only."""
    return [
        pytest.param(e, id=e["file"].removesuffix(".dx") + ("-pinned" if "pin" in e else ""),
                     marks=() if k % step == 0 or e["folder"] == CORPUS else (pytest.mark.conformance,))
        for k, e in enumerate(entries)
    ]


def test_the_corpus_is_there() -> None:
    if not ENTRIES:
        print(f"left out: no corpus at {CORPUS}")
        pytest.skip(f"no corpus at {CORPUS}")
    assert len(ENTRIES) == 84
    assert len(EXPECTED) == 62


def _module(entry: dict[str, Any]) -> Module:
    text = (entry["folder"] / entry["file"]).read_text()
    assert detect(text) == "deepx"
    return read(Source(entry["file"], text), options=ReadOptions(broadcast=entry["file"] in UNEQUAL_SHAPES)).module


def _pins(entry: dict[str, Any]) -> dict[int, np.ndarray[Any, Any]]:
    """Instruction number, from 1, to the array that its draw must leave."""
    if "pin" not in entry:
        return {}
    with np.load(entry["folder"] / entry["pin"]) as pins:
        return {int(k) + 1: v for k, v in pins.items()}


def _pinned(module: Module, pins: dict[int, np.ndarray[Any, Any]]) -> Module:
    """The program with each pinned draw replaced by its array; every pin must meet a draw."""
    made: dict[Node, Node] = {}
    met = set()
    for node in module.entry.nodes:
        line = node.span.line if node.span else 0
        if node.op in (rng_uniform, rng_normal) and line in pins:
            assert isinstance(node.type, TensorType)
            made[node] = Builder(origin=node.origin).literal(Literal(pins[line].astype(node.type.dtype.np)))
            met.add(line)
        elif any(i in made for i in node.inputs):
            made[node] = Node(node.op, tuple(made.get(i, i) for i in node.inputs), node.attrs, node.type, node.origin)
    assert met == set(pins)
    f = module.entry
    return module.with_functions((f.with_(results=tuple(made.get(r, r) for r in f.results)),))


def _evaluate(function: Function, world: Host) -> dict[str, Any]:
    """The results by name, every node by its own declaration. A load takes the type of its file."""
    values: dict[Node, Any] = {}
    for node in function.nodes:
        attrs = node.attrs
        if node in function.params:
            assert node.type == STATE, f"{node.name} is an input"
            values[node] = world
            continue
        if "path" in node.op.attr_index and len(attrs) == 2:
            attrs = (attrs[0], world.type_of(attrs[0]))
        assert node.op.eval is not None
        values[node] = node.op.eval([values[i] for i in node.inputs], *attrs)
    return {function.result_name(k): values[r] for k, r in enumerate(function.results) if r.type != STATE}


def _assert_equals(entry: dict[str, Any], results: dict[str, Any]) -> None:
    tolerance = {k: entry.get(k, v) for k, v in SEED_TOLERANCE.items()}
    with np.load(entry["folder"] / entry["expected"]) as expected:
        for name in expected:
            assert results[name].shape == expected[name].shape, name
            np.testing.assert_allclose(results[name].astype(expected[name].dtype), expected[name], err_msg=name, **tolerance)
    if "live_tensors" in entry:
        assert len(results) == entry["live_tensors"]


def _data(entry: dict[str, Any], tmp_path: Path) -> Path:
    if "data" in entry:
        shutil.copytree(entry["folder"] / entry["data"], tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.mark.parametrize("entry", _params(EXPECTED, 3))
def test_meaning_of_what_was_read(entry: dict[str, Any], tmp_path: Path) -> None:
    module = _pinned(_module(entry), _pins(entry))
    out = io.StringIO()
    _assert_equals(entry, _evaluate(module.entry, Host(_data(entry, tmp_path), out)))
    assert out.getvalue().count("shape:") == sum("print" in line for line in module.source.text.splitlines())  # type: ignore[union-attr]


@pytest.mark.parametrize("pipeline", [None, "default"])
@pytest.mark.parametrize("entry", _params(EXPECTED, 3))
def test_compiled(entry: dict[str, Any], pipeline: str | None, tmp_path: Path) -> None:
    runtime = pytest.importorskip("deepx_graph.runtime.compile")
    module = _pinned(_module(entry), _pins(entry))
    if pipeline is not None:
        manager = pytest.importorskip("deepx_graph.passes.pipeline")
        module = manager.run_pipeline(module, manager.parse_pipeline(pipeline))
    compiled = runtime.compile(module, data_root=_data(entry, tmp_path), out=io.StringIO())
    assert compiled.inputs == ()
    _assert_equals(entry, dict(zip((o.name for o in compiled.outputs), compiled(), strict=True)))


@pytest.mark.parametrize("entry", _params(LEFT_OUT, 3))
def test_without_stored_values(entry: dict[str, Any]) -> None:
    """What has no stored values is read all the same; malformed lines are found, each where it is and no other."""
    malformed = [k + 1 for k, _ in entry.get("malformed", ())]
    if not malformed:
        print(f"left out of comparison: {entry['file']} stores no values, its tensors are never set")
        assert _module(entry).entry.results
        return
    with pytest.raises(DeepxGraphError) as caught:
        _module(entry)
    places = [(d.span.line, d.span.column, d.span.text) for d in caught.value.diagnostics if d.span]
    assert [line for line, _, _ in places] == malformed
    lines = (entry["folder"] / entry["file"]).read_text().splitlines()
    for line, column, marked in places:
        assert lines[line - 1][column - 1 :].startswith(marked) and marked


def test_a_pin_is_not_what_the_documented_generator_draws() -> None:
    """Pins come from another generator (the same values whatever the seed): they replace draws and cannot check them."""
    pinned = [e for e in EXPECTED if "pin" in e]
    if not pinned:
        pytest.skip(f"no corpus at {CORPUS}")
    for entry in pinned:
        pins = _pins(entry)
        for node in _module(entry).entry.nodes:
            if node.op not in (rng_uniform, rng_normal) or node.span is None or node.span.line not in pins:
                continue
            assert node.op.eval is not None
            assert isinstance(node.type, TensorType)
            operands = [Host() if i.type == STATE else i.op.eval([], *i.attrs) for i in node.inputs]  # type: ignore[misc]
            drawn = node.op.eval(operands, *node.attrs)
            assert drawn.shape == pins[node.span.line].shape
            print(f"pinned, not drawn: {entry['file']}:{node.span.line}")
            assert not np.allclose(drawn, pins[node.span.line])


def test_unequal_shapes_need_the_option() -> None:
    entry = next((e for e in EXPECTED if e["file"] in UNEQUAL_SHAPES), None)
    if entry is None:
        pytest.skip(f"no corpus at {CORPUS}")
    with pytest.raises(DeepxGraphError, match="shapes differ: 'tensor_2' is an f32"):
        read(Source(entry["file"], (entry["folder"] / entry["file"]).read_text()))
