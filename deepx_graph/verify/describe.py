"""How a node is shown when something is wrong with it: one line of text, and a diagnostic that carries it.

Works on malformed nodes too, so it relies on nothing but their fields. Shown text is escaped.
"""

from __future__ import annotations

from deepx_graph.errors import Diagnostic, printable
from deepx_graph.ir import Node
from deepx_graph.types import Type


def describe(node: Node) -> str:
    """The node on one line: `t3 = add(x, y) : f32[2,3]`, with attributes that are short."""
    attrs = [f"{a.name}={v if isinstance(v, Type) else repr(v)}" for a, v in zip(node.op.attrs, node.attrs, strict=False)]
    shown = [_reference(i) for i in node.inputs[:8]] + (["..."] if len(node.inputs) > 8 else [])
    text = ", ".join(shown + [a for a in attrs if len(a) < 80])
    return printable(f"{_reference(node)} = {node.op.name}({text}) : {node.type}")


def _reference(node: Node) -> str:
    return node.reference or f"#{node.serial}"


def problem(node: Node, message: str, expected: str | None = None, hint: str | None = None) -> Diagnostic:
    """A diagnostic at the node, with its printed form and its op's summary as notes."""
    return Diagnostic(f"{node.op.name}: {message}", node.span, expected=expected, hint=hint,
                      notes=(describe(node), f"{node.op.name}: {node.op.summary}"))
