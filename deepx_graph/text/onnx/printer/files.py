"""Models as files: whole, or with their weights in a file beside them (`external data`), which is written piece by piece.

Source: onnx/docs/ExternalData.md; weights begin at pages, so that readers can map them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from deepx_graph.errors import Source, UsageError
from deepx_graph.files import replacing, write_pieces
from deepx_graph.text.common.protobuf_writer import Chunks, encode
from deepx_graph.text.onnx.nested import graphs_of
from deepx_graph.text.onnx.schema import (
    SCHEMA,
    Bytes,
    GraphProto,
    ModelProto,
    NodeProto,
    StringStringEntry,
    TensorProto,
    ValueInfoProto,
)
from deepx_graph.text.onnx.values import external_bytes

PAGE = 4096
"""Where weights begin, in bytes; smaller ones stay in the model."""


@dataclass(frozen=True)
class SplitModel:
    """A model without its large weights, and these with where each begins."""

    model: ModelProto
    weights: tuple[tuple[int, Bytes], ...]


def save(model: ModelProto, path: Path, external: bool = False) -> None:
    """Writes a model; its weights into `NAME.data` beside it where that is asked for, or the file would have 2 GiB or more.

    Raises UsageError where the files cannot be written, RunError when writing fails.
    """
    chunks = None if external else whole(model)
    if chunks is None:
        split = without_weights(model, f"{path.name}.data")
        if split.weights:
            with replacing(path.with_name(f"{path.name}.data")) as stream:
                end = 0
                for start, data in split.weights:
                    stream.write(bytes(start - end))
                    write_pieces(stream, np.frombuffer(data, np.uint8))
                    end = start + len(data)
        chunks = whole(split.model)
        if chunks is None:
            raise UsageError("ONNX: the model has 2 GiB or more beside its weights")
    with replacing(path) as stream:
        stream.writelines(chunks)


def whole(model: ModelProto) -> Chunks | None:
    """The bytes of a model as one file; None where that would have 2 GiB or more."""
    try:
        return encode(model, SCHEMA)
    except ValueError:
        return None


def without_weights(model: ModelProto, place: str) -> SplitModel:
    """The model whose large weights are in the file `place`."""
    graph = model.graph or GraphProto()
    weights: list[tuple[int, Bytes]] = []
    made, end = [], 0
    for w in graph.initializers:
        if w.raw is None or len(w.raw) < PAGE:
            made.append(w)
            continue
        start = -(-end // PAGE) * PAGE
        end = start + len(w.raw)
        weights.append((start, w.raw))
        told = {"location": place, "offset": str(start), "length": str(len(w.raw))}
        made.append(replace(w, raw=None, location=1, external=[StringStringEntry(k, v) for k, v in told.items()]))
    return SplitModel(replace(model, graph=replace(graph, initializers=made)), tuple(weights))


def with_weights(model: ModelProto, source: Source) -> ModelProto:
    """The model with the weights of other files as views of these. Raises InferError for files that are not there."""
    graph = model.graph or GraphProto()

    def here(w: TensorProto) -> TensorProto:
        return w if w.location != 1 else replace(w, raw=external_bytes(w, source), location=0, external=[])

    return replace(model, graph=replace(graph, initializers=[here(w) for w in graph.initializers]))


def weight_bytes(model: ModelProto) -> int:
    """Bytes of weights that are in other files, as the model tells them."""
    told = (e.value for w in (model.graph or GraphProto()).initializers for e in w.external if e.key == "length")
    return sum(int(value) for value in told if value.isdigit())


# --- what exporters note for those who debug them --------------------------------------------------------------------

_DEBUG = ("pkg.", "namespace")
"""How the keys of such notes begin: stack traces, scopes, the node of the exporter's own graph."""


def without_debug(model: ModelProto) -> ModelProto:
    """The model without such notes of its nodes and values. Its own metadata, names and documentation stay."""
    return replace(model, graph=None if model.graph is None else _plain_graph(model.graph))


def _plain_graph(graph: GraphProto) -> GraphProto:
    def told(infos: Iterable[ValueInfoProto]) -> list[ValueInfoProto]:
        return [replace(i, metadata=list(_kept(i.metadata))) for i in infos]

    return replace(graph, nodes=[_plain_node(n) for n in graph.nodes], inputs=told(graph.inputs), outputs=told(graph.outputs),
                   infos=told(graph.infos), metadata=list(_kept(graph.metadata)))


def _plain_node(node: NodeProto) -> NodeProto:
    attributes = node.attributes
    if any(graphs_of(node)):
        attributes = [replace(a, graph=a.graph and _plain_graph(a.graph), graphs=[_plain_graph(g) for g in a.graphs])
                      for a in attributes]
    return replace(node, attributes=attributes, metadata=list(_kept(node.metadata)))


def _kept(metadata: Iterable[StringStringEntry]) -> Iterator[StringStringEntry]:
    return (e for e in metadata if not e.key.startswith(_DEBUG))
