"""The JSON of torch.export as plain data: programs, graphs, nodes and what their arguments are.

Source: torch/_export/serde/schema.py.

Schema 1 (torch 2.1) to 8 (torch 2.13): fields that are not known are passed over, as minor versions add some; what differs between
major versions is told apart by the fields themselves. Problems are raised as InferError; the caller adds the place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deepx_graph.errors import InferError, LimitError
from deepx_graph.text.common.cursor import deeper
from deepx_graph.text.torch.tensors import (
    TensorMeta,
    dtype_of,
    number,
    real,
    rows,
    table,
    tensor_meta,
    text,
    union,
    whole,
)
from deepx_graph.types import Dim

NEWEST = 8
"""The newest major version of the schema."""

Value = Any
"""An argument: None, a number, text, an element type, a Name, a NestedGraph, or a tuple of such."""


@dataclass(frozen=True)
class Name:
    """What a node gives, or an input of the graph."""

    text: str
    size: bool = False
    """Whether it is a number and no tensor: a size, a bool or a float that a symbol stands for."""


@dataclass(frozen=True)
class NestedGraph:
    """A graph that is an argument of a node."""

    name: str
    graph: ExportedGraph


@dataclass(eq=False)
class ExportedNode:
    """A call of an operator."""

    target: str
    arguments: tuple[tuple[str, bool, Value], ...]
    """Name in the operator's signature, whether it is given by name, and value."""
    outputs: tuple[Value, ...]
    metadata: Mapping[str, str]
    at: tuple[int, int] = (0, 0)
    """Where it stands in the listing."""

    @property
    def operator(self) -> str:
        """The operator without the namespace that all have: `aten.add.Tensor`."""
        return self.target.removeprefix("torch.ops.")

    @property
    def kind(self) -> str:
        """The operator without its namespace and overload: `add` of `aten.add.Tensor`."""
        return self.operator.partition(".")[2].partition(".")[0] or self.operator

    @property
    def name(self) -> str:
        """What it gives first."""
        return next((n.text for n in names_in(self.outputs)), self.operator)


@dataclass(eq=False)
class ExportedGraph:
    """Nodes in the order of their execution, and the types of all that they give."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[ExportedNode, ...]
    tensors: Mapping[str, TensorMeta]
    sizes: Mapping[str, Dim | None]
    """What numbers are in terms of sizes, by name; None for what is neither a sum nor a product of them."""


@dataclass(frozen=True)
class Binding:
    """What an input of the graph is, or one of its outputs: its kind in the words of the schema, the value, the name outside."""

    kind: str
    value: Value
    target: str = ""


@dataclass(frozen=True)
class ExportedProgram:
    """A graph, what its inputs and outputs are, and how results are nested."""

    graph: ExportedGraph
    inputs: tuple[Binding, ...]
    outputs: tuple[Binding, ...]
    out_spec: str = ""
    torch: str = ""
    constants: Mapping[str, str] = field(default_factory=dict)
    """Of version 1: files of `torch.save` in base 64, by the names that stand for what is in them."""


def names_in(value: Value) -> list[Name]:
    """The names in arguments, one after the other."""
    if isinstance(value, tuple):
        return [n for v in value for n in names_in(v)]
    return [value] if isinstance(value, Name) else []


# --- arguments ------------------------------------------------------------------------------------------------------


def _named(value: Any) -> Name:
    return Name(text(table(value, "a tensor").get("name"), "the name of a tensor"))


def _symbolic(value: Any) -> Value:
    """A number, or the name of one."""
    if not isinstance(value, dict):
        return value
    kind, found = union(value, "a symbolic number")
    return Name(text(found, "a name"), True) if kind == "as_name" else found


class ArgumentReader:
    """Reads arguments, with bounds on nesting and on how many nodes there are."""

    def __init__(self, max_nodes: int, max_depth: int) -> None:
        self.left, self.max_nodes, self.max_depth, self.depth = max_nodes, max_nodes, max_depth, 0

    def value(self, told: Any) -> Value:
        """An argument as plain data. Raises InferError, LimitError."""
        kind, found = union(told, "an argument")
        match kind:
            case "as_none":
                return None
            case "as_tensor":
                return _named(found)
            case "as_tensors":
                return tuple(map(_named, rows(found, kind)))
            case "as_optional_tensor":
                return self._optional(found)
            case "as_optional_tensors":
                return tuple(map(self._optional, rows(found, kind)))
            case "as_nested_tensors":
                return tuple(tuple(map(_named, rows(r, kind))) for r in rows(found, kind))
            case "as_int" | "as_bool" | "as_string" | "as_operator":
                return found
            case "as_float":
                return real(found)
            case "as_ints" | "as_bools" | "as_strings":
                return tuple(rows(found, kind))
            case "as_int_lists":
                return tuple(tuple(rows(r, kind)) for r in rows(found, kind))
            case "as_floats":
                return tuple(map(real, rows(found, kind)))
            case "as_sym_int" | "as_sym_bool" | "as_sym_float":
                return _symbolic(found)
            case "as_sym_ints" | "as_sym_bools" | "as_sym_floats":
                return tuple(map(_symbolic, rows(found, kind)))
            case "as_scalar_type":
                return dtype_of(found)
            case "as_memory_format" | "as_layout" | "as_device":
                return None  # where and how elements are stored changes no value
            case "as_complex":
                return complex(real(found.get("real")), real(found.get("imag")))
            case "as_graph":
                return self._nested(table(found, "a graph"))
        raise InferError(f"an argument of the kind '{kind:.40}'", expected="tensors, numbers, text or graphs")

    def _optional(self, told: Any) -> Value:
        kind, found = union(told, "an optional tensor")
        if kind != "as_tensor":
            return None
        return Name(found) if isinstance(found, str) else _named(found)  # version 1 has the bare name

    def _nested(self, told: dict[str, Any]) -> NestedGraph:
        self.depth = deeper(self.depth, self.max_depth)
        try:
            return NestedGraph(text(told.get("name"), "the name of a graph"), self.graph(told.get("graph")))
        finally:
            self.depth -= 1

    # --- graphs

    def node(self, told: Any) -> ExportedNode:
        """A call. Raises InferError, with the operator."""
        fields = table(told, "a node")
        target = fields.get("target")
        target = text(target.get("name") if isinstance(target, dict) else target, "the operator of a node")
        self.left -= 1
        if self.left < 0:
            raise LimitError(f"more than {self.max_nodes} nodes")
        try:
            arguments = []
            for row in (table(r, "an argument") for r in rows(fields.get("inputs"), "the arguments")):
                name = text(row.get("name", ""), "the name of an argument")
                by_name = row["kind"] == 2 if "kind" in row else name in BY_NAME
                arguments.append((name, by_name, self.value(row.get("arg"))))
            outputs = tuple(self.value(o) for o in rows(fields.get("outputs"), "the results"))
        except InferError as e:
            raise InferError(f"{target:.60}: {e.message}", expected=e.expected, hint=e.hint) from None
        metadata = {k: v for k, v in table(fields.get("metadata") or {}, "metadata").items() if isinstance(v, str)}
        return ExportedNode(target, tuple(arguments), outputs, metadata)

    def graph(self, told: Any) -> ExportedGraph:
        """A graph with its nodes."""
        fields = table(told, "the graph")
        tensors = {k: tensor_meta(v, f"'{k:.60}'") for k, v in table(fields.get("tensor_values"), "tensor_values").items()}
        sizes = {k: number(v) for k, v in table(fields.get("sym_int_values") or {}, "sym_int_values").items()}
        return ExportedGraph(tuple(self.value(i) for i in rows(fields.get("inputs"), "the inputs")),
                             tuple(self.value(o) for o in rows(fields.get("outputs"), "the outputs")),
                             tuple(self.node(n) for n in rows(fields.get("nodes"), "the nodes")), tensors, sizes)


# --- programs -------------------------------------------------------------------------------------------------------


def program(told: Any, max_nodes: int, max_depth: int) -> ExportedProgram:
    """The program that the JSON of a file says. Raises InferError, LimitError."""
    fields = table(told, "the program")
    version = fields.get("schema_version")
    major = version.get("major") if isinstance(version, dict) else version if version is not None else 1
    if not 1 <= whole(major, "the version of the schema") <= NEWEST:
        raise InferError(f"the schema has the version {major}", expected=f"1 to {NEWEST}",
                         hint="write the program with a torch whose files are known here, 2.1 to 2.13")
    module = table(fields.get("graph_module"), "graph_module")
    graph = ArgumentReader(max_nodes, max_depth).graph(module.get("graph"))
    signature = table(module.get("signature"), "the signature")
    inputs, outputs = _bindings(signature) if "input_specs" in signature else _first_bindings(signature, graph)
    constants = table(table(module.get("graph"), "the graph").get("constants") or {}, "constants")
    return ExportedProgram(graph, inputs, outputs, _out_spec(module), str(fields.get("torch_version") or ""),
                           {k: text(v, f"the constant '{k:.60}'") for k, v in constants.items()})


def _out_spec(module: dict[str, Any]) -> str:
    """How results are nested: of the call of the whole module."""
    calls = module.get("module_call_graph")
    first = calls[0] if isinstance(calls, list) and calls else {}
    spec = (first.get("signature") if isinstance(first, dict) else None) or module.get("call_spec") or {}
    found = spec.get("out_spec") if isinstance(spec, dict) else None
    return found if isinstance(found, str) else ""


BY_NAME = frozenset(("dtype", "layout", "device", "pin_memory", "memory_format", "generator"))
"""Arguments that are never found by their number, of files that do not say which are given by name (torch 2.7 and earlier)."""

_TARGETS = ("parameter_name", "buffer_name", "tensor_constant_name", "custom_obj_name", "user_input_name", "name")


def _bindings(signature: dict[str, Any]) -> tuple[tuple[Binding, ...], tuple[Binding, ...]]:
    """Inputs and outputs one by one, as version 3 and later have them."""
    reader = ArgumentReader(0, 0)
    found: list[tuple[Binding, ...]] = []
    for side in ("input_specs", "output_specs"):
        bindings = []
        for kind, told in (union(s, side) for s in rows(signature.get(side), side)):
            fields = table(told, kind)
            target = next((fields[t] for t in _TARGETS if isinstance(fields.get(t), str)), "")
            value = fields.get("arg")
            wrapped = isinstance(value, dict) and any(k.startswith("as_") for k in value)
            bindings.append(Binding(kind, reader.value(value) if wrapped else _named(value) if value is not None else None, target))
        found.append(tuple(bindings))
    return found[0], found[1]


def _first_bindings(signature: dict[str, Any], graph: ExportedGraph) -> tuple[tuple[Binding, ...], tuple[Binding, ...]]:
    """Inputs and outputs by tables of names, as the first versions have them."""
    parameters, buffers, mutated = (table(signature.get(k) or {}, k) for k in (
        "inputs_to_parameters", "inputs_to_buffers", "buffers_to_mutate"))
    inputs = []
    for value in graph.inputs:
        name = value.text if isinstance(value, Name) else ""
        kind = "parameter" if name in parameters else "buffer" if name in buffers else "user_input"
        inputs.append(Binding(kind, value, str(parameters.get(name) or buffers.get(name) or "")))
    outputs = []
    for value in graph.outputs:
        name = value.text if isinstance(value, Name) else ""
        outputs.append(Binding("buffer_mutation", value, str(mutated[name])) if name in mutated else Binding("user_output", value))
    return tuple(inputs), tuple(outputs)
