"""How each node of a program may be split over devices: the rule of its factors, the axes of factors, and what can be split."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from weakref import WeakKeyDictionary

from deepx_graph.ir import Function, Node, Op
from deepx_graph.ir.factor_rule import POINTWISE, FactorRule, Mapped, Partitioning, Reading, result_shapes
from deepx_graph.ir.structure import PARAM
from deepx_graph.sharding.mesh import Axes, AxisRef, count_of
from deepx_graph.sharding.reshard import TensorLayout
from deepx_graph.types import TensorType, TupleType, as_tensor

FactorAxes = Mapping[int, Axes]
"""The axes along which each factor is split."""


def partitioning_of(node: Node) -> Partitioning | None:
    """How the operation of the node is split; None where it declares nothing."""
    return node.op.sharding or (POINTWISE if node.op.elementwise else None)


def is_border(node: Node) -> bool:
    """Whether a value goes into a computation by hand here, or comes out of one."""
    how = partitioning_of(node)
    return how is not None and how.borders


_RULES: WeakKeyDictionary[Node, FactorRule | None] = WeakKeyDictionary()
"""Those of nodes that are there: a rule is asked for in each way to split a node, and under each plan that is tried."""


def factor_rule(node: Node) -> FactorRule | None:
    """The factors of the node; None where its operation declares none or a size is not known."""
    if node not in _RULES:
        found = partitioning_of(node)
        _RULES[node] = found.rule(node) if found is not None and all(map(_is_static, (node, *node.inputs))) else None
    return _RULES[node]


def makes_constants(node: Node) -> bool:
    """Whether the node has no operands and is no parameter: each device can make of it what each user needs."""
    return not node.inputs and node.op is not PARAM and isinstance(node.type, TensorType) and node.op.total


def _is_static(node: Node) -> bool:
    types = node.type.items if isinstance(node.type, TupleType) else (node.type,)
    return all(isinstance(t, TensorType) and t.is_static for t in types)


def factor_rules(function: Function) -> Iterator[tuple[Node, FactorRule]]:
    """The nodes of a function that have a rule, with it, in their order."""
    for node in function.nodes:
        if (rule := factor_rule(node)) is not None:
            yield node, rule


# --- factors and axes ----------------------------------------------------------------------------------------------


def project(mapped: Mapped, dims: Sequence[Axes], sizes: Sequence[int]) -> dict[int, Axes]:
    """The axes of each factor of a tensor. A major factor must be split to the end before a minor one is."""
    found: dict[int, Axes] = {}
    for factors, atoms in zip(mapped, dims, strict=True):
        rest = list(atoms)
        for k, f in enumerate(factors):
            taken: list[AxisRef] = []
            left = sizes[f]
            while rest and (k == len(factors) - 1 or (left > 1 and left % rest[0].size == 0)):
                left //= rest[0].size
                taken.append(rest.pop(0))
            found[f] = tuple(taken)
            if left > 1 and k < len(factors) - 1:
                found |= dict.fromkeys(factors[k + 1:], ())
                break
    return found


def assemble(factors: Sequence[int], axes: Mapping[int, Axes], sizes: Sequence[int]) -> Axes:
    """The axes of a dimension whose factors are split so, up to the first that is not split to the end, the last one as it is."""
    found: list[AxisRef] = []
    for k, f in enumerate(factors):
        left = sizes[f]
        for a in axes.get(f, ()):
            if k < len(factors) - 1 and (left == 0 or left % a.size):
                return tuple(found)
            found.append(a)
            left //= a.size
        if left != 1:
            break
    return tuple(found)


def permuted_dims(rule: FactorRule, mapped: Sequence[Sequence[int]], axes: FactorAxes) -> Iterator[tuple[int, int]]:
    """The dimensions of an operand that are split along a permuted factor, with that."""
    for dim, factors in enumerate(mapped):
        for f in factors:
            if f in rule.permuted and axes.get(f):
                yield dim, f


def halos(rule: FactorRule, axes: FactorAxes) -> Iterator[tuple[int, int, int]]:
    """Operand, dimension and factor of what is read across the borders of parts."""
    for k, mapped in enumerate(rule.operands):
        for dim, f in permuted_dims(rule, mapped, axes):
            yield k, dim, f


def partial_axes(rule: FactorRule, axes: FactorAxes) -> Axes:
    """The axes over which the results of a node that is split so are still to be combined."""
    return tuple(a for f in sorted(rule.reduction) for a in axes.get(f, ()))


def combiner_of(node: Node) -> Op | None:
    """The op that combines partial results of the node; None where they cannot be."""
    how = partitioning_of(node)
    return how.combiner(node) if how and how.combiner else None


def reading_of(node: Node, rule: FactorRule, factor: int) -> Reading | None:
    """What is read along a permuted factor; None where it has to be whole."""
    how, dim = partitioning_of(node), _dimension(rule.results[0], factor)
    return None if how is None or how.reading is None or dim is None else how.reading(node, dim)


def result_size(node: Node, rule: FactorRule, factor: int) -> int:
    """The size of the dimension of the result that a permuted factor is."""
    dim = _dimension(rule.results[0], factor)
    assert dim is not None
    return result_shapes(node)[0][dim]


def _dimension(mapped: Sequence[Sequence[int]], factor: int) -> int | None:
    return next((d for d, factors in enumerate(mapped) if factor in factors), None)


def possible_axes(node: Node, rule: FactorRule, factor: int, axes: Axes) -> Axes:
    """The leading axes along which a factor of the node can be split; none where it has to be whole.

    A result that lacks a factor would be of one part alone, but for sums, which are combined, and for operations that know which
    part they compute: the state of random bits is the same on all devices.
    """
    how = partitioning_of(node)
    is_empty = 0 in (rule.sizes[factor], *map(math.prod, result_shapes(node)))
    lacking = [_dimension(mapped, factor) is None for mapped in rule.results]
    is_left_out = factor not in rule.reduction and (all(lacking) if factor in rule.positional else any(lacking))
    if (how is None or is_empty or is_left_out or factor in rule.replicated | rule.whole
            or (factor in rule.reduction and combiner_of(node) is None)
            or (factor in rule.positional and how.placed is None)
            or (factor in rule.permuted and reading_of(node, rule, factor) is None)):
        return ()
    return axes if _may_be_padded(node, rule, factor) else _even(rule.sizes[factor], axes)


def _may_be_padded(node: Node, rule: FactorRule, factor: int) -> bool:
    """Whether parts may be rounded up: the factor is a whole dimension wherever it is, and in a reduction can be masked."""
    shapes = [*(as_tensor(i.type).shape for i in node.inputs), *result_shapes(node)]
    for k, (mapped, shape) in enumerate(zip(rule.tensors, shapes, strict=True)):
        dim = _dimension(mapped, factor)
        if dim is None:
            continue
        if len(mapped[dim]) > 1 or shape[dim] == 0 or (shape[dim] != rule.sizes[factor] and factor not in rule.permuted):
            return False
        if factor in rule.reduction and k < len(rule.operands) and neutral_of(node, k) is None:
            return False
    return True


def neutral_of(node: Node, operand: int) -> object:
    """What an operand has beyond its end on a reduction factor; None where nothing changes nothing."""
    how = partitioning_of(node)
    return how.neutral(node, operand) if how and how.neutral else None


def _even(size: int, atoms: Axes) -> Axes:
    """The leading axes that split a size evenly."""
    count = 1
    for k, a in enumerate(atoms):
        count *= a.size
        if size % count or size == 0:
            return atoms[:k]
    return atoms


def expressible(rule: FactorRule, axes: dict[int, Axes]) -> dict[int, Axes]:
    """Without the axes of minor factors of dimensions whose major ones are not split to the end."""
    found = dict(axes)
    for mapped in rule.tensors:
        for factors in mapped:
            is_full = True
            for f in factors:
                if not is_full:
                    found[f] = ()
                is_full = is_full and count_of(found.get(f, ())) == rule.sizes[f]
    return found if found == axes else expressible(rule, found)


def layout_of(mapped: Sequence[Sequence[int]], axes: FactorAxes, sizes: Sequence[int]) -> TensorLayout:
    """How a tensor lies whose factors are split so."""
    return TensorLayout(tuple(assemble(factors, axes, sizes) for factors in mapped))
