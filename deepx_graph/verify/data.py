"""Nodes over algebraic data types against the declarations of the module: constructors, their fields and the fields' types."""

from __future__ import annotations

from collections.abc import Iterator

from deepx_graph.errors import Diagnostic, InferError, suggest
from deepx_graph.ir import Constructor, Data, Module, Node
from deepx_graph.ops import construct, field, tag
from deepx_graph.types import DataType, Type, VarType, merge_types
from deepx_graph.verify.control import Report
from deepx_graph.verify.describe import problem


def substitute(type: Type, known: dict[str, Type]) -> Type:
    """The type with its variables replaced by what they stand for."""
    if isinstance(type, VarType):
        return known.get(type.name, type)
    return type.map(lambda t: substitute(t, known))


def field_types(data: Data, constructor: Constructor, args: tuple[Type, ...]) -> tuple[Type, ...]:
    """The types of a constructor's fields in the data type applied to `args`."""
    known = dict(zip(data.params, args, strict=False))
    return tuple(substitute(t, known) for t in constructor.fields)


class Datas:
    """Checks nodes against the declarations of a module."""

    def __init__(self, module: Module, report: Report) -> None:
        self.known = {d.name: d for d in module.datas}
        self.report = report
        self._check_declarations(module)

    def _check_declarations(self, module: Module) -> None:
        met: set[str] = set()
        for data in module.datas:
            for name in (data.name, *(c.name for c in data.constructors)):
                if name in met:
                    self.report(Diagnostic(f"two data types or constructors are named '{name}'"))
                met.add(name)

    def check(self, node: Node) -> None:
        """Reports what is wrong with a node that makes, asks or takes apart a value of a data type."""
        if node.op is construct:
            self._fields(node, node.attr("constructor"), node.type, list(enumerate(i.type for i in node.inputs)), len(node.inputs))
        elif node.op is field:
            self._fields(node, node.attr("constructor"), node.inputs[0].type, [(node.attr("index"), node.type)], None)
        elif node.op is tag:
            for name in node.attr("cases"):
                self._found(node, name, node.inputs[0].type)

    def _found(self, node: Node, name: str, type: Type) -> tuple[Data, Constructor] | None:
        if not isinstance(type, DataType):
            return None
        data = self.known.get(type.name)
        if data is None:
            self.report(problem(node, f"no data type '{type.name}' is declared", hint=suggest(type.name, self.known)))
            return None
        constructor = data.constructor(name)
        if constructor is None and not data.extern:
            names = [c.name for c in data.constructors]
            self.report(problem(node, f"'{name}' is no constructor of {data.name}", expected=" | ".join(names[:8]),
                                hint=suggest(name, names)))
        return None if constructor is None else (data, constructor)

    def _fields(self, node: Node, name: str, type: Type, given: list[tuple[int, Type]], count: int | None) -> None:
        found = self._found(node, name, type)
        if found is None or not isinstance(type, DataType):
            return
        types = field_types(*found, type.args)
        if count is not None and count != len(types):
            self.report(problem(node, f"{name} has {len(types)} fields and is given {count}"))
            return
        for message in _faults(name, types, given):
            self.report(problem(node, message))


def _faults(name: str, types: tuple[Type, ...], given: list[tuple[int, Type]]) -> Iterator[str]:
    for k, type in given:
        if k >= len(types):
            yield f"{name} has {len(types)} fields and no field {k}"
            continue
        try:
            merge_types(types[k], type)
        except InferError as e:
            yield f"field {k} of {name}: {e.message}"
