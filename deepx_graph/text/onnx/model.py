"""A whole ONNX model being lowered: its inputs, weights and operator sets; its graph becomes the one function of the module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepx_graph.errors import Diagnostic, InferError, ParseError, Place, Source, Span, VerifyError
from deepx_graph.ir import Builder, Function, Module, Node, Origin
from deepx_graph.ops.known import KnownValues
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.onnx.keep import KeptOperators
from deepx_graph.text.onnx.lower import OnnxGraphLowering
from deepx_graph.text.onnx.messages import model_in
from deepx_graph.text.onnx.schema import TypeProto, ValueInfoProto
from deepx_graph.text.onnx.scope import UNKNOWN, domain_of, versions
from deepx_graph.text.onnx.values import DTYPES, literal, tensor_type
from deepx_graph.types import ANY, TensorType, TupleType, Type

NEWEST = 28
"""The newest version of the operator set that the rules know."""

FACTORS = ("Mul", "Div")
"""Operators that take an element as a factor of others."""


class OnnxLowering:
    """One model being lowered. Raises VerifyError or ParseError at the node that is wrong."""

    def __init__(self, source: Source, options: ReadOptions) -> None:
        self.source, self.options = source, options
        self.model = model_in(source, options)
        self.warnings: list[Diagnostic] = []
        self.symbols: dict[str, str] = {}
        self.left = options.max_nodes
        self.draws = 0
        self.functions = {(domain_of(f.domain), f.name, f.overload): f for f in self.model.functions}
        if self.model.graph is None:
            raise self.fail(0, "the model has no graph")
        self.graph = self.model.graph
        self.opsets = versions(self.model.opsets) or {"": 1}
        if self.opsets.get("", 0) > NEWEST:
            self.warn(0, f"the model uses operator set {self.opsets['']}; operators are read as of {NEWEST}")
        for training in self.model.training:
            self.warn(training.at, "how the model is trained is kept, where what it names is still there, and not run")

    def __reduce__(self) -> tuple[Any, ...]:
        return OnnxLowering, (self.source, self.options), {"draws": self.draws, "symbols": self.symbols}

    def next_draw(self) -> int:
        """The number of the next operation that draws random numbers."""
        self.draws += 1
        return self.draws - 1

    def span(self, at: int, label: str = "") -> Span:
        return Span(self.source, at, at + 1, Place(label=label) if label else None)

    def fail(self, at: int, message: str, expected: str | None = None, hint: str | None = None) -> ParseError:
        return ParseError(Diagnostic(message, self.span(at), expected=expected, hint=hint))

    def warn(self, at: int, message: str) -> None:
        self.warnings.append(Diagnostic(message, self.span(at), severity="warning"))

    def module(self) -> Module:
        """The module: its one function is the graph."""
        keeps = self.options.operators == "kept"
        b, known = Builder(intern=keeps, origin=Origin("", (self.span(self.graph.at),))), KnownValues()
        kept = KeptOperators(self.graph, self.opsets, known) if keeps else None
        lowering = OnnxGraphLowering(self, b, known, self.opsets, kept=kept)
        try:
            params = self._params(b, lowering)
            results = lowering.run(self.graph, lowering.scope)
        except InferError as e:
            raise VerifyError(e.diagnostic(self.span(self.graph.at))) from None
        names = tuple(o.name for o in self.graph.outputs)
        made = tuple(lowering.node_of(r) if kept is None else kept.value(r) for r in results)
        self._compare_types(made)
        name = "".join(c if c.isalnum() and c.isascii() else "_" for c in self.graph.name).strip("_") or "main"
        entry = Function(name, tuple(params), made, names, span=self.span(self.graph.at))
        return Module((entry,), name, source=self.source, format="onnx")

    def _compare_types(self, results: Sequence[Node]) -> None:
        """Warns of results whose elements are of another type than the model declares: some runtimes refuse it."""
        for info, result in zip(self.graph.outputs, results, strict=True):
            declared = DTYPES.get(info.type.tensor.dtype) if info.type and info.type.tensor else None
            if declared is None or not isinstance(result.type, TensorType) or result.type.dtype in (ANY, declared):
                continue
            self.warn(info.at, f"'{info.name}' is declared as {declared}, and its elements are {result.type.dtype}")

    def _params(self, b: Builder, lowering: OnnxGraphLowering) -> list[Node]:
        """The inputs of the graph, without those that are initialised; and these where weights are inputs.

        Integers and scalars stay constants: sizes, axes, bounds and factors, of which the program is made. So does a single
        element that only multiplies or divides, as exporters write factors.
        """
        weights = {w.name: w for w in self.graph.initializers}
        params: list[Node] = []
        for info in self.graph.inputs:
            if info.name in weights:
                continue
            b.origin = Origin("", (self.span(info.at),))
            params.append(b.param(len(params), self.type_of(info), info.name))
            lowering.scope.define(info.name, None if self.options.lengths.get(info.name, 0) < 0 else params[-1])
        if self.options.weights == "inputs":
            others = {name for n in self.graph.nodes if n.op_type not in FACTORS for name in n.inputs}
            factors = {name for n in self.graph.nodes if n.op_type in FACTORS for name in n.inputs} - others
            for w in weights.values():
                value = literal(w, self.source, self.options.max_file_bytes)
                if isinstance(value.type, TensorType) and (value.type.dtype.is_integer or value.type.dims == ()
                                                           or (value.type.dims == (1,) and w.name in factors)):
                    continue
                b.origin = Origin("", (self.span(w.at),))
                params.append(b.param(len(params), value.type, w.name))
                lowering.scope.define(w.name, params[-1])
        return params

    def type_of(self, info: ValueInfoProto) -> Type:
        """The type of an input. Raises ParseError for what no input can be."""
        try:
            return self._type(info.type, info.name)
        except InferError as e:
            raise ParseError(e.diagnostic(self.span(info.at), f"'{info.name}': ")) from None

    def _type(self, type: TypeProto | None, name: str, item: str = "") -> Type:
        if self.options.lengths.get(name, 0) < 0:
            return TupleType(())
        if type is None:
            return UNKNOWN
        if type.optional is not None:
            return self._type(type.optional.item, name)
        if type.tensor is not None:
            return tensor_type(type.tensor, name, self.symbols, item)
        if type.sequence is not None:
            count = self.options.lengths.get(name)
            if count is None:
                raise InferError("how many items the sequence has is not known", hint=f"say it: lengths={{'{name}': 3}} of load")
            return TupleType(tuple(self._type(type.sequence.item, f"{name}_{k}", f"{name}_{k}") for k in range(count)))
        return UNKNOWN
