"""`FactorRule`: which dimensions of an operation's tensors are split together, as Shardy's op sharding rules say it.

Each dimension of an operand or result is a product of factors, the major one first. A factor that stands in several tensors is one
loop of the operation; splitting that loop over devices splits all these dimensions alike. Nothing here knows meshes or devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from deepx_graph.types import TensorType, TupleType, Type

if TYPE_CHECKING:
    from deepx_graph.ir.builder import Builder
    from deepx_graph.ir.node import Node
    from deepx_graph.ir.op import Op

Factors = tuple[int, ...]
"""The factors of one dimension by number, the major one first."""

Mapped = tuple[Factors, ...]
"""The factors of each dimension of a tensor."""

_LETTERS = ascii_lowercase[ascii_lowercase.index("i"):]


@dataclass(frozen=True)
class FactorRule:
    """The factors of an operation's tensors, their sizes, and what splitting one of them needs.

    `reduction`: partial results are combined; `replicated`: must be whole on every device; `permuted`: elements move along it,
    so devices would exchange some. Factors that are none of these are split for nothing.
    """

    operands: tuple[Mapped, ...]
    results: tuple[Mapped, ...]
    sizes: tuple[int, ...]
    reduction: frozenset[int] = frozenset()
    replicated: frozenset[int] = frozenset()
    permuted: frozenset[int] = frozenset()
    blocked: frozenset[int] = frozenset()
    """Shardings are not propagated along these."""
    positional: frozenset[int] = frozenset()
    """Positions on these are counted from the beginning, by an operand or by the operation: a part is not done as it stands."""
    whole: frozenset[int] = frozenset()
    """These stay whole, as windows of several elements at computed positions may cross the borders of parts."""

    @property
    def tensors(self) -> tuple[Mapped, ...]:
        """Operands, then results."""
        return (*self.operands, *self.results)

    def splits_freely(self, factor: int) -> bool:
        """Whether the operation on a part of the factor gives that part of the results, or a part of their sum."""
        return factor not in self.replicated | self.permuted | self.positional | self.whole

    def __str__(self) -> str:
        """As Shardy prints it: `([i, k], [k, j])->([i, j]) {i=8, j=6, k=4} reduction={k}`."""
        used = {f for t in self.tensors for dim in t for f in dim}
        sizes = ", ".join(f"{letter(f)}={self.sizes[f]}" for f in range(len(self.sizes)) if f in used)
        kinds = [("reduction", self.reduction), ("need_replication", self.replicated), ("permutation", self.permuted),
                 ("blocked_propagation", self.blocked)]
        said = "".join(f" {word}={{{', '.join(map(letter, sorted(found)))}}}" for word, found in kinds if found)
        return f"({_shown(self.operands)})->({_shown(self.results)})" + (f" {{{sizes}}}" if sizes else "") + said


def letter(factor: int) -> str:
    """How a rule is printed to call a factor."""
    return _LETTERS[factor] if factor < len(_LETTERS) else f"z_{factor - len(_LETTERS) + 1}"


def _shown(tensors: Sequence[Mapped]) -> str:
    return ", ".join(f"[{', '.join(''.join(map(letter, dim)) for dim in t)}]" for t in tensors)


@dataclass(frozen=True)
class Reading:
    """The positions of its operands that an element at r of a permuted factor reads: `extent`, from r * stride - low on.

    `mirrored`: these positions count from the end. `fill` is the operand, a scalar, whose value is read outside, `ZERO` for
    zeros, or None where nothing is. `attrs(size)` gives the entries, at index `at`, of the attributes of the operation on what
    one device has read, an operand of that size that begins where the first window does.
    """

    stride: int = 1
    low: int = 0
    extent: int = 1
    mirrored: bool = False
    fill: int | None = None
    attrs: Callable[[int], Mapping[str, int]] = field(default=lambda size: {}, compare=False)
    at: int = 0


ZERO = -1
"""In place of an operand that fills: zeros."""


@dataclass(frozen=True)
class Position:
    """Where the part of one device begins on a factor (a scalar node, i32), of how many parts, and how long each is."""

    start: Node
    size: int
    index: Node
    """The number of the part."""


@dataclass(frozen=True)
class Partitioning:
    """How an operation is split over devices: its rule, and its attributes on the part of one device where they state sizes.

    `rule(node)` is asked of nodes whose sizes are known; None where one is computed whole. `attrs(node, operands, results)` gives
    the attribute values for the local shapes of operands and results; without it they are the node's own. `combiner(node)` is the
    op that combines the partial results of a split reduction factor, or None where they cannot be combined; without it none can.
    """

    rule: Callable[[Node], FactorRule | None]
    attrs: Callable[[Node, Sequence[tuple[int, ...]], Sequence[tuple[int, ...]]], tuple[Any, ...]] | None = None
    combiner: Callable[[Node], Op | None] | None = None
    neutral: Callable[[Node, int], Any] | None = None
    """`neutral(node, k)`: what operand k holds beyond its end on a reduction factor for that not to count; None: nothing does."""
    reading: Callable[[Node, int], Reading | None] | None = None
    """`reading(node, d)`: what is read along the permuted factor that is dimension d of the result; None: only as a whole."""
    placed: Callable[[Builder, Node, Sequence[Node], tuple[Any, ...], Mapping[int, Position]], Node] | None = None
    """`placed(b, node, operands, attrs, positions)`: the result on parts of positional factors."""
    repeats: bool = False
    """Whether the result repeats the operand, as of broadcasts: how that lies says least of how the result is to."""
    borders: bool = False
    """Whether it passes a value over a border, on whose sides that lies alike: it never waits for others, as a data-flow edge."""
    selects: bool = False
    """Whether a part at computed positions is taken or put: how the whole lies says most of how the result is to."""


@dataclass
class RuleBuilder:
    """Collects the factors of one node, each with the dimension of every tensor of which it is the next minor part."""

    node: Node
    sizes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.operands = [tensor_shape(i.type) for i in self.node.inputs]
        self.results = result_shapes(self.node)
        self._dims: dict[tuple[int, int], list[int]] = {}
        self._kinds: dict[str, set[int]] = {}

    def factor(self, size: int, operands: Sequence[int | None], results: Sequence[int | None] = (), *kinds: str) -> int:
        """A new factor: its dimension in each operand and result, None where it has none; `kinds` name fields of FactorRule."""
        number = len(self.sizes)
        self.sizes.append(size)
        for tensor, dim in [*enumerate(operands), *enumerate(results, len(self.operands))]:
            if dim is not None:
                self._dims.setdefault((tensor, dim), []).append(number)
        for kind in kinds:
            self._kinds.setdefault(kind, set()).add(number)
        return number

    def of_operand(self, dim: int, *kinds: str, operand: int = 0) -> int:
        """A new factor that is a whole dimension of one operand alone."""
        shape = self.operands[operand]
        return self.factor(shape[dim], [dim if k == operand else None for k in range(len(self.operands))], (), *kinds)

    def of_result(self, dim: int, *kinds: str) -> int:
        """A new factor that is a whole dimension of all results alone."""
        return self.factor(self.results[0][dim], (), [dim] * len(self.results), *kinds)

    def rule(self) -> FactorRule:
        """The rule; a dimension of which nothing was said has a factor of size 1 of its own."""
        count = len(self.operands)
        mapped = [tuple(self._mapped(t, d) for d in range(len(shape))) for t, shape in enumerate([*self.operands, *self.results])]
        return FactorRule(tuple(mapped[:count]), tuple(mapped[count:]), tuple(self.sizes),
                          **{k: frozenset(v) for k, v in self._kinds.items()})

    def _mapped(self, tensor: int, dim: int) -> Factors:
        if (tensor, dim) not in self._dims:
            self._dims[tensor, dim] = [len(self.sizes)]
            self.sizes.append(1)
        return tuple(self._dims[tensor, dim])


def tensor_shape(type: Type) -> tuple[int, ...]:
    """The sizes of a tensor; none for anything else, which has no dimensions to split."""
    return type.shape if isinstance(type, TensorType) else ()


def result_shapes(node: Node) -> list[tuple[int, ...]]:
    """The sizes of each result of a node."""
    return [tensor_shape(t) for t in (node.type.items if isinstance(node.type, TupleType) else (node.type,))]


def _pointwise(node: Node) -> FactorRule:
    r = RuleBuilder(node)
    for k, size in enumerate(r.results[0]):
        r.factor(size, [k if shape else None for shape in r.operands], [k] * len(r.results))
    return r.rule()


POINTWISE = Partitioning(_pointwise)
"""Of operations whose results lie as their operands do, beside operands of rank 0."""


def placed_in(rule: str, module: str = "placed") -> Callable[..., Any]:
    """The function of that name in a module of `ops/factors/`, which uses operations declared later; found when first used."""

    def found(*args: Any) -> Any:
        return getattr(import_module(f"deepx_graph.ops.factors.{module}"), rule)(*args)

    return found
