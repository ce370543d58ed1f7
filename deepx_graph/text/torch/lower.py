"""Programs of torch.export to modules: the graph becomes one function, graphs within it part of it.

Programs that are not functional are made so: what is written in place becomes a new value of the name, of the tensor that it is a
view of, and of the other views of that one (`aliases.py`). What waits for sizes or values of the inputs is `deferred`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from deepx_graph.errors import Diagnostic, InferError, Source, Span, VerifyError
from deepx_graph.ir import Builder, Function, Module, Node, Origin
from deepx_graph.ops.known import KnownValues, NotKnown
from deepx_graph.text.common.modules import place_of
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.torch.calls import CallLowering, meta_of
from deepx_graph.text.torch.context import SymbolicNumber
from deepx_graph.text.torch.listing import ProgramListing, module_path, result_names
from deepx_graph.text.torch.schema import Binding, ExportedNode, ExportedProgram, Name, NestedGraph
from deepx_graph.text.torch.weights import StoredTensors
from deepx_graph.types import F32, I64, Type, scalar, tensor

WEIGHTS = ("parameter", "buffer", "tensor_constant")
"""Kinds of inputs whose values are in the archive."""


def _lowering_again(source: Source, options: ReadOptions) -> ProgramLowering:
    """A pickled lowering in this process."""
    found: ProgramLowering = import_module("deepx_graph.text.torch.program").lowering_of(source, options)
    return found


class ProgramLowering:
    """One program being lowered. Raises VerifyError or ParseError at the node that is wrong."""

    def __init__(self, name: str, program: ExportedProgram, stored: StoredTensors, options: ReadOptions) -> None:
        self.program, self.stored, self.options = program, stored, options
        listing = ProgramListing()
        listing.graph("forward", program.graph)
        self.source: Source = listing.source(name)
        self.warnings: list[Diagnostic] = []
        self.draws = 0

    def __reduce__(self) -> tuple[Any, ...]:
        archive = self.stored.archive
        return _lowering_again, (Source(archive.name, data=archive.data), self.options), {"draws": self.draws}

    def next_draw(self) -> int:
        """The number of the next operation that draws random numbers."""
        self.draws += 1
        return self.draws - 1

    def span(self, node: ExportedNode) -> Span:
        modules = module_path(node.metadata.get("nn_module_stack", ""))
        place = place_of(node.metadata.get("stack_trace", ""), modules, node.name, node.kind)
        return Span(self.source, *node.at, place)

    def module(self) -> Module:
        """The module: its one function is the graph."""
        b = Builder(origin=Origin("", (Span(self.source, 0, self.source.text.find("\n")),)))
        lowering = CallLowering(self, b, KnownValues())
        weights: list[tuple[Binding, Node]] = []
        try:
            params = self._params(b, lowering, weights)
            lowering.run(self.program.graph)
            names, results = self._results(lowering, weights)
        except NotKnown as e:
            raise VerifyError(e.diagnostic(b.origin.span)) from None
        except InferError as e:
            raise VerifyError(e.diagnostic(b.origin.span)) from None
        entry = Function("forward", tuple(params), tuple(results), names, span=b.origin.span)
        return Module((entry,), "forward", source=self.source, format="torch")

    def _params(self, b: Builder, lowering: CallLowering, weights: list[tuple[Binding, Node]]) -> list[Node]:
        """The inputs of the user, then the weights where these are inputs."""
        bindings = self.program.inputs
        graph = self.program.graph
        params: list[Node] = []
        for binding in (i for i in bindings if i.kind == "user_input" and isinstance(i.value, Name)):
            name: Name = binding.value
            type: Type = scalar(I64) if name.size else meta_of(graph, name).type
            params.append(b.param(len(params), type, name.text))
            lowering.values[name.text] = SymbolicNumber(params[-1], graph.sizes.get(name.text)) if name.size else params[-1]
        for binding in (i for i in bindings if i.kind in WEIGHTS):
            value = self.stored[binding.target]
            before = b.origin
            b.origin = Origin(binding.target, before.spans)
            if value.type != meta_of(graph, binding.value).type:
                raise InferError(f"'{binding.target}' is {value.type}", expected=str(meta_of(graph, binding.value).type))
            if self.options.weights == "inputs":
                params.append(b.param(len(params), value.type, binding.target))
                made = params[-1]
            else:
                made = b.literal(value)
            b.origin = before
            weights.append((binding, made))
            lowering.values[binding.value.text] = made
        for constant in self.program.constants:
            b.origin = Origin(constant, b.origin.spans)
            lowering.values[constant] = b.literal(self.stored[constant])
        for token in (i.value for i in bindings if i.kind == "token"):
            if isinstance(token, Name):
                lowering.values[token.text] = b.splat(0, tensor(F32, (0,)))
        unknown = next((i for i in bindings if i.kind not in (*WEIGHTS, "user_input", "constant_input", "token")), None)
        if unknown is not None:
            raise InferError(
                f"the input '{unknown.target}' is a {unknown.kind}",
                expected="tensors and numbers",
                hint="export the module without objects of classes of its own",
            )
        return params

    def _results(self, lowering: CallLowering, weights: Sequence[tuple[Binding, Node]]) -> tuple[tuple[str, ...], list[Node]]:
        """What the user gets, then gradients, then the new values of buffers and inputs that are written to."""
        outputs = [o for o in self.program.outputs if o.kind != "token"]
        own = [o for o in outputs if o.kind in ("user_output", "loss_output")]
        found: dict[str, Node] = {}

        def put(name: str, value: Node) -> None:
            base, k = name or "result", 1
            while name in found or not name:
                name, k = f"{base}_{k}", k + 1
            found[name] = value

        for name, output in zip(result_names([o.value for o in own], self.program.out_spec), own, strict=True):
            if not isinstance(output.value, NestedGraph) and output.value is not None:
                put(name, lowering.node_of(lowering.resolved(output.value)))
        told: set[str] = set()
        for output in outputs:
            if output.kind.startswith("gradient_to"):
                put(f"grad.{output.target}", lowering.node_of(lowering.resolved(output.value)))
            elif output.kind.endswith("mutation"):
                told.add(output.target)
                put(output.target, lowering.node_of(lowering.resolved(output.value)))
        inputs = [(i, None) for i in self.program.inputs if i.kind == "user_input"]
        for binding, _ in (*weights, *inputs):
            name = binding.target or (binding.value.text if isinstance(binding.value, Name) else "")
            if isinstance(binding.value, Name) and binding.value.text in lowering.aliases.written and name not in told:
                put(name, lowering.node_of(lowering.resolved(binding.value)))
        return tuple(found), list(found.values())
