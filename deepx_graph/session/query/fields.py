"""The words of the query language: what each field says of a node. One table for each kind; parser, help and completion read them.

A field of text gives the texts that a value may fit; a number is None where it is not known, and then fits nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from deepx_graph.ir import Node
from deepx_graph.ir.structure import CONSTANT, LOOP_BEGIN, LOOP_END, PARAM, PHI, PROJ, REGION, STRUCTURAL, TUPLE
from deepx_graph.ops import FAMILIES, FAMILY_OF, OPS
from deepx_graph.ops.data.fusion import fusion
from deepx_graph.session.query.node_facts import Facts, dtypes_of, moved_by, ops_inside, rank_of, size_of, work_of
from deepx_graph.types import TensorType, dtype_names, is_state, is_static, leaves


@dataclass(frozen=True)
class TextField:
    """A field whose value is text; a node fits when one of its texts does."""

    summary: str
    get: Callable[[Facts, Node], Iterable[str]]


@dataclass(frozen=True)
class NumberField:
    """A field whose value is a number; `binary` ones count in K of 1024, `measured` ones are known of runs only."""

    summary: str
    get: Callable[[Facts, Node], float | None]
    binary: bool = False
    measured: bool = False


@dataclass(frozen=True)
class FlagField:
    """A word that says something by itself; of runs only when `measured`."""

    summary: str
    test: Callable[[Facts, Node], bool]
    measured: bool = False


@dataclass(frozen=True)
class RelationField:
    """A field whose value is another node: `reach` gives the nodes that it stands for."""

    summary: str
    reach: Callable[[Facts, Node], Iterable[Node]]


def _family(facts: Facts, node: Node) -> tuple[str, ...]:
    return (FAMILY_OF.get(node.op, "other"),)


def _lines(facts: Facts, node: Node) -> tuple[str, ...]:
    return tuple(str(s.line) for s in node.origin.spans)


def _types(facts: Facts, node: Node) -> tuple[str, ...]:
    return (str(node.type), *dtypes_of(node))


def _attributes(facts: Facts, node: Node) -> tuple[str, ...]:
    pairs = zip(node.op.attrs, node.attrs, strict=True)
    return tuple(t for a, v in pairs if a.kind not in ("literal", "function") for t in (a.name, f"{a.name}={v}"))


def _callee(facts: Facts, node: Node) -> tuple[str, ...]:
    return (node.attrs[node.op.attr_index["callee"]],) if "callee" in node.op.attr_index else ()


TEXTS: Mapping[str, TextField] = {
    "op": TextField("the operation", lambda facts, node: (node.op.name,)),
    "name": TextField("the name in the source", lambda facts, node: (node.name,)),
    "type": TextField("the type, as f32[2,3], or its element type", _types),
    "dtype": TextField("the element type", lambda facts, node: dtypes_of(node)),
    "family": TextField("the family of the operation", _family),
    "origin": TextField("a line of the source that it comes from", _lines),
    "rewrite": TextField("a rewrite that made it", lambda facts, node: node.origin.rewrites),
    "attr": TextField("an attribute, by name or as name=value", _attributes),
    "has": TextField("an operation in the function that it holds (a fusion, a reduction)", lambda facts, node: ops_inside(node)),
    "callee": TextField("the function that it calls", _callee),
    "function": TextField("the function that it is in", lambda facts, node: (facts.function.name,)),
}


def _elements(facts: Facts, node: Node) -> int | None:
    tensors = [t for t in leaves(node.type) if isinstance(t, TensorType)]
    return sum(t.size for t in tensors) if is_static(node.type) else None


def _time(facts: Facts, node: Node) -> float | None:
    return facts.measured[node].seconds * 1e3 if node in facts.measured else None


def _share(facts: Facts, node: Node) -> float | None:
    return facts.measured[node].share * 100 if node in facts.measured else None


NUMBERS: Mapping[str, NumberField] = {
    "users": NumberField("how often its value is used", lambda facts, node: facts.users(node)),
    "inputs": NumberField("how many operands it has", lambda facts, node: len(node.inputs)),
    "rank": NumberField("the rank of its value", lambda facts, node: rank_of(node)),
    "elements": NumberField("the elements of its value", _elements),
    "bytes": NumberField("the bytes of its value; K, M, G are 1024 each", lambda facts, node: size_of(node), binary=True),
    "moved": NumberField("the bytes of its operands and its value", lambda facts, node: moved_by(node), binary=True),
    "flops": NumberField("arithmetic operations", lambda facts, node: work_of(node)),
    "depth": NumberField("operations on the longest way to it", lambda facts, node: facts.depth[node]),
    "loops": NumberField("how many loops are around it", lambda facts, node: facts.place(node).loops),
    "line": NumberField("the first line of the source that it comes from",
                        lambda facts, node: node.span.line if node.span else None),
    "time": NumberField("milliseconds that it took in the last run", _time, measured=True),
    "share": NumberField("percent of the time of the last run", _share, measured=True),
}  # fmt: skip

RELATIONS: Mapping[str, RelationField] = {
    "before": RelationField("what the node called so, or #17, depends on", lambda facts, node: facts.before(node)),
    "after": RelationField("what depends on the node called so, or #17", lambda facts, node: facts.after(node)),
    "uses": RelationField("the users of the node called so, or #17", lambda facts, node: facts.function.users[node]),
    "feeds": RelationField("the operands of the node called so, or #17", lambda facts, node: node.inputs),
}

_CONTROL = (PHI, REGION, LOOP_BEGIN, LOOP_END)


def _is_effect(facts: Facts, node: Node) -> bool:
    return is_state(node.type) or any(is_state(i.type) for i in node.inputs)


def _odd(facts: Facts, node: Node) -> bool:
    found = facts.measured.get(node)
    return found is not None and bool(found.nans or found.infs)


FLAGS: Mapping[str, FlagField] = {
    "param": FlagField("parameters", lambda facts, node: node.op is PARAM),
    "const": FlagField("constants", lambda facts, node: node.op is CONSTANT),
    "result": FlagField("results of the function", lambda facts, node: node in facts.results),
    "control": FlagField("branches, loops and their values", lambda facts, node: node.op in _CONTROL),
    "effect": FlagField("what takes or gives the state", _is_effect),
    "loop": FlagField("what runs inside a loop", lambda facts, node: facts.place(node).loops > 0),
    "branch": FlagField("what runs inside a branch", lambda facts, node: facts.place(node).branches > 0),
    "fused": FlagField("fused kernels", lambda facts, node: node.op is fusion),
    "call": FlagField("calls and function values", lambda facts, node: "callee" in node.op.attr_index),
    "kernel": FlagField("what computes something: no structure, and no view",
                   lambda facts, node: node.op.eval is not None and not node.op.view and node.op not in STRUCTURAL),
    "elementwise": FlagField("elementwise operations", lambda facts, node: node.op.elementwise),
    "view": FlagField("other ways to look at an operand", lambda facts, node: node.op.view or node.op is PROJ or node.op is TUPLE),
    "reduction": FlagField("what has a reducer, and contractions",
                      lambda facts, node: FAMILY_OF.get(node.op) == "reduce" or "lhs_contracting_dimensions" in node.op.attr_index),
    "dynamic": FlagField("what has a type that is not wholly known", lambda facts, node: not is_static(node.type)),
    "unnamed": FlagField("what has no name in the source", lambda facts, node: not node.name),
    "made": FlagField("what a rewrite made", lambda facts, node: bool(node.origin.rewrites)),
    "nan": FlagField("whose last value had a NaN or an infinity", _odd, measured=True),
}  # fmt: skip

WORDS: Mapping[str, Callable[[], Iterable[str]]] = {
    "op": lambda: OPS, "has": lambda: OPS, "dtype": dtype_names, "type": dtype_names, "family": lambda: FAMILIES,
}  # fmt: skip
"""What may follow a field, where that is known beforehand."""
