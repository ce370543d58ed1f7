"""ONNX models made smaller: read with their operators kept, taken together, written back, and held against the model as it was.

What is written never has more nodes or bytes than the model had; where it would, it is the model as it was. Weights are never
copied, so a model larger than memory takes little of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from deepx_graph.errors import DeepxGraphError, Diagnostic, InferError, Source, UsageError, VerifyError, sized
from deepx_graph.files import write_file
from deepx_graph.ir import Module
from deepx_graph.progress import stage
from deepx_graph.session.agreement import Comparison, compared_runs
from deepx_graph.session.programs import loads
from deepx_graph.text import ReadOptions
from deepx_graph.text.onnx.merge import merged
from deepx_graph.text.onnx.nested import nodes_within
from deepx_graph.text.onnx.printer import files
from deepx_graph.text.onnx.printer.model import model_of, original
from deepx_graph.text.onnx.schema import ModelProto
from deepx_graph.types import TensorType
from deepx_graph.types.symbols import symbols_of


@dataclass(frozen=True)
class ModelSize:
    """How large a model is; nodes within graphs of nodes count too."""

    nodes: int
    bytes: int
    operators: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Shrunk:
    """A model as it is written, its size before and after, and how its results compare on random inputs."""

    model: ModelProto
    before: ModelSize
    after: ModelSize
    results: tuple[Comparison, ...] = ()
    unchecked: str = ""
    """Why the results could not be compared."""
    as_it_was: bytes | memoryview | None = None
    """The file of the model, where that is written."""
    untrained: bool = False
    """Whether how the model is trained is not written, as it names what is no more."""

    @property
    def agrees(self) -> bool:
        return all(r.agrees for r in self.results)

    def save(self, path: str | Path, external: bool = False) -> None:
        """Writes the model; its weights beside it where that is asked for, or they are many. Raises UsageError, RunError."""
        if self.as_it_was is not None and not external:
            write_file(path, bytes(self.as_it_was))
        else:
            files.save(self.model, Path(path), external)

    def encoded(self) -> bytes:
        """The bytes of one file. Raises UsageError for 2 GiB or more."""
        chunks = [self.as_it_was] if self.as_it_was is not None else files.whole(self.model)
        if chunks is None:
            raise UsageError(Diagnostic("the model has 2 GiB or more, which one file cannot hold", hint="-o FILE.onnx"))
        return b"".join(chunks)

    def lines(self) -> list[str]:
        """The report as text."""
        before, after = self.before, self.after
        rows = [f"nodes  {before.nodes} -> {after.nodes}", f"bytes  {before.bytes} -> {after.bytes} ({sized(after.bytes)})"]
        for name in sorted(before.operators | after.operators):
            if before.operators[name] != after.operators[name]:
                rows.append(f"  {name}  {before.operators[name]} -> {after.operators[name]}")
        if self.untrained:
            rows.append("how the model is trained is left out: what it names is no more")
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


@dataclass(frozen=True)
class ShrinkOptions:
    """What becomes of a model: another operator set, notes of exporters for those who debug them, a check by values."""

    opset: int | None = None
    debug: bool = False
    check: bool = True


def shrink(module: Module, options: ReadOptions, wanted: ShrinkOptions | None = None) -> Shrunk:
    """The model of a module whose operators were kept (`ReadOptions.operators`). Raises VerifyError for what cannot be written.

    A model whose results differ by more than rounding allows is written as it was.
    """
    wanted = wanted or ShrinkOptions()
    source = module.source
    assert source is not None and source.data is not None
    old = original(source)
    assert old is not None
    before = _size(old, len(source.data) + files.weight_bytes(old))
    made = _written(module, wanted)
    after = _size(made, _length(made))
    same_file = source.data if not files.weight_bytes(old) else None
    unchanged = Shrunk(files.with_weights(old, source), before, before, as_it_was=same_file)
    if wanted.opset is None and (after.nodes > before.nodes or after.bytes > before.bytes):
        return unchanged
    shrunk = Shrunk(made, before, after, untrained=len(made.training) < len(old.training))
    if not wanted.check or after.bytes > MOST_CHECKED:
        return replace(shrunk, unchecked="it has too many weights" if wanted.check else "it was not asked for")
    stage("check")
    try:
        found = _compared(source, made, options)
    except DeepxGraphError as e:
        return replace(shrunk, unchecked=e.diagnostics[0].message)
    shrunk = replace(shrunk, results=found)
    return shrunk if shrunk.agrees else replace(unchanged, results=found)


MOST_CHECKED = 1 << 30
"""Bytes of a model beyond which both are not run: weights would be read, and packed for products."""


def _written(module: Module, wanted: ShrinkOptions) -> ModelProto:
    stage("merge")
    module = merged(module)
    stage("write")
    try:
        model = model_of(module, wanted.opset)
    except InferError as e:
        raise VerifyError(e.diagnostic(module.entry.span, "onnx: ")) from None
    return model if wanted.debug else files.without_debug(model)


def _length(model: ModelProto) -> int:
    """Bytes of the model and its weights."""
    chunks = files.whole(model)
    if chunks is not None:
        return sum(map(len, chunks))
    split = files.without_weights(model, "weights")
    return sum(map(len, files.whole(split.model) or ())) + sum(len(data) for _, data in split.weights)


def _size(model: ModelProto, length: int) -> ModelSize:
    assert model.graph is not None
    every = [*model.graph.nodes, *(n for f in model.functions for n in f.nodes)]
    names = Counter(n.op_type for n in nodes_within(every))
    return ModelSize(names.total(), length, names)


def _compared(source: Source, made: ModelProto, options: ReadOptions) -> tuple[Comparison, ...]:
    """The results of both models on the same random inputs. Raises what running raises, whatever numbers stand for open sizes."""
    plain = replace(options, operators="lowered")
    first = loads(source, "onnx", plain).module
    data = memoryview(b"".join(files.whole(made) or ()))
    second = loads(Source(source.name, data=data, folder=source.folder), "onnx", plain).module
    refused: list[DeepxGraphError] = []
    for sizes in _sizes(first):
        try:
            return tuple(compared_runs(first, second, sizes=sizes))
        except DeepxGraphError as e:  # other sizes may fit
            refused.append(e)
    raise refused[0]


def _sizes(module: Module) -> Iterator[Mapping[str, int]]:
    """Numbers for the symbols in the types of inputs, that are tried in this order: all different, then equal ones."""
    types = [p.type for p in module.entry.params]
    symbols = list(dict.fromkeys(s for t in types if isinstance(t, TensorType) for d in t.dims or () for s in symbols_of(d)))
    yield {s: k for k, s in enumerate(symbols, 2)}
    yield from (dict.fromkeys(symbols, size) for size in (SIZES if symbols else ()))


SIZES = (2, 16, 64, 1)
"""For symbols that stand for batches, lengths, or sides of pictures that are halved a few times."""
