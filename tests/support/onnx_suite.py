"""The official ONNX backend suite, as files that `onnx_cases.py` wrote: cases, their data, and how a run of one ends."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import deepx_graph as dx
from deepx_graph.errors import DeepxGraphError, Source
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.common.protobuf import Decoder, messages, numbers, text
from deepx_graph.text.onnx.schema import SCHEMA, ModelProto, TensorProto, TypeProto
from deepx_graph.text.onnx.values import literal

FOLDER = os.environ.get("DEEPX_GRAPH_ONNX_CASES", "")
"""Where the cases are."""

MOST = 1 << 30


@dataclass
class SequenceData:
    """A sequence of tensors, or of sequences."""

    tensors: list[TensorProto] = field(default_factory=list)
    sequences: list[SequenceData] = field(default_factory=list)
    at: int = 0


@dataclass
class OptionalData:
    """A value, or none."""

    kind: int = 0
    tensor: TensorProto | None = None
    sequence: SequenceData | None = None
    name: str = ""
    at: int = 0


DATA = {
    **SCHEMA,
    SequenceData: {3: ("tensors", messages(TensorProto)), 5: ("sequences", messages(SequenceData))},
    OptionalData: {1: ("name", text), 2: ("kind", numbers), 3: ("tensor", messages(TensorProto)),
                   5: ("sequence", messages(SequenceData))},
}


@dataclass(frozen=True)
class Case:
    """A model with data sets, and the tolerances of the suite."""

    kind: str
    name: str
    folder: Path
    rtol: float
    atol: float
    onnxruntime: str


def cases() -> list[Case]:
    """All cases; none where they are not there."""
    index = Path(FOLDER) / "index.json"
    if not FOLDER or not index.exists():
        return []
    rows = json.loads(index.read_text())["cases"]
    return [Case(r["kind"], r["name"], Path(r["folder"]), r["rtol"], r["atol"], r["onnxruntime"]) for r in rows]


def message(path: Path, kind: type) -> tuple[Any, Source]:
    source = Source(str(path), data=memoryview(path.read_bytes()))
    return Decoder(source, DATA, ReadOptions()).whole(kind), source


def value_of(path: Path, type: TypeProto | None) -> Any:
    """What a data file holds: an array, a list, or None."""
    if type is not None and type.optional is not None:
        found, source = message(path, OptionalData)
        if found.tensor is not None:
            return array(found.tensor, source)
        return None if found.sequence is None else listed(found.sequence, source)
    if type is not None and type.sequence is not None:
        return listed(*message(path, SequenceData))
    return array(*message(path, TensorProto))


def listed(data: SequenceData, source: Source) -> list[Any]:
    return [array(t, source) for t in data.tensors] + [listed(s, source) for s in data.sequences]


def array(data: TensorProto, source: Source) -> Any:
    return literal(data, source, MOST).array


def same(found: Any, wanted: Any, rtol: float, atol: float) -> str:
    """Nothing, or what differs; as the runner of the suite compares."""
    wanted = np.asarray(wanted)
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"is {found.dtype}{list(found.shape)}, expected {wanted.dtype}{list(wanted.shape)}"
    if found.dtype.hasobject:
        return "" if (found == wanted).all() else "has other texts"
    if found.dtype.kind == "V" or found.dtype.name.startswith(("float8", "bfloat", "float4", "int4", "uint4", "int2", "uint2")):
        rtol = max(rtol, 2**-6) if found.dtype.name == "bfloat16" else rtol
        found, wanted = found.astype(np.float32), wanted.astype(np.float32)
    try:
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)
    except AssertionError as e:
        return " ".join(str(e).split())[:200]
    return ""


def flat(value: Any) -> list[Any]:
    """The arrays in a value, one after the other."""
    if isinstance(value, list):
        return [x for v in value for x in flat(v)]
    return [] if value is None else [value]


def outcome(case: Case, engine: str = "numpy", pipeline: str = "") -> str:
    """`passed`, or why not."""
    model, _ = message(case.folder / "model.onnx", ModelProto)
    initialised = {w.name for w in model.graph.initializers}
    infos = [i for i in model.graph.inputs if i.name not in initialised]
    try:
        for data in sorted(case.folder.glob("test_data_set_*")):
            given = [value_of(data / f"input_{k}.pb", i.type) for k, i in enumerate(infos) if (data / f"input_{k}.pb").exists()]
            wanted = flat([value_of(data / f"output_{k}.pb", o.type) for k, o in enumerate(model.graph.outputs)])
            module = dx.load(case.folder / "model.onnx", lengths=lengths(infos, given)) if any(
                isinstance(g, list) or g is None for g in given) else dx.load(case.folder / "model.onnx")
            if pipeline:
                module = dx.optimize(module, pipeline)
            found = dx.compile(module, engine=engine, optimize=False)(*flat(given))
            if len(found) != len(wanted):
                return f"wrong: {len(found)} results, expected {len(wanted)}"
            for k, (f, w) in enumerate(zip(found, wanted, strict=True)):
                if what := same(f, w, case.rtol, case.atol):
                    return f"wrong: result {k} {what}"
    except DeepxGraphError as e:
        return "refused: " + " ".join(str(e.diagnostics[0].message).split())[:160]
    except Exception as e:  # the point of the table is to show these
        return f"crashed: {type(e).__name__}: {e}"[:200]
    return "passed"


def told_lengths(case: Case) -> dict[str, Any]:
    """How many items the inputs of a case have that are sequences; none where there is no such input."""
    model, _ = message(case.folder / "model.onnx", ModelProto)
    initialised = {w.name for w in model.graph.initializers}
    infos = [i for i in model.graph.inputs if i.name not in initialised]
    data = case.folder / "test_data_set_0"
    given = [value_of(data / f"input_{k}.pb", i.type) for k, i in enumerate(infos) if (data / f"input_{k}.pb").exists()]
    return lengths(infos, given)


def lengths(infos: Any, given: Any) -> dict[str, Any]:
    """The values of inputs that are sequences or optional, as numbers of items."""
    return {i.name: len(g) if isinstance(g, list) else -1 for i, g in zip(infos, given, strict=True)
            if isinstance(g, list) or g is None}


def main() -> None:
    """A table of the outcomes: `python -m tests.support.onnx_suite [PART OF A NAME]`."""
    import sys

    part = sys.argv[1] if len(sys.argv) > 1 else ""
    engine = sys.argv[2] if len(sys.argv) > 2 else "numpy"
    table: Counter[tuple[str, str]] = Counter()
    for case in cases():
        if part in f"{case.kind}/{case.name}":
            ended = outcome(case, engine)
            table[case.kind, ended.partition(":")[0]] += 1
            if ended != "passed":
                print(case.kind, case.name, ended)
    for key, count in sorted(table.items()):
        print(count, *key)


if __name__ == "__main__":
    main()
