"""Types while they are being found: unknowns that unification fills in, and functions with an effect.

`Effect` says whether a function touches references, so that it takes and gives the state. Effects are unified with the types
that carry them and otherwise follow calls: what calls something stateful is stateful. They are not generalised: all uses of a
function's parameter share one. Unification fails with an InferError in the words of the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from deepx_graph.errors import InferError
from deepx_graph.text.relay.reader.tokens import UNSTATED
from deepx_graph.text.relay.words import type_text
from deepx_graph.types import STATE, DataType, FunctionType, RefType, TensorType, TupleType, Type, VarType, merge_dims


class Effect:
    """Whether something is stateful; `implies` are those that are when this is."""

    __slots__ = ("_same", "implies", "stateful")

    def __init__(self) -> None:
        self._same: Effect | None = None
        self.stateful = False
        self.implies: list[Effect] = []

    def root(self) -> Effect:
        """The one that stands for all that were unified with this."""
        effect = self
        while effect._same is not None:
            effect = effect._same
        return effect

    def unify(self, other: Effect) -> None:
        a, b = self.root(), other.root()
        if a is not b:
            a._same = b
            b.stateful = a.stateful or b.stateful
            b.implies += a.implies

    def mark(self) -> None:
        """Stateful, and with it all that this implies."""
        stack = [self.root()]
        while stack:
            effect = stack.pop().root()
            if not effect.stateful:
                effect.stateful = True
            for follower in effect.implies:
                if not follower.root().stateful:
                    stack.append(follower)


class Unknown(Type):
    """A type not found yet; `bound` is what it was found to be."""

    __slots__ = ("bound",)

    def __init__(self) -> None:
        self.bound: Type | None = None

    def __str__(self) -> str:
        return "_" if self.bound is None else str(self.bound)


class Fun(Type):
    """A function's type, with its effect."""

    __slots__ = ("effect", "params", "result")

    def __init__(self, params: Iterable[Type], result: Type, effect: Effect | None = None) -> None:
        self.params, self.result, self.effect = tuple(params), result, effect or Effect()

    @property
    def parts(self) -> tuple[Type, ...]:
        return (*self.params, self.result)

    def with_parts(self, parts: tuple[Type, ...]) -> Type:
        return Fun(parts[:-1], parts[-1], self.effect)


def find(type: Type) -> Type:
    """The type, or what the unknown was found to be."""
    while isinstance(type, Unknown) and type.bound is not None:
        type = type.bound
    return type


def shown(type: Type) -> str:
    """A type as Relay writes it, with `_` for what is not known."""
    return type_text(settled(type, {}, keep=True))


def unify(a: Type, b: Type) -> None:
    """Makes the two types one. Raises InferError where they cannot be."""
    stack = [(a, b)]
    while stack:
        x, y = map(find, stack.pop())
        if x is y:
            continue
        if isinstance(x, Unknown) or isinstance(y, Unknown):
            _bind(*((x, y) if isinstance(x, Unknown) else (y, x)))
            continue
        match x, y:
            case TensorType(), TensorType() if x.dtype is y.dtype or not (x.dtype.np and y.dtype.np):
                merge_dims(x.dims, y.dims)
                continue
            case (TupleType(), TupleType()) | (RefType(), RefType()) if len(x.parts) == len(y.parts):
                stack += zip(x.parts, y.parts, strict=True)
                continue
            case DataType(), DataType() if x.name == y.name and len(x.args) == len(y.args):
                stack += zip(x.args, y.args, strict=True)
                continue
            case Fun(), Fun() if len(x.params) == len(y.params):
                x.effect.unify(y.effect)
                stack += zip(x.parts, y.parts, strict=True)
                continue
        if x != y:
            raise InferError(f"found {shown(x)}", expected=shown(y))


def _bind(unknown: Type, type: Type) -> None:
    assert isinstance(unknown, Unknown)
    stack = [type]
    while stack:
        part = find(stack.pop())
        if part is unknown:
            raise InferError("the type would contain itself")
        stack += part.parts
    unknown.bound = type


def is_known(type: Type) -> bool:
    """Whether no unknown is left in it."""
    stack = [type]
    while stack:
        part = find(stack.pop())
        if isinstance(part, Unknown):
            return False
        stack += part.parts
    return True


def rebuilt(type: Type, leaf: Mapping[str, Type]) -> Type:
    """A type of the text with fresh unknowns for what it leaves out, its variables replaced by those of `leaf`."""
    match type:
        case VarType(name):
            return leaf.get(name, type)
        case FunctionType(params, results):
            return Fun((rebuilt(t, leaf) for t in params), rebuilt(results[0], leaf))
        case Unknown() if type.bound is not None:
            return rebuilt(type.bound, leaf)
    return Unknown() if type is UNSTATED else type.map(lambda t: rebuilt(t, leaf))


def settled(type: Type, names: dict[Unknown, Type], *, keep: bool = False, inside_data: bool = False) -> Type:
    """The type as the graph has it. What stays unknown is a type variable `?k`, or `()` as the argument of a data type.

    With `keep` functions show no state and unknowns stay: for messages.
    """
    type = find(type)
    match type:
        case Unknown():
            if keep:
                return type
            if inside_data:
                return TupleType(())
            return names.setdefault(type, VarType(f"?{len(names) + 1}"))
        case Fun():
            params = tuple(settled(t, names, keep=keep, inside_data=inside_data) for t in type.params)
            result = settled(type.result, names, keep=keep, inside_data=inside_data)
            state = (STATE,) if type.effect.root().stateful and not keep else ()
            return FunctionType((*params, *state), (result, *state))
    inside_data = inside_data or isinstance(type, DataType)
    return type.map(lambda t: settled(t, names, keep=keep, inside_data=inside_data))
