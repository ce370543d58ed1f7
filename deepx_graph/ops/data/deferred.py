"""`deferred`: an operation whose lowering waits for types or values of its operands that only the inputs of a run tell.

Specialising a module to its inputs replaces it by what it then means (`rewrite/specialise.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deepx_graph.errors import RunError
from deepx_graph.ir import Attr, Builder, Node, Op, Operand, Result
from deepx_graph.ir.constraint import VALUE
from deepx_graph.types import Type

Lowering = Callable[[Builder, Sequence[Node], Callable[[Node], Any]], Node]
"""`lowering(b, operands, known)`: the node that it means, built by `b`; `known(node)` is the value of a node, or None.

Raises InferError for what still is not known.
"""


def lowering_of(node: Node) -> Lowering | None:
    """How a deferred operation is lowered; None for any other node, and for one whose reader is not there."""
    return node.attr("lowering") if node.op is deferred else None


def _refuse(xs: Sequence[Any], name: str, attributes: str, type: Type, language: str, lowering: Any) -> Any:
    raise RunError(f"'{name}' waits for the inputs of the program")


deferred: Op = Op(
    "deferred", "An operation whose lowering waits until types or values of its operands are known.",
    operands=(Operand("inputs", variadic=True),),
    attrs=(Attr("name", "str"), Attr("attributes", "str", "", "as the text has them"), Attr("type", "type"),
           Attr("language", "str", "", "of the text"), Attr("lowering", "transient", None, "how it is lowered, by its reader")),
    infer=lambda types, name, attributes, type, language, lowering: type, eval=_refuse, foldable=False, total=False,
    ready=lambda world, name, *_: f"'{name}' waits for inputs that are not known",
    results=(Result(type=VALUE),), source="operations with shapes, axes or counts as operands",
)  # fmt: skip
