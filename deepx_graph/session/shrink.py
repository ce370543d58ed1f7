"""ONNX models made smaller: read with their operators kept, taken together, written back, and held against the model as it was.

What is written never has more nodes or bytes than the model had; where it would, it is the model as it was.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from deepx_graph.errors import DeepxGraphError, Source, sized
from deepx_graph.ir import Module
from deepx_graph.progress import stage
from deepx_graph.session.agreement import Comparison, compared_runs
from deepx_graph.session.programs import encoded, loads
from deepx_graph.text import ReadOptions
from deepx_graph.text.onnx.keep import nodes_within
from deepx_graph.text.onnx.merge import merged
from deepx_graph.text.onnx.printer.model import original


@dataclass(frozen=True)
class ModelSize:
    """How large a model is; nodes within graphs of nodes count too."""

    nodes: int
    bytes: int
    operators: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Shrunk:
    """A model as it is written, its size before and after, and how its results compare on random inputs."""

    data: bytes | memoryview
    before: ModelSize
    after: ModelSize
    results: tuple[Comparison, ...] = ()
    unchecked: str = ""
    """Why the results could not be compared."""

    @property
    def agrees(self) -> bool:
        return all(r.agrees for r in self.results)

    def lines(self) -> list[str]:
        """The report as text."""
        before, after = self.before, self.after
        rows = [f"nodes  {before.nodes} -> {after.nodes}", f"bytes  {before.bytes} -> {after.bytes} ({sized(after.bytes)})"]
        for name in sorted(before.operators | after.operators):
            if before.operators[name] != after.operators[name]:
                rows.append(f"  {name}  {before.operators[name]} -> {after.operators[name]}")
        if self.unchecked:
            return [*rows, f"not compared with the model as it was: {self.unchecked}"]
        largest = max((r.difference for r in self.results), default=0.0)
        return [*rows, f"results on random inputs differ by at most {largest:.3g}"]

    def to_json(self) -> dict[str, object]:
        """The report as plain data."""
        return {"nodes": [self.before.nodes, self.after.nodes], "bytes": [self.before.bytes, self.after.bytes],
                "operators": {n: [self.before.operators[n], self.after.operators[n]]
                              for n in sorted(self.before.operators | self.after.operators)},
                "differences": {r.name: r.difference for r in self.results}, "agrees": self.agrees, "unchecked": self.unchecked}


def shrink(module: Module, options: ReadOptions, check: bool = True) -> Shrunk:
    """The model of a module whose operators were kept (`ReadOptions.operators`). Raises VerifyError for what cannot be written.

    A model whose results differ by more than rounding allows is written as it was.
    """
    assert module.source is not None and module.source.data is not None
    old = module.source.data
    before = _size(old)
    made = _written(module)
    after = _size(made)
    if after.nodes > before.nodes or after.bytes > before.bytes:
        return Shrunk(old, before, before)
    if not check:
        return Shrunk(made, before, after, unchecked="it was not asked for")
    stage("check")
    try:
        found = _compared(module.source, made, options)
    except DeepxGraphError as e:
        return Shrunk(made, before, after, unchecked=e.diagnostics[0].message)
    shrunk = Shrunk(made, before, after, found)
    return shrunk if shrunk.agrees else Shrunk(old, before, before, found)


def _written(module: Module) -> bytes:
    stage("merge")
    module = merged(module)
    stage("write")
    return encoded(module, "onnx")


def _size(data: bytes | memoryview) -> ModelSize:
    model = original(Source("<model>", data=memoryview(data)))
    assert model is not None and model.graph is not None
    every = [*model.graph.nodes, *(n for f in model.functions for n in f.nodes)]
    names = Counter(n.op_type for n in nodes_within(every))
    return ModelSize(names.total(), len(data), names)


def _compared(source: Source, made: bytes, options: ReadOptions) -> tuple[Comparison, ...]:
    """The results of both models on the same random inputs. Raises UsageError where the sizes of inputs are not known."""
    plain = replace(options, operators="lowered")
    first = loads(source, "onnx", plain).module
    second = loads(Source(source.name, data=memoryview(made), folder=source.folder), "onnx", plain).module
    return tuple(compared_runs(first, second))
