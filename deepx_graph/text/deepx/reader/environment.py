"""Names to values while a program is lowered: dataflow of names that are written again and again.

A tensor name stands for the node that was last written to it; a name that no line creates is a parameter; a name that was deleted,
or is created only further down, is an error where it is used. What is written must fit the tensor of that name; a node that an
instruction makes is known by the name it is written to. Arguments (scalars and vectors) have a table of their own, as in deepx.
What later lines tell about a parameter or loaded tensor is kept in `ReadingFacts`, with which lowering can start anew.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, NoReturn

from deepx_graph.errors import InferError, VerifyError, an, suggest
from deepx_graph.ir import Builder, Node, Origin
from deepx_graph.ops import ensure_type, reshape
from deepx_graph.text.deepx.reader.instr import Arg, Number, Problems, parse_number
from deepx_graph.types import ANY, STATE, DType, TensorType, as_tensor, merge_types, scalar, tensor


@dataclass(frozen=True)
class Parameter:
    """A name that the text reads and nobody creates."""

    name: str
    type: TensorType
    is_scalar: bool
    start: int
    end: int


@dataclass(frozen=True)
class ReadingFacts:
    """Findings of a whole reading of a program: its parameters in order, and the types of what it loads, by offset."""

    params: tuple[Parameter, ...] = ()
    loads: Mapping[int, TensorType] = field(default_factory=dict)


@dataclass(slots=True)
class TensorName:
    """A live tensor name. `node` is None before the first write of a function's result, and after an error (`is_broken`).

    `fact` tells which parameter (a name) or load (an offset) the node still is; `is_output` whether the program made or changed it.
    """

    type: TensorType
    node: Node | None
    start: int
    order: int
    is_output: bool = True
    is_broken: bool = False
    fact: str | int | None = None


class Bound(NamedTuple):
    """The value of an argument name: numbers, of which a scalar has one; or the node of a scalar parameter."""

    values: tuple[Number | str, ...] = ()
    dtype: DType | None = None
    node: Node | None = None


class Environment:
    """The names of one program or function: tensors, arguments, parameters, and the state of the world."""

    def __init__(self, problems: Problems, facts: ReadingFacts, created: Mapping[str, int], *, is_closed: bool = False,
                 draws: Iterator[int] | None = None) -> None:
        self.b = Builder()
        self.problems, self.created, self.is_closed = problems, created, is_closed
        self.tensors: dict[str, TensorName] = {}
        self.arguments: dict[str, Bound] = {}
        self.gone: dict[str, tuple[str, int]] = {}
        self.params: dict[str, Parameter] = {}
        self.param_nodes: list[Node] = []
        self.loads: dict[int, TensorType] = dict(facts.loads)
        self.saved: dict[str, TensorType] = {}
        self.state: Node | None = None
        self.draws = itertools.count() if draws is None else draws
        self._order = 0
        for p in facts.params:
            self.parameter(p)

    # --- errors

    def fail(self, message: str, arg: Arg, **more: Any) -> NoReturn:
        raise self.problems.verify_error(message, arg, **more)

    def in_line(self, what: str, start: int) -> tuple[str]:
        """The note that says in which line something happened to a name."""
        return (f"{what} in line {self.problems.source.position(start)[0]}",)

    def check_live(self, arg: Arg) -> None:
        """Raises VerifyError for a name that was deleted or renamed."""
        if arg.text in self.gone:
            what, start = self.gone[arg.text]
            self.fail(f"'{arg.text}' is used after it was {what}", arg, notes=self.in_line(what, start))

    def _check_dtype(self, arg: Arg, slot: TensorName, stated: DType) -> None:
        """Raises VerifyError for a tensor of another element type than its line states."""
        if slot.type.dtype is not ANY:
            self.fail(f"'{arg.text}' is {an(slot.type)} and the line says {stated}", arg, expected=f"a tensor of {stated}",
                      notes=self.in_line("created", slot.start))

    def nearest(self, name: str) -> str | None:
        """A hint with the live name nearest to this one."""
        return suggest(name, [*self.tensors, *self.arguments])

    # --- parameters and state

    def parameter(self, p: Parameter) -> Node:
        """A new parameter, live under its name."""
        self.params[p.name] = p
        origin = self.b.origin
        self.b.origin = Origin(p.name, (self.problems.span(p.start, p.end),))
        node = self.b.param(len(self.param_nodes), p.type, p.name)
        self.b.origin = origin
        self.param_nodes.append(node)
        if p.is_scalar:
            self.arguments[p.name] = Bound((), p.type.dtype, node)
        else:
            self.tensors[p.name] = TensorName(p.type, node, p.start, self.next_order(), is_output=False, fact=p.name)
        return node

    def take_state(self) -> Node:
        """The state as the last effect left it; a parameter at first."""
        if self.state is None:
            self.state = self.b.param(len(self.param_nodes), STATE, "state")
            self.param_nodes.append(self.state)
        return self.state

    def next_order(self) -> int:
        """A number for a name made now."""
        self._order += 1
        return self._order

    # --- reading

    def slot(self, arg: Arg, dtype: DType | None = None) -> TensorName:
        """The live tensor of that name, a parameter if nobody creates it. Raises VerifyError for a name that cannot be read."""
        found = self.tensors.get(arg.text)
        if found is not None:
            if found.is_broken:
                raise VerifyError()
            return found
        self.check_live(arg)
        if arg.text in self.created:
            self.fail(f"'{arg.text}' is used before it is created", arg, notes=self.in_line("created", self.created[arg.text]))
        if arg.text in self.arguments:
            self.fail(f"'{arg.text}' is an argument", arg, expected="the name of a tensor")
        if not arg.category and parse_number(arg.text) is not None:
            self.fail(f"'{arg.text}' is a number", arg, expected="the name of a tensor")
        if self.is_closed:
            self.fail(f"there is no tensor '{arg.text}' here", arg, hint=self.nearest(arg.text))
        self.parameter(Parameter(arg.text, tensor(stated_dtype(arg.dtype, dtype) or ANY, None), False, arg.start, arg.end))
        return self.tensors[arg.text]

    def read(self, arg: Arg, dtype: DType | None = None, *, strict: bool = True) -> Node:
        """The value of a tensor name, whose element type the line states as `dtype` or in a tag.

        Raises VerifyError for a name that cannot be read, or has another element type; not `strict`, that is a warning.
        """
        slot = self.slot(arg, dtype)
        if slot.node is None:
            self.fail(f"'{arg.text}' is read before it is written", arg)
        stated = stated_dtype(arg.dtype, dtype)
        if stated is None or slot.type.dtype is stated:
            return slot.node
        if strict or slot.type.dtype is ANY:
            self._check_dtype(arg, slot, stated)
            return self.refine(arg, tensor(stated, None))
        self.problems.warn(f"'{arg.text}' is {an(slot.type)} and the line says {stated}", arg.start, arg.end)
        return slot.node

    def refine(self, arg: Arg, type: TensorType) -> Node:
        """The value of a live name, now known to have `type` too. Raises VerifyError when it cannot have."""
        slot = self.tensors[arg.text]
        assert slot.node is not None
        try:
            merged = as_tensor(merge_types(slot.type, type))
        except InferError as e:
            self.fail(f"'{arg.text}': {e.message}", arg)
        if merged == slot.type:
            return slot.node
        slot.node, slot.type = self.b(ensure_type, slot.node, type=merged), merged
        if isinstance(slot.fact, str):
            self.params[slot.fact] = replace(self.params[slot.fact], type=merged)
        elif slot.fact is not None:
            self.loads[slot.fact] = merged
        return slot.node

    def argument(self, arg: Arg, dtype: DType | None) -> Bound:
        """The value of an argument name; a scalar parameter if nobody sets it."""
        found = self.arguments.get(arg.text)
        if found is not None:
            return found
        self.check_live(arg)
        if arg.text in self.tensors:
            self.fail(f"'{arg.text}' is a tensor", arg, expected="a number or the name of an argument")
        if self.is_closed:
            self.fail(f"there is no argument '{arg.text}' here", arg, hint=self.nearest(arg.text))
        stated = stated_dtype(arg.dtype, dtype)
        if stated is None:
            self.fail(f"nothing sets '{arg.text}'", arg, expected="a number or the name of an argument",
                      hint=self.nearest(arg.text))
        self.parameter(Parameter(arg.text, scalar(stated), True, arg.start, arg.end))
        return self.arguments[arg.text]

    # --- writing

    def create(self, arg: Arg, value: Node | None, type: TensorType | None = None, *, may_exist: bool = False) -> TensorName:
        """A new live name. Raises VerifyError when it is live already, unless it may be."""
        old = self.tensors.get(arg.text)
        if old is not None and not may_exist and not old.is_broken:
            self.fail(f"'{arg.text}' is created twice", arg, notes=self.in_line("first", old.start),
                      hint="delete it first, or write to it instead")
        if type is None:
            assert value is not None
            type = as_tensor(value.type)
        slot = self.tensors[arg.text] = TensorName(type, None if value is None else self.named(value, arg.text), arg.start,
                                                   self.next_order() if old is None else old.order)
        self.gone.pop(arg.text, None)
        return slot

    def target(self, arg: Arg, dtype: DType | None) -> TensorType | None:
        """The known type of a tensor about to be written; None for a name nobody created. Raises VerifyError as `write` would."""
        slot = self.tensors.get(arg.text)
        stated = stated_dtype(arg.dtype, dtype)
        if slot is None:
            if arg.text in self.gone or arg.text in self.created:
                self.slot(arg)
            return None if stated is None else tensor(stated, None)
        if slot.is_broken:
            raise VerifyError()
        if stated is not None and slot.type.dtype is not stated:
            self._check_dtype(arg, slot, stated)
            self.refine(arg, tensor(stated, None))
        return slot.type

    def write(self, arg: Arg, value: Node, *, reshapes: bool = False) -> None:
        """Let the name stand for `value`. The type must fit the tensor of that name; `reshapes` may change its shape.

        A name nobody created is created, in the line forms with a warning; `target` has refused names that may not be
        written. Raises VerifyError when the types do not fit.
        """
        slot = self.tensors.get(arg.text)
        value = self.fitted(arg, value, reshapes=reshapes)
        if slot is None:
            self.create(arg, value)
            return
        if not slot.is_output:  # a parameter that is written from here on counts as made here
            slot.order = self.next_order()
        slot.node, slot.type, slot.is_output, slot.fact = self.named(value, arg.text), as_tensor(value.type), True, None

    def fitted(self, arg: Arg, value: Node, *, reshapes: bool = False) -> Node:
        """The value as the name can stand for it, were it written. Raises VerifyError when the types do not fit."""
        if arg.text not in self.tensors:
            if not self.is_closed:  # in the function form a statement names its results
                self.problems.warn(f"'{arg.text}' was never created", arg.start, arg.end, hint=self.nearest(arg.text))
            return value
        known = self.tensors[arg.text].type
        type = known.with_dims(None) if reshapes else known
        if value.type == type:
            return value
        if as_tensor(value.type).dims == () and type.dims == (1,):  # there are no tensors of rank 0 in deepx
            value = self.b(reshape, value, shape=(1,))
        found = as_tensor(value.type)
        try:
            merged = merge_types(found, type)
        except InferError:
            what = "element type" if found.dtype is not type.dtype else "shape"
            self.fail(f"{what} mismatch: the result is {an(found)} and '{arg.text}' is {an(type)}", arg, expected=str(type),
                      notes=self.in_line(f"'{arg.text}' is created", self.tensors[arg.text].start))
        return value if merged == found else self.b(ensure_type, value, type=merged)

    def named(self, value: Node, name: str) -> Node:
        """The value under its name, where this instruction made it; a value that has a name keeps it."""
        if value.origin is not self.b.origin:
            return value
        return Node(value.op, value.inputs, value.attrs, value.type, Origin(name, value.origin.spans))

    def remove(self, arg: Arg, what: str) -> bool:
        """Let the name stand for nothing, as deleted or renamed; whether it stood for something."""
        found = self.tensors.pop(arg.text, None) or self.arguments.pop(arg.text, None)
        if found is not None:
            self.gone[arg.text] = (what, arg.start)
        return found is not None

    def bind_number(self, out: Arg, value: Number, node: Node | None) -> None:
        """Let a name that nobody created be an argument, with a warning."""
        self.problems.warn(f"'{out.text}' was never created: it stands for a number", out.start, out.end)
        self.arguments[out.text] = Bound(() if node is not None else (value,), None, node)

    def rename(self, old: Arg, new: Arg) -> None:
        """Let another name stand for the tensor; one that stood for something else now no longer does."""
        slot = self.slot(old)
        self.remove(old, f"renamed to '{new.text}'")
        self.tensors[new.text] = slot
        slot.is_output = True
        self.gone.pop(new.text, None)

    def break_name(self, arg: Arg) -> None:
        """After an error: a name that should exist now, whose uses are not to be reported too."""
        if arg.text not in self.tensors:
            self.create(arg, None, tensor(ANY, None)).is_broken = True

    def outputs(self) -> list[tuple[str, Node]]:
        """The live tensors that the program made or changed, oldest first, and the state if it has one."""
        live = sorted((s.order, n, s.node) for n, s in self.tensors.items() if s.is_output and s.node is not None)
        return [(name, node) for _, name, node in live] + ([] if self.state is None else [("state", self.state)])

    def facts(self) -> ReadingFacts:
        """The findings of this reading."""
        return ReadingFacts(tuple(self.params.values()), dict(self.loads))


def stated_dtype(tag: DType | None, line: DType | None) -> DType | None:
    """The element type that an operand's tag states, else that of its line; None where neither says one."""
    for dtype in (tag, line):
        if dtype is not None and dtype is not ANY:
            return dtype
    return None
