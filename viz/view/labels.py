"""What a node says of itself: title, attributes, constants among its operands, and the tooltip with its whole story.

Everything is read from the op's declaration, so an op added tomorrow gets a label today. Texts are cut to a length that fits a
box; the tooltip has room for more. Nothing is escaped here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from deepx_graph.analysis.name_scopes import parameter_name, parameter_path
from deepx_graph.analysis.schedule import LoopStep
from deepx_graph.analysis.trip_count import trip_count
from deepx_graph.errors import Span, counted
from deepx_graph.ir import Function, Node, Op
from deepx_graph.ir.structure import CONSTANT, LOOP_BEGIN, branch_count, index_of, value_of
from deepx_graph.literal import Literal
from deepx_graph.ops import FAMILIES
from deepx_graph.types import DType, StateType, TensorType, TupleType, Type

TITLE = 36
"""The longest line in a box; more is cut in the middle."""

EDGE = 24
"""The longest type written on an edge."""

_FAMILY = {op: family for family, ops in FAMILIES.items() for op in ops}


@cache
def family_of(op: Op) -> str:
    """The family that declares the op, layout for one that only looks at its operand otherwise; `other` outside of the table."""
    return "layout" if op.view else _FAMILY.get(op, "elementwise" if op.elementwise else "other")


def short(text: str, limit: int = TITLE) -> str:
    """`text`, its middle left out where it is longer than `limit`."""
    if len(text) <= limit:
        return text
    head = (limit - 1) * 2 // 3
    return f"{text[:head]}…{text[head + 1 - limit:]}"


def short_path(path: Sequence[str], limit: int = TITLE) -> str:
    """The parts joined by slashes; where that is too long without those in the middle, the last two being the telling ones."""
    for kept in ([*path], [path[0], "…", *path[-2:]], ["…", *path[-2:]]):
        text = "/".join(kept)
        if len(text) <= limit:
            return text
    return short("/".join(path[-2:]), limit)


def parameter_title(node: Node) -> str:
    """What a parameter is called: its name, or where that is long the path in it, as far as it fits."""
    name = parameter_name(node)
    path = parameter_path(name)
    if len(path) > 1 and (len(name) > TITLE or "[" in name):
        return short_path(path)
    return short(name) or f"param {index_of(node)}"


@lru_cache(maxsize=65536)
def type_text(type: Type) -> str:
    """The type as written on an edge; nothing for a state, whose colour says it all."""
    if isinstance(type, StateType):
        return ""
    if isinstance(type, TupleType) and len(str(type)) > EDGE:
        return f"tuple of {len(type.items)}"
    return short(str(type), EDGE)


def scalar_text(node: Node) -> str | None:
    """The number that a constant stands for when it can be written into the box that uses it: rank 0 only."""
    if node.op is not CONSTANT or not isinstance(node.type, TensorType) or node.type.dims != ():
        return None
    return number(value_of(node).array[()])


def number(value: Any) -> str:
    """A numpy scalar in few characters: `0.125`, `-inf`, `true`."""
    if isinstance(value, np.bool_):
        return "true" if value else "false"
    if isinstance(value, np.integer):
        return str(int(value))
    if isinstance(value, np.complexfloating):
        return f"{value.real:.4g}{value.imag:+.4g}i"
    return f"{float(value):.6g}"


def constant_text(literal: Literal) -> str:
    """A constant in one line: its one value, its few values, or nothing where there are many."""
    if literal.array.size == 0:
        return "empty"
    if literal.is_splat or literal.array.size <= 4096:  # looking through more would cost more than it tells
        value = literal.splat_value
        if value is not None:
            return f"all {number(value)}" if literal.array.ndim else number(value)
    if literal.array.size <= 4:
        return "[" + ", ".join(number(v) for v in literal.array.reshape(-1)) + "]"
    return ""


def operand_text(inputs: Sequence[Node]) -> str:
    """The operands as a pattern when some are numbers: `(·, 0.125)`; empty when none is."""
    texts = [scalar_text(i) if i.op is CONSTANT else None for i in inputs]
    if texts.count(None) == len(texts):
        return ""
    return "(" + ", ".join("·" if t is None else t for t in texts) + ")"


def op_title(node: Node, inputs: Sequence[Node]) -> str:
    """The op's name, with what its body reduces by, and the numbers among its operands, as seen where the node is drawn."""
    title = node.op.name
    for attr, value in zip(node.op.attrs, node.attrs, strict=True):
        if attr.kind == "function" and value.reducer is not None:
            title += f" {value.reducer.name}"
    return short(title + operand_text(inputs))


def side_name(branch: int, branches: int, is_bool: bool) -> str:
    """What a branch of a region is called: `true`, `false`, `case 2`, `otherwise`."""
    if is_bool:
        return "true" if branch == 0 else "false"
    return f"case {branch}" if branch < branches - 1 else "otherwise"


def selects_by_bool(region: Node) -> bool:
    """The region's selector is a bool (or not known yet) and picks one of two."""
    dtype = getattr(region.inputs[0].type, "dtype", None)
    return branch_count(region) == 2 and not (dtype is not None and dtype.is_integer)


def loop_name(step: LoopStep) -> str:
    """`loop`, or `loop over i, x, 12 iterations` where its variables have names and the number of iterations is known."""
    names = ", ".join(dict.fromkeys(p.name for column in step.phis for p in column if p.name and not p.name.isdigit()))
    times = trip_count(step.node)
    over = f" over {short(names)}" if names else ""
    return f"loop{over}" + (f", {counted(times, 'iteration')}" if times is not None else "")


def attr_texts(node: Node) -> list[str]:
    """The attributes that say something, as `name=value`: not what is plain, nor what only repeats the type of the result."""
    return [
        f"{attr.name}={_value(value)}"
        for attr, value in zip(node.op.attrs, node.attrs, strict=True)
        if not attr.is_plain(value) and not _says_nothing(node, value)
    ]


def _says_nothing(node: Node, value: Any) -> bool:
    if value == () or isinstance(value, (Function, Literal, Type, DType)) or node.op is LOOP_BEGIN:
        return True  # a loop's identity is an arbitrary number, another one in every run
    return isinstance(node.type, TensorType) and value == node.type.dims


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return "(" + ",".join(_value(v) for v in value) + ")"
    return value if isinstance(value, str) else str(value)


def subtitle(node: Node) -> str:
    """The node's name and attributes, in lines that fit a box."""
    lines = attr_texts(node) if node.attrs else []
    if sum(map(len, lines)) + 2 * len(lines) - 2 <= TITLE:
        lines = [", ".join(lines)] if lines else []
    else:
        lines = lines[:3] + ["…"] * (len(lines) > 3)
    name = node.name
    if name and not name.isdigit():  # a number says nothing that the tooltip does not
        lines.insert(0, name)
    return "\n".join(map(short, lines))


def _excerpt(span: Span) -> str:
    return short(span.source.text[span.start : min(span.end, span.start + 200)].strip(), 160)


def tooltip(node: Node, address: str, extra: str = "") -> str:
    """All there is to know: op, type, attributes, where it was written, and which rewrites made it."""
    lines = [f"{address} {node.op.name}: {short(str(node.type), 200)}"]
    if node.name:
        lines.append(f"name {short(node.name, 200)}")
    attrs = attr_texts(node)
    if attrs:
        lines.append(short(", ".join(attrs), 200))
    if extra:
        lines.append(extra)
    for span in node.origin.spans[:3]:
        lines.append(f"{span}  {_excerpt(span)}")
        if span.place:
            lines.append(short(f"made from {span.place.chain()}", 200))
    if len(node.origin.spans) > 3:
        lines.append(f"and {len(node.origin.spans) - 3} more places")
    if node.origin.rewrites:
        lines.append(f"rewritten by {short(', '.join(node.origin.rewrites), 200)}")
    return "\n".join(lines)
