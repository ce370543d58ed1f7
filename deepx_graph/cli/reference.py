"""The reference of operations: what a declaration says, as plain data, as text, and as Markdown (`docs/ops.md`).

Everything is read from the declarations; the examples are programs in the sea form, made from an op's samples or given by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepx_graph.ir import Attr, Op
    from deepx_graph.types import TensorType

TRAITS = ("elementwise", "commutative", "associative", "idempotent", "involution", "view", "foldable", "total")
"""The fields of a declaration that claim something of the op in one word."""


def traits(op: Op) -> list[str]:
    """What the declaration claims, in words."""
    found = [name for name in TRAITS if getattr(op, name)]
    found += ["reduces"] if op.monoid else []
    try:
        fuses = op.kernel is not None and op.kernel(*(a.default for a in op.attrs)) is not None
    except (KeyError, TypeError, AttributeError):
        fuses = True
    return found + (["fuses"] if fuses else [])


def loops(op: Op) -> list[str]:
    """By what the declaration gives a loop program, of which machine code is made."""
    scalar = op.elementwise and op.kernel is not None and op.element is None
    said = {"element": op.element is not None, "loops": op.loops is not None, "scalar expression": scalar}
    return [word for word, is_said in said.items() if is_said]


def constraints(op: Op) -> list[str]:
    """What holds between operands and attributes, in words."""
    shared = ["one shape of all operands, a scalar standing for all elements"] if op.elementwise and len(op.operands) > 1 else []
    return shared + [r.words for r in op.constraints]


def facts(op: Op) -> dict[str, Any]:
    """A declaration as plain data."""
    from deepx_graph.ir.structure import STRUCTURAL
    from deepx_graph.ops import FAMILY_OF

    return {
        "name": op.name, "summary": op.summary, "family": FAMILY_OF[op], "source": op.source, "traits": traits(op),
        "loop_program": loops(op),
        "operands": [{"name": o.name, "type": o.type.words, "variadic": o.variadic, "optional": o.optional, "summary": o.summary}
                     for o in op.operands],
        "attributes": [{"name": a.name, "kind": a.kind, "default": default_of(a), "constraint": a.check.words if a.check else None,
                        "summary": a.summary} for a in op.attrs],
        "results": [{"name": r.name, "type": r.type.words, "variadic": r.variadic, "summary": r.summary} for r in op.results],
        "constraints": constraints(op), "gradient": op.vjp is not None or op in STRUCTURAL,
        "no_gradient_by": list(op.no_gradient_by), "assembly": op.assembly, "example": example(op),
    }  # fmt: skip


def default_of(attr: Attr) -> str | None:
    """The default as text; None for an attribute that is required."""
    from deepx_graph.ir import REQUIRED

    return None if attr.default is REQUIRED else repr(attr.default)


# --- examples -----------------------------------------------------------------------------------------------------


def example(op: Op) -> str:
    """A program in the sea form that uses the op; empty where there is none."""
    from deepx_graph.ir import Builder, Module
    from deepx_graph.text import sea

    if op.example:
        return op.example
    for types, attrs in sample_types(op):
        params = [(name, t) for name, t in zip(_names(op, len(types)), types, strict=True)]
        main = Builder().function("main", params, lambda *nodes, a=attrs: (Builder()(op, *nodes, **a),), result_names=("result",))
        return sea.write(Module((main,)))
    return ""


def sample_types(op: Op) -> Iterator[tuple[list[TensorType], dict[str, Any]]]:
    """Types of operands, with attributes, that the op accepts: from its samples, else alike tensors of some element type."""
    import numpy as np

    from deepx_graph.errors import InferError
    from deepx_graph.types import C64, F32, I32, tensor, type_of_array

    if op.samples is not None:
        for arrays, attrs in op.samples(np.random.default_rng(0)):
            yield [type_of_array(np.asarray(a)) for a in arrays], attrs
    elif all(o.single for o in op.operands):
        for dtype in (F32, I32, C64):
            types = [tensor(dtype, (2, 3))] * len(op.operands)
            try:
                op.infer(types, *op.bind({}))
            except InferError:
                continue
            yield types, {}


def _names(op: Op, count: int) -> list[str]:
    """A name for each input, after its operand."""
    names = []
    for name, taken in op.named(range(count)).items():
        names += [f"{name}{k}" for k in range(len(taken))] if isinstance(taken, tuple) else [name]
    return names


# --- text and Markdown ----------------------------------------------------------------------------------------------


def _gradient(found: dict[str, Any]) -> str:
    without = " and ".join(found["no_gradient_by"])
    return ("yes, but not by " + without if without else "yes") if found["gradient"] else "no"


def _by(found: dict[str, Any]) -> str:
    return " and ".join(f"by its {word}" for word in found["loop_program"]) or "none"


def op_text(op: Op) -> str:
    """A declaration for a reader at a terminal."""
    f = facts(op)
    lines = [f"{op.name}({op.shown_operands})", f"  {op.summary}", ""]
    lines += [f"  {word:<11}{text}" for word, text in _signature(f)]
    lines += [f"  family     {f['family']}", f"  traits     {', '.join(f['traits']) or 'none'}"]
    lines += [f"  gradient   {_gradient(f)}", f"  loops      {_by(f)}", f"  source     {op.source}"]
    lines += ["", *(f"    {line}" for line in f["example"].splitlines())] if f["example"] else []
    return "\n".join(lines) + "\n"


def _signature(f: dict[str, Any], quote: str = "") -> Iterator[tuple[str, str]]:
    """Operands, attributes, results and constraints, each as a word and a text; `quote` stands around names."""
    for word, items in (("operand", f["operands"]), ("attribute", f["attributes"]), ("result", f["results"])):
        for i in items:
            what = _attribute(i, quote) if word == "attribute" else i["type"]
            yield word, f"{quote}{_marked(i)}{quote}: {what}{f'; {summary}' if (summary := i['summary']) else ''}"
    yield from (("expects", words) for words in f["constraints"])


def _marked(item: dict[str, Any]) -> str:
    return str(item["name"]) + ("..." if item.get("variadic") else "?" if item.get("optional") else "")


def _attribute(a: dict[str, Any], quote: str) -> str:
    default = "required" if a["default"] is None else f"default {quote}{a['default']}{quote}"
    return f"{a['kind']}, {default}{', ' + a['constraint'] if a['constraint'] else ''}"


def markdown() -> str:
    """The reference of all operations."""
    from deepx_graph.ops import FAMILIES

    lines = ["# Operations", "", "Written by `make docs` from the declarations in `deepx_graph/ops/`.", ""]
    for family, members in FAMILIES.items():
        lines += [f"## {family}", ""]
        for op in members:
            lines += _section(op)
    return "\n".join(lines)


def _section(op: Op) -> list[str]:
    f = facts(op)
    lines = [f"### {op.name}", "", op.summary, ""]
    lines += [f"- {word} {text}" for word, text in _signature(f, "`")]
    lines += [f"- traits: {', '.join(f['traits']) or 'none'}; gradient: {_gradient(f)}; loop program: {_by(f)}"]
    lines += [f"- source: {op.source}", ""]
    return lines + (["```", *f["example"].splitlines(), "```", ""] if f["example"] else [])
