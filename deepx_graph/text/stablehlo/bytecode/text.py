"""Attributes and operations that were read from bytecode as MLIR text, in generic form: for what is kept as it stands."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deepx_graph.text.stablehlo.literals import dense_text, dense_value, type_text
from deepx_graph.text.stablehlo.syntax import (
    Dense,
    DenseArray,
    DialectAttribute,
    EnumWord,
    Noted,
    Operation,
    RegionBlock,
    Struct,
    Symbol,
    Typed,
)
from deepx_graph.text.xla.hlo_text import AttributeFault
from deepx_graph.text.xla.mlir_text import NoText, float_text, string_text
from deepx_graph.types import FunctionType, TensorType, Type

UNIT = EnumWord("unit")
"""The value of an attribute that says something by being there."""
LAYOUTS = frozenset(["operand_layouts", "result_layouts"])
"""The attributes whose constants are of the type `index`, which is i64 elsewhere."""
_BARE = re.compile(r"[A-Za-z_][\w$.]*")


def noted(name: str, value: Any) -> Any:
    """An attribute's value, as text where another dialect gives it its meaning."""
    if "." not in name or value is UNIT or isinstance(value, Noted):
        return value
    return Noted(attribute_text(value))


def attribute_text(value: Any) -> str:
    """The value of an attribute. Raises AttributeFault for a constant that its bytes do not make."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return string_text(value)
        case float():
            return float_text(np.float64(value))
        case Typed():
            number = float_text(value.value) if isinstance(value.value, float) else str(value.value)
            return f"{number} : {_element(value.type)}"
        case EnumWord():
            return f"#stablehlo<{value.kind} {value.text}>" if value.kind else value.text
        case Symbol():
            return f"@{value.name}" if _BARE.fullmatch(value.name.replace("::@", "")) else f"@{string_text(value.name)}"
        case Noted():
            return value.text
        case DialectAttribute():
            return f"#{value.kind}{value.form}"
        case Dense():
            return _dense(value)
        case Type():
            return _type(value)
        case Struct():
            return f"#stablehlo.{value.kind}<{', '.join(f'{k} = {attribute_text(v)}' for k, v in _said(value))}>"
        case DenseArray():
            words = ", ".join(map(attribute_text, value))
            return f"array<{value.element}{': ' if words else ''}{words}>"
        case list():
            return f"[{', '.join(map(attribute_text, value))}]"
        case dict():
            return f"{{{_entries(value)}}}"
        case _:
            return str(value)


def _said(value: Struct) -> list[tuple[str, Any]]:
    """Fields as text has them: none that says nothing, but in an alias, whose fields MLIR reads one after the other."""
    return [(k, v) for k, v in value.items() if (v is not None and v != []) or value.kind == "output_operand_alias"]


def _entries(value: Mapping[str, Any]) -> str:
    """`name = value, ...`, in the order of the names."""
    names = {k: k if _BARE.fullmatch(k) else string_text(k) for k in sorted(value)}
    return ", ".join(word if value[k] is UNIT else f"{word} = {_entry(k, value[k])}" for k, word in names.items())


def _entry(name: str, value: Any) -> str:
    text = attribute_text(value)
    return text.replace("xi64>", "xindex>") if name in LAYOUTS else text


def _dense(value: Dense) -> str:
    if not isinstance(value.type, TensorType) or not value.type.is_static:
        raise AttributeFault(f"a constant of type {value.type}", "a tensor of known sizes")
    return f"{dense_text(dense_value(value, value.type))} : {_type(value.type)}"


def _element(type: Type) -> str:
    return _type(type).removeprefix("tensor<").removesuffix(">")


def _type(type: Type) -> str:
    if isinstance(type, FunctionType):
        return f"({', '.join(map(_type, type.params))}) -> ({', '.join(map(_type, type.results))})"
    try:
        return type_text(type)
    except NoText:
        return str(type)


def operation_text(op: Operation) -> str:
    """An operation in generic form; a mesh, and a function without a body, as they are usually written."""
    symbol = op.extra.get("symbol")
    if op.name == "sdy.mesh":
        return f"sdy.mesh {attribute_text(Symbol(symbol or ''))} = {op.extra.get('form', '')}"
    if op.name == "func.func" and not op.regions:
        types = f"({', '.join(map(_type, op.operand_types))}) -> ({', '.join(map(_type, op.result_types))})"
        return f"func.func private {attribute_text(Symbol(symbol or ''))}{types.removesuffix(' -> ()')}"
    regions = ", ".join(f"{{{''.join(map(_block, region))}}}" for region in op.regions)
    names = [name for name, _ in op.operands]
    given = [_type(t) for t in op.operand_types]
    return (f"{_named(op.results)}{' = ' * bool(op.results)}{string_text(op.name)}({', '.join(names)})"
            f"{f' ({regions})' if regions else ''}{f' {{{_entries(op.attributes)}}}' if op.attributes else ''}"
            f" : ({', '.join(given)}) -> ({', '.join(map(_type, op.result_types))})")


def _named(results: Sequence[str]) -> str:
    """What stands before `=`: `%a`, or `%a:2` for the results `%a#0` and `%a#1`."""
    counts = Counter(name.partition("#")[0] for name in results)
    return ", ".join(name if name in results else f"{name}:{count}" for name, count in counts.items())


def _block(block: RegionBlock) -> str:
    args = ", ".join(f"{a.name}: {_type(a.type)}" for a in block.args)
    return "".join(["\n", f"^bb0({args}):\n" if args else "", *(f"  {operation_text(op)}\n" for op in block.operations)])
