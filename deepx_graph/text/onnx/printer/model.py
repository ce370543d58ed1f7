"""Modules as ONNX models: the messages, and the bytes of a file.

What the model says of itself that a module came from (producer, documentation, metadata, types of its inputs and results) is said
again where it still holds.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from deepx_graph.errors import Diagnostic, Source, UsageError, VerifyError
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.rebuild import copied, inlined, new_item, rebuilt, with_inputs
from deepx_graph.ir.structure import CALL, CONSTANT, LOOP_END, PARAM, PROJ, REGION, TUPLE, callee_of
from deepx_graph.ops.data.deferred import deferred
from deepx_graph.rewrite.legalise import legalise
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.common.protobuf_writer import Chunks, encode
from deepx_graph.text.onnx.messages import FORMS, model_in
from deepx_graph.text.onnx.nested import nodes_within
from deepx_graph.text.onnx.printer.compose import composed
from deepx_graph.text.onnx.printer.graph import GraphWriter, write_branch, write_loop
from deepx_graph.text.onnx.printer.ops import SAY, TARGET
from deepx_graph.text.onnx.printer.values import type_of
from deepx_graph.text.onnx.schema import (
    SCHEMA,
    GraphProto,
    ModelProto,
    OperatorSetId,
    TrainingInfoProto,
    ValueInfoProto,
)
from deepx_graph.text.onnx.scope import versions
from deepx_graph.types import TupleType

OPSET = 18
"""The version of the operator set that is written where nothing else is asked for and the program comes from no later one."""

OPSETS = range(18, 29)
"""The versions that can be asked for."""

IR_VERSIONS = {18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11, 24: 12, 25: 13, 26: 13, 27: 13, 28: 14}
"""The version of the format that came with each."""

PRODUCER = "deepx_graph"


def write(module: Module, *, opset: int | str | None = None) -> bytes:
    """The bytes of the model, in a version of the operator set from 18 to 28.

    Raises VerifyError at the nodes that ONNX cannot express, UsageError for another version, or for one before that of the
    operators that were kept as they were read.
    """
    return b"".join(model_chunks(model_of(module, opset), module.entry))


def model_chunks(model: ModelProto, entry: Function) -> Chunks:
    """The bytes of a model. Raises VerifyError for more than 2 GiB of them."""
    try:
        return encode(model, SCHEMA)
    except ValueError as e:
        raise VerifyError(Diagnostic(f"ONNX: {e} is written, and a file has less than 2 GiB", entry.span,
                                     hint="write it to a file: weights then go beside it")) from None


def original(source: Source | None) -> ModelProto | None:
    """The model that a module was read from; None where it was none."""
    return None if source is None else model_in(source, ReadOptions(max_nodes=1 << 40))


def own_opset(module: Module) -> int:
    """The version of the operator set of the model that a module was read from; 0 where it was none."""
    before = original(module.source) if module.format in FORMS else None
    return 0 if before is None else versions(before.opsets).get("", 1)


def model_of(module: Module, opset: int | str | None = None) -> ModelProto:
    """The model as messages. Raises as `write`."""
    before = original(module.source) if module.format in FORMS else None
    kept = before is not None and all(n.op in _KEPT for f in module.functions for n in f.nodes)
    header = _header(before, kept, opset)
    version = versions(header.opsets).get("", OPSET)
    module = module if kept else legalise(composed(without_calls(module), version), TARGET)
    writer = GraphWriter(module.entry, version, {**SAY, REGION: write_branch, LOOP_END: write_loop})
    graph = writer.graph(partial(_info, before, kept))
    if writer.problems:
        raise VerifyError(*writer.problems)
    if before is not None and before.graph is not None:
        names = {o for n in graph.nodes for o in n.outputs} - {o.name for o in graph.outputs}
        infos = [i for i in before.graph.infos if i.name in names] if kept else []
        there = {*names, *(w.name for w in graph.initializers), *(i.name for i in (*graph.inputs, *graph.outputs))}
        quantizations = [q for q in before.graph.quantizations if {q.name, *(e.value for e in q.tensors)} <= there]
        graph = replace(graph, name=before.graph.name, doc_string=before.graph.doc_string, metadata=before.graph.metadata,
                        infos=infos, quantizations=quantizations)
    training = [t for t in before.training if trains(t, graph, before)] if before is not None and kept else []
    return replace(header, graph=graph, training=training)


def trains(training: TrainingInfoProto, graph: GraphProto, before: ModelProto) -> bool:
    """Whether all that the training of a model names is still in its graph: weights, values and the functions that were opened."""
    there = {o for n in graph.nodes for o in n.outputs} | {w.name for w in graph.initializers} | {i.name for i in graph.inputs}
    functions = {(f.domain, f.name) for f in before.functions}
    for inner in (g for g in (training.initialization, training.algorithm) if g is not None):
        own = {o for n in inner.nodes for o in n.outputs} | {w.name for w in inner.initializers} | {i.name for i in inner.inputs}
        read = {name for n in inner.nodes for name in n.inputs} | {o.name for o in inner.outputs} | {""}
        if not read <= there | own | {""} or any((n.domain, n.op_type) in functions for n in nodes_within(inner.nodes)):
            return False
        there |= {w.name for w in inner.initializers}
    return {e.key for e in (*training.initialized, *training.updated)} <= there


def without_calls(module: Module) -> Module:
    """The entry with the bodies of the functions that it calls. Raises VerifyError for one that calls itself."""

    def opened(function: Function, around: tuple[str, ...]) -> Function:
        def step(node: Node, inputs: tuple[Node, ...]) -> Node:
            if item := new_item(node, inputs):
                return item
            if node.op is not CALL:
                return with_inputs(node, inputs)
            name = callee_of(node)
            if name in around:
                raise VerifyError(Diagnostic(f"ONNX: '{name}' calls itself", node.span,
                                             hint="the pipeline first-order takes tail recursion away"))
            return Builder().pack(*inlined(opened(module[name], (*around, name)), inputs, copied))

        return rebuilt(function, step)

    entry = module.entry
    return module.with_functions([opened(entry, (entry.name,))])


_KEPT = (PARAM, CONSTANT, PROJ, TUPLE, deferred)
"""What a module is made of whose operators were kept."""


def _header(before: ModelProto | None, kept: bool, opset: int | str | None) -> ModelProto:
    """The model without its graph."""
    if opset is not None and (not str(opset).isdigit() or int(opset) not in OPSETS):
        raise UsageError(Diagnostic(f"operator set {opset}", expected=f"{OPSETS[0]} to {OPSETS[-1]}"))
    if kept:
        assert before is not None
        own = versions(before.opsets).get("", 1)
        version = own if opset is None else int(opset)
        if version < own:
            raise UsageError(Diagnostic(f"the operators are those of version {own}, and {opset} is asked for",
                                        hint="read the model with its operators lowered"))
        opsets = [replace(o, version=version) if o.domain in ("", "ai.onnx") else o for o in before.opsets]
        ir_version = max(before.ir_version, IR_VERSIONS[version] if version != own else 4)
        return replace(before, ir_version=ir_version, opsets=opsets or [OperatorSetId("", version)], functions=[])
    own = 0 if before is None else versions(before.opsets).get("", 1)
    version = int(opset) if opset is not None else own if own in OPSETS else OPSET
    plain = ModelProto(IR_VERSIONS[version], PRODUCER, opsets=[OperatorSetId("", version)])
    if before is None:
        return plain
    return replace(plain, domain=before.domain, version=before.version, doc_string=before.doc_string, metadata=before.metadata)


def _info(before: ModelProto | None, kept: bool, node: Node, name: str, outward: bool) -> ValueInfoProto:
    """What is declared of an input or result: as it was, where the model says so and it still is one."""
    graph = (before and before.graph) or GraphProto()
    for info in graph.outputs if outward else graph.inputs:
        if info.name == name and info.type is not None and (kept or info.type.sequence is None or isinstance(node.type, TupleType)):
            return info
    return ValueInfoProto(name, type_of(node.type))
