"""The names of a program that is lowered, and how they are read.

A tensor name stands for the node that was last written to it; a name that no line creates is a parameter; a name that was deleted,
or is created only further down, is an error where it is used. Arguments (scalars and vectors) have a table of their own, as in
deepx. What later lines tell about a parameter or loaded tensor is kept in `Facts`, with which lowering can start anew.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, NoReturn

from deepx_graph.errors import Diagnostic, InferError, VerifyError, an, suggest
from deepx_graph.ir import Builder, Node, Origin
from deepx_graph.ops import ensure_type
from deepx_graph.text.deepx.reader.instr import Arg, Problems
from deepx_graph.text.deepx.reader.scalars import Number, parse_number
from deepx_graph.types import ANY, STATE, DType, TensorType, merge_types, scalar, tensor


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
    """What a whole reading of a program found out: its parameters in order, and the types of what it loads, by place."""

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
    """What an argument name stands for: numbers, of which a scalar has one; or the node of a scalar parameter."""

    values: tuple[Number | str, ...] = ()
    dtype: DType | None = None
    node: Node | None = None


class NameTables:
    """The two tables of names, the parameters, and the state of the world; how names are read."""

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

    def fail(self, message: str, arg: Arg, expected: str | None = None, hint: str | None = None,
             notes: tuple[str, ...] = ()) -> NoReturn:
        span = self.problems.span(arg.start, max(arg.end, arg.start + 1))
        raise VerifyError(Diagnostic(message, span, expected, hint, notes=notes))

    def line_of(self, start: int) -> int:
        return self.problems.source.position(start)[0]

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
        if arg.text in self.gone:
            what, start = self.gone[arg.text]
            self.fail(f"'{arg.text}' is used after it was {what}", arg, notes=(f"{what} in line {self.line_of(start)}",))
        if arg.text in self.created:
            self.fail(f"'{arg.text}' is used before it is created", arg,
                      notes=(f"created in line {self.line_of(self.created[arg.text])}",))
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
        if slot.type.dtype is ANY:
            return self.refine(arg, tensor(stated, None))
        message = f"'{arg.text}' is {an(slot.type)} and the line says {stated}"
        if strict:
            self.fail(message, arg, expected=f"a tensor of {stated}", notes=(f"created in line {self.line_of(slot.start)}",))
        self.problems.warn(message, arg.start, arg.end)
        return slot.node

    def refine(self, arg: Arg, type: TensorType) -> Node:
        """The value of a live name, now known to have `type` too. Raises VerifyError when it cannot have."""
        slot = self.tensors[arg.text]
        assert slot.node is not None
        try:
            merged = merge_types(slot.type, type)
        except InferError as e:
            self.fail(f"'{arg.text}': {e.message}", arg)
        if merged == slot.type:
            return slot.node
        assert isinstance(merged, TensorType)
        slot.node, slot.type = self.b(ensure_type, slot.node, type=merged), merged
        if isinstance(slot.fact, str):
            self.params[slot.fact] = replace(self.params[slot.fact], type=merged)
        elif slot.fact is not None:
            self.loads[slot.fact] = merged
        return slot.node

    def argument(self, arg: Arg, dtype: DType | None) -> Bound:
        """What an argument name stands for; a scalar parameter if nobody sets it."""
        found = self.arguments.get(arg.text)
        if found is not None:
            return found
        if arg.text in self.gone:
            what, start = self.gone[arg.text]
            self.fail(f"'{arg.text}' is used after it was {what}", arg, notes=(f"{what} in line {self.line_of(start)}",))
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


def stated_dtype(tag: DType | None, line: DType | None) -> DType | None:
    """The element type that an operand's tag states, else that of its line; None where neither says one."""
    for dtype in (tag, line):
        if dtype is not None and dtype is not ANY:
            return dtype
    return None
