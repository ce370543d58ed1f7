"""`Op`: the one declaration of an operation, and the only place that knows what it means.

Readers, printers, verifier, folder, fuser, engines, gradients, pictures and the documentation all read these fields; none
keeps a table of its own. A declaration is checked when it is made. Calling conventions, with `attrs` the attribute values in
declared order:

- `infer(types, *attrs) -> Type` raises InferError when they do not fit.
- `eval(values, *attrs) -> value`: numpy arrays in, arrays of exactly the inferred dtype out (a tuple for a TupleType). The meaning.
- `kernel(*attrs) -> Expr | None`: the same meaning of one element, in the kernel vocabulary; None = never fused.
- `vjp(b, node, g) -> (cotangent | None, ...)`, one per input. `node` is the op's own node, so its result can be reused. `g` is the
  result's cotangent, a tuple of `Node | None` for a TupleType. The engine sums over broadcast operands and accumulates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from deepx_graph.errors import InferError, suggest
from deepx_graph.types import Type

if TYPE_CHECKING:
    from deepx_graph.ir.builder import Builder
    from deepx_graph.ir.kernel import Expr
    from deepx_graph.ir.node import Node

Infer = Callable[..., Type]
Eval = Callable[..., Any]
Kernel = Callable[..., "Expr | None"]
Cotangents = Sequence["Node | None"]
Vjp = Callable[["Builder", "Node", Any], Cotangents]

REQUIRED: Any = type("Required", (), {"__repr__": lambda _: "required"})()
"""Marks an attribute without a default."""


@dataclass(frozen=True)
class Operand:
    """One operand, or a run of them: `variadic` takes any number; several such operands of an op take equally many."""

    name: str
    summary: str = ""
    variadic: bool = False


@dataclass(frozen=True)
class Attr:
    """An attribute: `kind` names the form of its value, `check` returns a complaint or None.

    Values are hashable and frozen: int, float, bool, str, DType, Type, Literal, Function, and tuples of these.
    """

    name: str
    kind: str
    default: Any = REQUIRED
    summary: str = ""
    check: Callable[[Any], str | None] | None = None


KINDS: dict[str, Callable[[Any], bool]] = {
    "int": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "float": lambda v: isinstance(v, float),
    "bool": lambda v: isinstance(v, bool),
    "str": lambda v: isinstance(v, str),
    "ints": lambda v: isinstance(v, tuple) and all(isinstance(i, int) and not isinstance(i, bool) for i in v),
    "dims": lambda v: isinstance(v, tuple) and all(isinstance(i, (int, str)) and not isinstance(i, bool) for i in v),
    "dtype": lambda v: type(v).__name__ == "DType",
    "type": lambda v: isinstance(v, Type),
    "literal": lambda v: type(v).__name__ == "Literal",
    "function": lambda v: type(v).__name__ == "Function",
    "any": lambda v: hash(v) is not None,
}
"""The forms an attribute value can have."""


def one_of(*allowed: str) -> Callable[[Any], str | None]:
    """A check: the value is one of these words."""
    return lambda v: None if v in allowed else f"'{v}' is not one of {', '.join(allowed)}"


def at_least(minimum: int) -> Callable[[Any], str | None]:
    """A check: the int, or every int of the tuple, is not below `minimum`."""
    return lambda v: None if all(i >= minimum for i in (v if isinstance(v, tuple) else (v,))) else f"must be >= {minimum}"


@dataclass(frozen=True, eq=False)
class Op:
    """An operation. See the module's text for the calling conventions; `ops/` for how families are declared."""

    name: str
    summary: str
    operands: tuple[Operand, ...] = ()
    attrs: tuple[Attr, ...] = ()
    infer: Infer = None  # type: ignore[assignment]
    eval: Eval | None = None
    kernel: Kernel | None = None
    vjp: Vjp | None = None

    elementwise: bool = False
    """Result element i depends on element i of each operand alone; rank-0 operands stand for all elements."""
    commutative: bool = False
    associative: bool = False
    """Over the integers and reals; floats are reassociated only under fast-math."""
    idempotent: bool = False
    """op(x, x) = x."""
    involution: bool = False
    """op(op(x)) = x."""
    identity: Any = None
    """The number e with op(x, e) = x, or a function of the dtype giving it (-inf, the least int, ...)."""
    absorber: Any = None
    """The number z with op(x, z) = z, for integers and bool."""
    monoid: Callable[..., Any] | None = None
    """As a reducer: `monoid(array, axes) -> array` of the same dtype, those axes dropped. Needs `identity`."""
    view: bool = False
    """`eval` may return a view of its first operand instead of a copy."""
    foldable: bool = True
    """Evaluated at optimisation time when all operands are constants."""

    domain: tuple[float, float] = (-2.0, 2.0)
    """Where the laws sample float operands: inside, the op is smooth and its gradient finite."""
    samples: Callable[[Any], Sequence[tuple[Sequence[Any], dict[str, Any]]]] | None = None
    """`samples(rng)`: (operand arrays, attributes) for the laws, where the default (same-shaped arrays) does not do."""
    source: str = ""
    """Which document defines it."""

    def __post_init__(self) -> None:
        problems = [
            (not self.summary, "has no summary"),
            (self.infer is None, "has no infer"),
            (len({o.name for o in self.operands} | {a.name for a in self.attrs}) < len(self.operands) + len(self.attrs),
             "uses a name twice"),
            (any(a.kind not in KINDS for a in self.attrs), "has an attribute of unknown kind"),
            (self.monoid is not None and self.identity is None, "is a monoid without identity"),
        ]
        for wrong, what in problems:
            if wrong:
                raise ValueError(f"op {self.name!r} {what}")

    def __repr__(self) -> str:
        return f"Op({self.name})"

    def __reduce__(self) -> str:
        raise TypeError("ops are not pickled")

    @cached_property
    def attr_index(self) -> dict[str, int]:
        """Attribute name to its place in a node's `attrs`."""
        return {a.name: i for i, a in enumerate(self.attrs)}

    @cached_property
    def variadic(self) -> bool:
        return any(o.variadic for o in self.operands)

    def named(self, inputs: Sequence[Any]) -> dict[str, Any]:
        """Inputs (nodes, types or values) by operand name; a tuple for a variadic operand."""
        runs = sum(o.variadic for o in self.operands)
        each = (len(inputs) - len(self.operands) + runs) // (runs or 1)
        found: dict[str, Any] = {}
        at = 0
        for operand in self.operands:
            found[operand.name] = tuple(inputs[at : at + each]) if operand.variadic else inputs[at]
            at += each if operand.variadic else 1
        return found

    def identity_for(self, dtype: Any) -> Any:
        """The identity element in `dtype`, or None."""
        return self.identity(dtype) if callable(self.identity) else self.identity

    def bind(self, given: dict[str, Any]) -> tuple[Any, ...]:
        """Attribute values in declared order, defaults filled in. Raises InferError for a missing, unknown or bad one."""
        if not self.attrs and not given:
            return ()
        for name in given:
            if name not in self.attr_index:
                raise InferError(f"{self.name} has no attribute '{name}'", hint=suggest(name, self.attr_index))
        return tuple(self._bound(a, given.get(a.name, a.default)) for a in self.attrs)

    def _bound(self, attr: Attr, value: Any) -> Any:
        if value is REQUIRED:
            raise InferError(f"{self.name} needs the attribute '{attr.name}'", expected=f"{attr.name} = {attr.kind}")
        if not KINDS[attr.kind](value) and value != attr.default:
            raise InferError(f"attribute '{attr.name}' of {self.name} is {value!r}", expected=attr.kind)
        complaint = attr.check(value) if attr.check else None
        if complaint:
            raise InferError(f"attribute '{attr.name}' of {self.name}: {complaint}")
        return value

    def check_arity(self, count: int) -> None:
        """Raises InferError when the op does not take `count` inputs."""
        runs = sum(o.variadic for o in self.operands)
        least = len(self.operands) - runs
        if count < least or (count - least) % (runs or count + 1):
            names = ", ".join(o.name + ("..." if o.variadic else "") for o in self.operands)
            raise InferError(f"{self.name} takes {'at least ' if self.variadic else ''}{least} operands and got {count}",
                             expected=f"{self.name}({names})")
