"""What can be asked of the nodes of one function: sizes, costs, users, depths; and the words in which queries ask for it.

`Facts` belongs to a function and costs nothing until a question needs it. A size that is not known is None, never a guess; it fits
no bound. What a run measured comes from outside, in `measured`. Parser, help and completion read the tables of fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from deepx_graph.analysis.name_scopes import NameScope, name_scopes
from deepx_graph.analysis.schedule import Block, Eval, IfStep, LoopStep, Once, schedule
from deepx_graph.analysis.work import bytes_moved, flops
from deepx_graph.errors import DeepxGraphError, InferError
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CONSTANT, LOOP_BEGIN, LOOP_END, PARAM, PHI, PROJ, REGION, STRUCTURAL, TUPLE
from deepx_graph.ops import FAMILIES, FAMILY_OF, OPS
from deepx_graph.types import TensorType, dtype_names, is_state, is_static, leaves, nbytes


@dataclass(frozen=True, slots=True)
class Nesting:
    """Where the schedule puts a node: how many loops and branches are around it."""

    loops: int = 0
    branches: int = 0


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of a node: seconds and calls of one run, their share of all kernels, and odd elements of its last value."""

    seconds: float
    share: float
    calls: int
    nans: int = 0
    infs: int = 0


class Apart(NamedTuple):
    """What fusion left apart at a node: the bytes that one kernel with its readers would save in a run, and the main reason."""

    bytes: int
    reason: str


class PlacedValue(NamedTuple):
    """How a value lies on the mesh, in Shardy's notation, and what that comes from; empty where it is whole on every device."""

    text: str
    source: str


class Facts:
    """The facts of a function's nodes."""

    def __init__(self, function: Function, measured: Mapping[Node, Measured] | None = None,
                 apart: Mapping[Node, Apart] | None = None, errors: Mapping[Node, float] | None = None,
                 shardings: Mapping[Node, PlacedValue] | None = None, changes: Mapping[Node, str] | None = None,
                 nonfinite: Mapping[Node, int] | None = None) -> None:
        self.function = function
        self.measured: Mapping[Node, Measured] = measured or {}
        self.apart: Mapping[Node, Apart] = apart or {}
        self.errors: Mapping[Node, float] = errors or {}
        """What the rounding of each adds to the relative error of the outputs."""
        self.nonfinite: Mapping[Node, int] = nonfinite or {}
        """How many elements each makes NaN or infinite of finite ones."""
        self.shardings: Mapping[Node, PlacedValue] = shardings or {}
        """How each value lies on a mesh, in Shardy's notation."""
        self.changes: Mapping[Node, str] = changes or {}
        """In what a node differs from its partner in another program, or that it has none."""

    @cached_property
    def number(self) -> dict[Node, int]:
        """The place of each node in the function: what `#17` means."""
        return {n: k for k, n in enumerate(self.function.nodes)}

    @cached_property
    def results(self) -> frozenset[Node]:
        return frozenset(self.function.results)

    @cached_property
    def depth(self) -> dict[Node, int]:
        """How many operations lie on the longest way to a node."""
        found: dict[Node, int] = {}
        for n in self.function.nodes:
            found[n] = 1 + max((found[i] for i in n.inputs), default=-1)
        return found

    @cached_property
    def places(self) -> dict[Node, Nesting]:
        """Where the schedule puts each node; a node that it leaves out is in no loop and no branch."""
        found: dict[Node, Nesting] = {}
        try:
            stack = [(schedule(self.function).root, Nesting())]
        except DeepxGraphError:
            return found
        while stack:
            block, place = stack.pop()
            for step in block.steps:
                match step:
                    case Eval(node):
                        found[node] = place
                    case Once():  # it runs as often as what lies around the loop that it outlives
                        stack.append((step.block, Nesting(found[step.loop].loops, place.branches)))
                    case IfStep():
                        found[step.node] = place
                        inside = Nesting(place.loops, place.branches + 1)
                        stack += ((b.block, inside) for b in step.branches)
                    case LoopStep():
                        stack += _loop(step, place, found)
        return found

    @cached_property
    def scopes(self) -> Mapping[Node, NameScope]:
        """The name scope of each node."""
        return name_scopes(self.function)

    def place(self, node: Node) -> Nesting:
        return self.places.get(node, Nesting())

    def users(self, node: Node) -> int:
        """How many operands, of other nodes, the node is."""
        return len(self.function.users.get(node, ()))

    def before(self, node: Node) -> frozenset[Node]:
        """What a node depends on, itself included."""
        return _reached(node, lambda n: n.inputs)

    def after(self, node: Node) -> frozenset[Node]:
        """What depends on a node, itself included."""
        return _reached(node, lambda n: self.function.users.get(n, ()))


def _loop(step: LoopStep, place: Nesting, found: dict[Node, Nesting]) -> list[tuple[Block, Nesting]]:
    inside = Nesting(place.loops + 1, place.branches)
    found[step.node] = place
    found[step.node.inputs[0]] = inside
    found.update((phi, inside) for column in step.phis for phi in column)
    return [(step.header, inside), (step.body, inside)]


def _reached(start: Node, beside: Callable[[Node], Iterable[Node]]) -> frozenset[Node]:
    seen = {start}
    stack = [start]
    while stack:
        for n in beside(stack.pop()):
            if n not in seen:
                seen.add(n)
                stack.append(n)
    return frozenset(seen)


def size_of(node: Node) -> int | None:
    """Bytes of a node's value; None where its type is not known."""
    return _known(lambda: nbytes(node.type))


def moved_by(node: Node) -> int | None:
    """Bytes of a node's operands and results; None where a type is not known."""
    return _known(lambda: bytes_moved(node))


def work_of(node: Node) -> int | None:
    """Arithmetic operations of a node (see `costs`); None where a type is not known."""
    return _known(lambda: flops(node))


def _known(count: Callable[[], int]) -> int | None:
    try:
        return count()
    except InferError:
        return None


def dtypes_of(node: Node) -> tuple[str, ...]:
    """The element types in a node's value."""
    return tuple(dict.fromkeys(t.dtype.name for t in leaves(node.type) if isinstance(t, TensorType)))


def ops_inside(node: Node) -> tuple[str, ...]:
    """The names of the operations in the functions that a node holds as attributes: what a fusion or reduction is made of."""
    bodies = (v for a, v in zip(node.op.attrs, node.attrs, strict=True) if a.kind == "function" and isinstance(v, Function))
    return tuple(dict.fromkeys(n.op.name for body in bodies for n in body.nodes if n.inputs))


def form(node: Node) -> tuple[object, ...]:
    """Operation, attributes and types: nodes alike in these have the same value in every field of `form`."""
    return node.op, node.attrs, node.type, *(i.type for i in node.inputs)


@dataclass(frozen=True)
class TextField:
    """A field whose value is text; a node fits when one of its texts does. `form`: it follows from a node's form."""

    summary: str
    get: Callable[[Facts, Node], Iterable[str]]
    form: bool = False


@dataclass(frozen=True)
class NumberField:
    """A field whose value is a number; `binary` ones count in K of 1024, `measured` ones are known of runs only."""

    summary: str
    get: Callable[[Facts, Node], float | None]
    binary: bool = False
    measured: bool = False
    form: bool = False


@dataclass(frozen=True)
class FlagField:
    """A word that says something by itself; of runs only when `measured`."""

    summary: str
    test: Callable[[Facts, Node], bool]
    measured: bool = False
    form: bool = False


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


def _scopes(facts: Facts, node: Node) -> tuple[str, ...]:
    path = facts.scopes[node].path
    return tuple("/".join(path[a:b]) for a in range(len(path)) for b in range(a + 1, len(path) + 1))


def _callee(facts: Facts, node: Node) -> tuple[str, ...]:
    return (node.attrs[node.op.attr_index["callee"]],) if "callee" in node.op.attr_index else ()


TEXTS: Mapping[str, TextField] = {
    "op": TextField("the operation", lambda facts, node: (node.op.name,)),
    "name": TextField("the name in the source", lambda facts, node: (node.name,)),
    "type": TextField("the type, as f32[2,3], or its element type", _types, form=True),
    "dtype": TextField("the element type", lambda facts, node: dtypes_of(node), form=True),
    "family": TextField("the family of the operation", _family),
    "origin": TextField("a line of the source that it comes from", _lines),
    "rewrite": TextField("a rewrite that made it", lambda facts, node: node.origin.rewrites),
    "attr": TextField("an attribute, by name or as name=value", _attributes, form=True),
    "has": TextField("an operation in the function that it holds (a fusion, a reduction)", lambda facts, node: ops_inside(node),
                     form=True),
    "scope": TextField("a module of the model that it is in, as Blk_3 or GPT/Blk_3", _scopes),
    "phase": TextField("forward or backward, where names tell", lambda facts, node: (facts.scopes[node].phase,)),
    "callee": TextField("the function that it calls", _callee, form=True),
    "declined": TextField("why fusion keeps it apart from its readers (in a page made with --fusion)",
                          lambda facts, node: (facts.apart[node].reason,) if node in facts.apart else ()),
    "sharding": TextField("how its value lies on the mesh (with --plan)",
                          lambda facts, node: facts.shardings[node][:1] if node in facts.shardings else ()),
    "annotation": TextField("what the sharding of its value comes from (with --plan)",
                            lambda facts, node: tuple(filter(None, facts.shardings.get(node, ())[1:]))),
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
    "rank": NumberField("the rank of its value", lambda facts, node: getattr(node.type, "rank", None), form=True),
    "elements": NumberField("the elements of its value", _elements, form=True),
    "bytes": NumberField("the bytes of its value; K, M, G are 1024 each", lambda facts, node: size_of(node), binary=True,
                         form=True),
    "moved": NumberField("the bytes of its operands and its value", lambda facts, node: moved_by(node), binary=True, form=True),
    "flops": NumberField("arithmetic operations", lambda facts, node: work_of(node), form=True),
    "depth": NumberField("operations on the longest way to it", lambda facts, node: facts.depth[node]),
    "loops": NumberField("how many loops are around it", lambda facts, node: facts.place(node).loops),
    "line": NumberField("the first line of the source that it comes from",
                        lambda facts, node: node.span.line if node.span else None),
    "apart": NumberField("the bytes that one kernel with its readers would save (in a page made with --fusion)",
                         lambda facts, node: facts.apart[node].bytes if node in facts.apart else None, binary=True),
    "error": NumberField("what its rounding adds to the relative error of the outputs (with --explain-error)",
                         lambda facts, node: facts.errors.get(node)),
    "nonfinite": NumberField("elements that it makes NaN or infinite of finite ones (with --explain-nan)",
                             lambda facts, node: facts.nonfinite.get(node)),
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
    "param": FlagField("parameters", lambda facts, node: node.op is PARAM, form=True),
    "const": FlagField("constants", lambda facts, node: node.op is CONSTANT, form=True),
    "result": FlagField("results of the function", lambda facts, node: node in facts.results),
    "control": FlagField("branches, loops and their values", lambda facts, node: node.op in _CONTROL, form=True),
    "effect": FlagField("what takes or gives the state", _is_effect, form=True),
    "loop": FlagField("what runs inside a loop", lambda facts, node: facts.place(node).loops > 0),
    "branch": FlagField("what runs inside a branch", lambda facts, node: facts.place(node).branches > 0),
    "fused": FlagField("fused kernels", lambda facts, node: FAMILY_OF.get(node.op) == "fusion", form=True),
    "call": FlagField("calls and function values", lambda facts, node: "callee" in node.op.attr_index, form=True),
    "kernel": FlagField("what computes something: no structure, and no view",
                   lambda facts, node: node.op.eval is not None and not node.op.view and node.op not in STRUCTURAL,
                   form=True),
    "elementwise": FlagField("elementwise operations", lambda facts, node: node.op.elementwise, form=True),
    "view": FlagField("other ways to look at an operand", lambda facts, node: node.op.view or node.op is PROJ or node.op is TUPLE,
                      form=True),
    "reduction": FlagField("what has a reducer, and contractions",
                      lambda facts, node: FAMILY_OF.get(node.op) == "reduce" or "lhs_contracting_dimensions" in node.op.attr_index,
                      form=True),
    "dynamic": FlagField("what has a type that is not wholly known", lambda facts, node: not is_static(node.type), form=True),
    "unnamed": FlagField("what has no name in the source", lambda facts, node: not node.name),
    "made": FlagField("what a rewrite made", lambda facts, node: bool(node.origin.rewrites)),
    "nan": FlagField("whose last value had a NaN or an infinity", _odd, measured=True),
}  # fmt: skip

WORDS: Mapping[str, Callable[[], Iterable[str]]] = {
    "op": lambda: OPS, "has": lambda: OPS, "dtype": dtype_names, "type": dtype_names, "family": lambda: FAMILIES,
}  # fmt: skip
"""What may follow a field, where that is known beforehand."""
