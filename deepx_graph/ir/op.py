"""`Op`: the one declaration of an operation, and the only place that knows what it means.

Readers, printers, verifier, folder, fuser, engines, gradients, pictures and the documentation all read these fields; none
keeps a table of its own. A declaration is checked when it is made. Calling conventions, with `attrs` the attribute values in
declared order:

- `infer(types, *attrs) -> Type`: the rule for the type of the result. It may rely on what `operands`, `attrs` and `constraints`
  state, which is checked first whenever it is called, and raises InferError for what else does not fit.
- `eval(values, *attrs) -> value`: numpy arrays in, arrays of exactly the inferred dtype out (a tuple for a TupleType). The meaning.
- `staged(types, result, *attrs) -> function`: `eval` for operands of these types, whose sizes are known, with all that types and
  attributes decide worked out before: `function(*operands) -> value`, or None. It may take a numpy scalar for a tensor of rank 0.
- `kernel(*attrs) -> Expr | None`: the same meaning of one element, in the kernel vocabulary; None = never fused.
- `element(b, node, operands, at) -> scalar`: one element of the result of `node`, at the subscripts `at`, as a loop program
  (`loops/`) computes it from elements of the operands; a tuple for a TupleType. An elementwise op with a kernel needs none.
- `loops(b, node, operands, results)`: statements of a loop program that fill the results, where an element alone says too little.
  Of an op that has both they may raise NotExpressible before the first statement: then the element is taken.
- `place(s, shapes, attrs, at) -> Place`: of an op that only moves elements, which element of an operand each element of the result
  is (`ir/place.py`): a definition apart from `eval` and `element`, in which rules about places are proved.
- `flops(types, result, *attrs) -> int`: arithmetic operations of one use whose sizes are known, a multiply-add counting two;
  None where it does none, or the kernel or the body of the op says.
- `scratch(types, result, *attrs) -> int`: the most bytes that one `eval` of operands whose sizes are known, and which lie in any
  order, has in memory beside operands and results, apart from blocks of bounded size; None: the family's rule (`ir/evaluation.py`).
- `vjp(b, node, g) -> (cotangent | None, ...)`, one per input. `node` is the op's own node, so its result can be reused. `g` is the
  result's cotangent, a tuple of `Node | None` for a TupleType. The engine sums over broadcast operands and accumulates.
- `sharding`: how it is split over devices (`ir/factor_rule.py`). An elementwise op needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

from deepx_graph.errors import InferError, an, suggest
from deepx_graph.ir.constraint import VALUE, Relation
from deepx_graph.ir.signature import KINDS, REQUIRED, SEGMENTS, Attr, Operand, Result, portions
from deepx_graph.types import TensorType, Type

if TYPE_CHECKING:
    from deepx_graph.errors import Diagnostic
    from deepx_graph.ir.builder import Builder
    from deepx_graph.ir.collective import Exchange
    from deepx_graph.ir.factor_rule import Partitioning
    from deepx_graph.ir.function import Module
    from deepx_graph.ir.node import Node
    from deepx_graph.ir.place import Placing
    from deepx_graph.ir.scalar_expr import Expr
    from deepx_graph.loops import Affine, LazyTensor, LoopBuilder

Infer = Callable[..., Type]
Eval = Callable[..., Any]
Kernel = Callable[..., "Expr | None"]
Element = Callable[["LoopBuilder", "Node", Sequence[Any], tuple["Affine", ...]], Any]
Loops = Callable[["LoopBuilder", "Node", Sequence[Any], Sequence["LazyTensor"]], None]
Cotangents = Sequence["Node | None"]
Vjp = Callable[["Builder", "Node", Any], Cotangents]


class Monoid(Protocol):
    """An associative op as a reducer of whole arrays, which keep their dtype."""

    def __call__(self, array: Any, axes: tuple[int, ...], /) -> Any:
        """Reduced along the axes, which are dropped."""

    def unrounded(self, array: Any, axes: tuple[int, ...], /) -> Any:
        """Reduced along the axes, in the type in which that is done."""

    def quickly(self, array: Any, axes: tuple[int, ...], /) -> Any:
        """Reduced along the axes as engines do it."""

    def fold(self, init: Any, arrays: Iterable[Any], shape: tuple[int, ...]) -> Any:
        """The initial value in every position, combined with arrays of that shape one after the other."""

    def accumulator(self, array: Any, /) -> Any:
        """The type in which elements of the array are combined."""

    def scratch(self, operand: TensorType, axes: tuple[int, ...], /) -> int:
        """The bytes that a reduction along the axes takes beside operand and result."""

    def at(self, result: Any, positions: Any, values: Any) -> None:
        """Each value combined into its position of the flat `result`, in order."""

    def scan(self, array: Any, axis: int) -> Any:
        """The running results along an axis."""


@dataclass(frozen=True, eq=False)
class Op:
    """An operation. See the module's text for the calling conventions; `ops/` for how families are declared."""

    name: str
    summary: str
    operands: tuple[Operand, ...] = ()
    attrs: tuple[Attr, ...] = ()
    infer: Infer = None  # type: ignore[assignment]
    eval: Eval | None = None
    staged: Callable[..., Callable[..., Any] | None] | None = None
    kernel: Kernel | None = None
    element: Element | None = None
    loops: Loops | None = None
    place: Placing | None = None
    vjp: Vjp | None = None
    sharding: Partitioning | None = None
    flops: Callable[..., int] | None = None
    scratch: Callable[..., int] | None = None
    results: tuple[Result, ...] = (Result(),)
    constraints: tuple[Relation, ...] = ()
    """What holds between several operands and attributes."""
    assembly: str | None = None
    """How a use is written in the sea form, after the op's name (`text/sea/assembly.py`); None: operands, then attributes."""

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
    monoid: Monoid | None = None
    """How it reduces arrays. Needs `identity`."""
    view: bool = False
    """`eval` may return a view of its first operand instead of a copy."""
    algebraic: bool = False
    """Of floats and complex numbers `eval`, beside what its bodies say, only moves, compares, adds and multiplies elements, with no
    other constant than 0 and 1: it means the same over any ring whose elements are ordered. So does an op that is a `view`."""
    total: bool = True
    """Computing it always ends and never fails, so it may be computed where the program would not have."""
    axes: Callable[..., tuple[int | None, ...] | None] | None = None
    """`axes(operand dims, *attrs)`: along which axis of the result each axis of the operand lies, None for one of size 1 that is
    dropped; None in all where elements come into another order. Of ops that only repeat elements, add and drop axes."""
    foldable: bool = True
    """Evaluated at optimisation time when all operands are constants."""
    exchange: Exchange | None = None
    """How devices meet here; such a node is run by all of them together, and `eval` is its meaning on one device."""
    ready: Callable[..., str | None] | None = None
    """`ready(world, *attrs)`: what keeps a run from starting, or None."""

    in_module: Callable[[Module, Node], Iterator[Diagnostic]] | None = None
    """What is wrong with a use for the module that it is in: with the function that it names, with its data type."""

    stops_gradient: bool = False
    """No derivative passes, whatever it is applied to."""

    conceals: str = ""
    """Out of what, in words, its first result is read when no derivative passes through that."""

    no_gradient_by: tuple[str, ...] = ()
    """Operands by which no derivative is known although there is one by others; a gradient that needs it is refused."""

    ordered: tuple[str, ...] = ()
    """Two operands of which the first must nowhere be greater than the second, or the result is undefined."""

    domain: tuple[float, float] = (-2.0, 2.0)
    """Where the laws sample float operands: inside, the op is smooth and its gradient finite."""
    samples: Callable[[Any], Sequence[tuple[Sequence[Any], dict[str, Any]]]] | None = None
    """`samples(rng)`: (operand arrays, attributes) for the laws, where the default (same-shaped arrays) does not do."""
    example: str = ""
    """A program in the sea form that uses the op, where none can be made of samples."""
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
        rule, single = self.infer, all(o.single for o in self.operands)
        tests = [(k, o) for k, o in enumerate(self.operands) if o.type is not VALUE]
        if not (tests or self.constraints):
            return

        def infer(types: Sequence[Type], *attrs: Any) -> Type:
            if not single:
                self.check_runs(types, attrs)
            else:
                for k, operand in tests:
                    if not operand.type.holds(types[k]):
                        raise _misfit(operand, types[k], k)
            if self.constraints:
                self.check_relations(types, attrs)
            return rule(types, *attrs)

        object.__setattr__(self, "infer", infer)

    def __repr__(self) -> str:
        return f"Op({self.name})"

    def __reduce__(self) -> str:
        raise TypeError("ops are not pickled")

    @cached_property
    def attr_index(self) -> dict[str, int]:
        """Attribute name to its index in a node's `attrs`."""
        return {a.name: i for i, a in enumerate(self.attrs)}

    @cached_property
    def function_attrs(self) -> tuple[int, ...]:
        """The numbers of the attributes that hold functions."""
        return tuple(k for k, a in enumerate(self.attrs) if a.kind == "function")

    @cached_property
    def variadic(self) -> bool:
        return any(o.variadic for o in self.operands)

    @cached_property
    def operand_names(self) -> frozenset[str]:
        return frozenset(o.name for o in self.operands)

    def named(self, inputs: Sequence[Any], attrs: Sequence[Any] = ()) -> dict[str, Any]:
        """Inputs (nodes, types or values) by operand name: a tuple for a variadic operand, None for one left out."""
        found: dict[str, Any] = {}
        at = 0
        for operand, size in zip(self.operands, self._portions(len(inputs), attrs), strict=True):
            taken = tuple(inputs[at : at + size])
            found[operand.name] = taken if operand.variadic else taken[0] if taken else None
            at += size
        return found

    def adapt(self, inputs: Sequence[Any], attrs: Sequence[Any] = ()) -> SimpleNamespace:
        """Inputs and attribute values by name: `op.adapt(types, attrs).lhs`."""
        return SimpleNamespace(**self.named(inputs, attrs), **{a.name: v for a, v in zip(self.attrs, attrs, strict=False)})

    def arrange(self, inputs: Sequence[Any], given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Operands that are given by name, after those given by position, and what is left: the attributes.

        Raises InferError for an operand that is missing, or given twice.
        """
        ordered, attrs, sizes = list(inputs), dict(given), []
        for k, operand in enumerate(self.operands):
            if k < len(inputs):
                if operand.name in attrs:
                    raise InferError(f"operand '{operand.name}' is given by position and by name")
                sizes.append(1)
                continue
            value = attrs.pop(operand.name, () if operand.variadic else None)
            if value is None and operand.single:
                raise InferError(f"operand '{operand.name}' is missing", expected=f"{self.name}({self.shown_operands})")
            values = tuple(value) if operand.variadic else () if value is None else (value,)
            ordered += values
            sizes.append(len(values))
        if SEGMENTS in self.attr_index:
            attrs.setdefault(SEGMENTS, tuple(sizes))
        return tuple(ordered), attrs

    @property
    def shown_operands(self) -> str:
        return ", ".join(o.shown for o in self.operands)

    def _portions(self, count: int, attrs: Sequence[Any] = ()) -> tuple[int, ...]:
        at = self.attr_index.get(SEGMENTS)
        if at is not None and at < len(attrs):
            return portions(self.operands, count, attrs[at])
        found = self._known_portions.get(count)
        if found is None:
            found = portions(self.operands, count)
            if count < 64:  # what recurs
                self._known_portions[count] = found
        return found

    @cached_property
    def _known_portions(self) -> dict[int, tuple[int, ...]]:
        return {}

    def check_runs(self, types: Sequence[Type], attrs: Sequence[Any]) -> None:
        """Raises InferError, in the words of its constraint, for an operand of a wrong type."""
        at = 0
        for operand, size in zip(self.operands, self._portions(len(types), attrs), strict=True):
            for k in range(at, at + size):
                if not operand.type.holds(types[k]):
                    raise _misfit(operand, types[k], k)
            at += size

    def check_relations(self, types: Sequence[Type], attrs: Sequence[Any]) -> None:
        """Raises InferError, in its own words, for a constraint between operands and attributes that does not hold."""
        if self._positions is not None:
            given = (*types, *attrs)
            for relation, positions in self._positions:
                if not relation.holds(*[given[p] for p in positions]):
                    raise self._broken(relation, types, attrs)
            return
        named = self._by_name(types, attrs)
        for relation in self.constraints:
            if not relation.holds(*[named[n] for n in relation.names]):
                raise self._broken(relation, types, attrs)

    @cached_property
    def _positions(self) -> list[tuple[Relation, tuple[int, ...]]] | None:
        """Where what each constraint is about stands among operands and attributes; None where operands may be many or none."""
        if not all(o.single for o in self.operands):
            return None
        order = [o.name for o in self.operands] + [a.name for a in self.attrs]
        return [(r, tuple(map(order.index, r.names))) for r in self.constraints]

    def _by_name(self, types: Sequence[Type], attrs: Sequence[Any]) -> dict[str, Any]:
        return self.named(types, attrs) | {a.name: v for a, v in zip(self.attrs, attrs, strict=True)}

    def _broken(self, relation: Relation, types: Sequence[Type], attrs: Sequence[Any]) -> InferError:
        given = self._by_name(types, attrs)
        named = [n for n in relation.names if n in self.operand_names]
        at = list(given).index(named[-1]) if named and self._positions is not None else None
        return InferError("; ".join(f"{n} is {_shown(given[n])}" for n in relation.names), operand=at, expected=relation.words)

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
        if attr.check is not None and value is not attr.default and not attr.check.holds(value):
            raise InferError(f"attribute '{attr.name}' of {self.name}: {value!r} is not {attr.check.words}",
                             expected=attr.check.words)
        return value

    def check_arity(self, count: int) -> None:
        """Raises InferError when the op does not take `count` inputs."""
        if SEGMENTS in self.attr_index:
            return
        try:
            self._portions(count)
        except InferError as e:
            raise InferError(f"{self.name} {e.message}", expected=f"{self.name}{e.expected}") from None


def declared(module: Mapping[str, Any]) -> dict[str, Op]:
    """The ops that a module declares, in their order, by name: what its names stand for that are annotated as `Op`."""
    return {name: module[name] for name, type in module["__annotations__"].items() if type in ("Op", Op)}


def _misfit(operand: Operand, type: Type, at: int) -> InferError:
    return InferError(f"operand {at}, {operand.name}, is {an(type)}", operand=at, expected=operand.type.words)


def _shown(value: Any) -> str:
    """A type, a value, or several."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))})"
    return value.name if type(value).__name__ == "Function" else str(value)
