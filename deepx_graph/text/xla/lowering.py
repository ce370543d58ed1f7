"""Lowering a text of the XLA dialect in either syntax: the builder, an operation's attributes, effects, control.

Tokens order effects in a text; in the sea one state does, in the order of the text, which every order of tokens agrees with. So a
function that has to do with tokens or effects takes and gives that state, and tokens themselves vanish.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deepx_graph.ir import Builder, Function, Node, Op
from deepx_graph.ir.structure import TUPLE
from deepx_graph.types import STATE, FunctionType, TensorType, TupleType, Type

if TYPE_CHECKING:
    from deepx_graph.text.xla.fields import AttributeField


Values = Sequence[Node]
Iteration = Callable[[Values], tuple[Node, Values]]
"""The condition, and the next values of the variables, for their values; the condition is computed first."""

MALFORMED = (ValueError, TypeError, LookupError, AttributeError)
"""What reading an attribute of another form than a rule expects raises."""

MAX_NESTING = 64
"""How deep computations may stand inside one another. Lowering calls itself, some twelve frames for each level of loops."""


class DialectLowering:
    """The part of lowering a text that both syntaxes share."""

    def __init__(self) -> None:
        self.b = Builder()
        self.depth = 0
        self.state: Node | None = None
        """The state as it is at the operation being lowered, where operations may act on it."""
        self.closed = 0
        """How many bodies of operations, which have no calls and effects, that operation stands in."""
        self._seeds = 0

    def next_seed(self) -> int:
        """The number of the next draw without a seed."""
        self._seeds += 1
        return self._seeds - 1

    def item(self, node: Node, k: int) -> Node:
        """Item k of a tuple-typed node, taken from where the tuple was made."""
        return node.inputs[k] if node.op is TUPLE else self.b.proj(node, k)


class DialectContext(ABC):
    """What a rule sees of one operation being lowered: `inputs`, stated types, and attributes as values."""

    __slots__ = ("inputs", "lowering")
    lowering: DialectLowering

    def __init__(self, inputs: list[Node]) -> None:
        self.inputs = inputs

    @property
    def b(self) -> Builder:
        return self.lowering.b

    def __call__(self, op: Op, *inputs: Node, **attrs: Any) -> Node:
        return self.b(op, *inputs, **attrs)

    @property
    @abstractmethod
    def name(self) -> str:
        """What the text calls the operation."""

    @property
    @abstractmethod
    def tensor(self) -> TensorType:
        """The stated type of the one result, which must be a tensor. Raises ParseError."""

    @property
    @abstractmethod
    def results(self) -> Sequence[Type]:
        """The stated types of all tensors that it gives."""

    @property
    @abstractmethod
    def tensors(self) -> Sequence[Node]:
        """All tensors among the operands."""

    @abstractmethod
    def fail(self, message: str, expected: str | None = None) -> Exception:
        """A ParseError at the operation."""

    # --- attributes, each by the first of its names that is there; ParseError where none is and there is no default

    @abstractmethod
    def field(self, field: AttributeField) -> Mapping[str, Any]:
        """What a field of the table reads."""

    @abstractmethod
    def ints(self, *names: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """A list of integers."""

    @abstractmethod
    def number(self, *names: str, default: int | None = None) -> int:
        """One integer."""

    @abstractmethod
    def real(self, *names: str) -> float:
        """A floating-point number."""

    @abstractmethod
    def word(self, *names: str, default: str | None = None) -> str:
        """A word of the dialect."""

    @abstractmethod
    def string(self, name: str) -> str:
        """A string in quotes; empty where it is missing."""

    @abstractmethod
    def flag(self, name: str, default: bool = False) -> bool:
        """Whether something is so."""

    @abstractmethod
    def body(self, name: str, k: int) -> Function:
        """A computation as a closed function: what HLO names in an attribute, and MLIR writes as region k."""

    # --- effects

    def act(self, op: Op, *inputs: Node, **attrs: Any) -> list[Node]:
        """The results of an operation on the state, which is the new one afterwards."""
        lowering = self.lowering
        if lowering.state is None:
            raise self.fail(f"{self.name} has an effect and stands where none can be")
        node = self(op, lowering.state, *inputs, **attrs)
        if node.type == STATE:
            lowering.state = node
            return []
        return self.after(lowering.state, self.b.items(node))

    @property
    @abstractmethod
    def state(self) -> Node | None:
        """The state as it is now; None where neither the operation nor what it runs acts on it."""

    def after(self, acts: Node | None, results: Sequence[Node]) -> list[Node]:
        """The results but for the state, which is current from here on; all where the operation does not act on it."""
        if acts is None:
            return list(results)
        *rest, self.lowering.state = results
        return rest

    # --- control, through which the state goes like a value where something in it acts

    def loop(self, inits: Values, iterate: Iteration) -> list[Node]:
        """The variables at the end of a loop."""
        acts = self.state

        def body(phis: tuple[Node, ...]) -> tuple[Node, list[Node]]:
            go_on, nexts = iterate(self.after(acts, phis))
            return go_on, [*nexts, *self._current(acts)]

        return self.after(acts, self.b.loop([*inits, *self._current(acts)], body))

    def branch(self, selector: Node, branches: Sequence[Callable[[], Values]]) -> list[Node]:
        """The values of the branch that the selector takes, each lowered by a function."""
        acts, values = self.state, []
        for lower in branches:
            if acts is not None:
                self.lowering.state = acts
            values.append([*lower(), *self._current(acts)])
        return self.after(acts, self.b.branch(selector, *values))

    def call(self, acts: Node | None, function: Function | tuple[str, FunctionType], args: Values) -> list[Node]:
        """The results of a function, which takes and gives the state where it acts."""
        return self.after(acts, self.b.call(function, *args, *self._current(acts)))

    def _current(self, acts: Node | None) -> list[Node]:
        """The state as it is now, for an operation that acts on it."""
        return [] if acts is None or self.lowering.state is None else [self.lowering.state]


def several(c: DialectContext, node: Node) -> list[Node]:
    """The results of a node, as many as the operation names."""
    if isinstance(node.type, TupleType):
        return [c.lowering.item(node, k) for k in range(len(node.type.items))]
    return [node]


def acting(uses: Mapping[str, Iterable[str]], first: Iterable[str]) -> set[str]:
    """Those that act on the state: the `first`, and whatever runs one of them; `uses` are the functions that each runs."""
    callers: dict[str, list[str]] = {}
    for name, used in uses.items():
        for callee in used:
            callers.setdefault(callee, []).append(name)
    found: set[str] = set()
    work = list(first)
    while work:
        name = work.pop()
        if name not in found:
            found.add(name)
            work += callers.get(name, ())
    return found
