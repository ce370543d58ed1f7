"""`opaque`: an operation that a text holds and this package does not know. It is drawn and printed; running it is an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepx_graph.errors import RunError
from deepx_graph.ir import Attr, Op, Operand, Result, examples
from deepx_graph.ir.constraint import VALUE
from deepx_graph.types import Type


def _complaint(name: str) -> str:
    if name == "constant":
        return "the text leaves out the values of this constant: print it with large constants, as_hlo_text(True) in JAX"
    return f"'{name}' cannot be run: deepx_graph shows this operation and does not interpret it"


def _refuse(xs: Sequence[Any], name: str, attributes: str, type: Type, language: str) -> Any:
    raise RunError(_complaint(name))


opaque: Op = Op(
    "opaque", "An operation kept as the text has it.", operands=(Operand("inputs", variadic=True),),
    attrs=(Attr("name", "str"), Attr("attributes", "str", "", "as they stand in the text"), Attr("type", "type"),
           Attr("language", "str", "", "of the text")),
    infer=lambda types, name, attributes, type, language: type, eval=_refuse, foldable=False,
    ready=lambda world, name, *_: _complaint(name),
    example=examples.UNKNOWN, results=(Result(type=VALUE),), source="unknown operations of any text",
)  # fmt: skip
