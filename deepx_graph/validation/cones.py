"""Two nodes held against each other over what they have in common: an instance of one rewrite, checked by itself.

A rewrite puts a node in the place of another, and both stand over the same older nodes. So both are followed down only as far as
where they meet: the *cut*. The nodes of the cut are given values of their types, those at the edges among them, and the few
nodes above are evaluated. That costs as much as the rewrite is large, whatever the program, and edges reach what they are meant
for. Where the values differ the cut was perhaps too high, as a rewrite may use what is known of an operand: it is moved down.

Where everything above the cut is elementwise the shapes do not matter: vectors of many different elements stand for the operands.

Alive2 (Lopes et al., PLDI 2021) validates each transformation of LLVM by itself in this sense, by a solver in place of samples.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from deepx_graph.errors import DeepxGraphError
from deepx_graph.ir import Module, Node
from deepx_graph.ir.structure import CONSTANT, PARAM, PHI, REGION, branch_count, branch_width, index_of, taken_branch, value_of
from deepx_graph.literal import Array
from deepx_graph.numerics.noise import MARGIN, RUNS, distances, moved
from deepx_graph.numerics.observed import Value, tensors
from deepx_graph.ops.contract.reduce import is_broadcast
from deepx_graph.types import ANY, TensorType, TupleType, Type
from deepx_graph.types import leaves as leaf_types
from deepx_graph.validation.discrepancy import Discrepancy, discrepancy, worst
from deepx_graph.validation.samples import Draw, cached_sample, positions, varied

DRAWS: tuple[Draw, ...] = (positions, varied)
"""The samples with which a cut is filled whose shapes matter."""

LARGEST = 1 << 14
"""Elements of all values above a cut and of it, beyond which it is not evaluated."""

SMALL = 12
"""Nodes above a cut, beyond which one sample has to do."""

FEW, REPEATED = 8, 4
"""Elements of all leaves up to which all samples are drawn so many times."""

MOST = 400
"""Nodes above a cut, beyond which it is not moved further down."""


class NoValueError(Exception):
    """A node has no value here; says why."""


Same = Mapping[Node, Node]
"""Nodes that stand for others, which are newer, by what was found before."""


@dataclass(frozen=True)
class Cut:
    """Two nodes, the nodes below which they stand over the same, and all nodes between, older ones first."""

    before: Node
    after: Node
    leaves: tuple[Node, ...]
    inner: tuple[Node, ...]
    same: Same
    elementwise: bool
    """Whether elements of all values depend on those at the same position alone, so that shapes do not matter."""

    @property
    def final(self) -> bool:
        """Whether it can be moved no further down."""
        return len(self.inner) > MOST or not any(map(opens, self.leaves))

    @property
    def free(self) -> bool:
        """Whether its leaves may have any value: they are parameters."""
        return all(n.op is PARAM for n in self.leaves)

    def leaves_of_functions(self, module: Module) -> bool:
        """Whether a leaf is a parameter of a function that others call, with arguments that may all be alike."""
        called = {p for f in module.functions if f is not module.entry for p in f.params}
        return not called.isdisjoint(self.leaves)

    @property
    def elements(self) -> int:
        """The elements of all values; more than `LARGEST` where a size is not known."""
        return sum(elements(n.type) for n in (*self.leaves, *self.inner))

    def with_shapes(self) -> Cut:
        """The cut for values of the leaves' own shapes."""
        return replace(self, elementwise=False)

    def lower(self) -> Cut:
        """The cut moved down by one node everywhere."""
        inner, leaves = dict.fromkeys(self.inner), dict[Node, None]()
        opened = [n for n in self.leaves if opens(n)]
        inner.update(dict.fromkeys(opened))
        for node in (*(n for n in self.leaves if n not in inner), *(self.same.get(i, i) for n in opened for i in n.inputs)):
            if node.op is CONSTANT:
                inner[node] = None
            elif node not in inner:
                leaves[node] = None
        return _arranged(self.before, self.after, leaves, inner, self.same)

    def bottom(self) -> Cut:
        """The cut moved down as far as it goes."""
        cut = self
        while not cut.final:
            cut = cut.lower()
        return cut

    def fillings(self, first: int = 0) -> Iterator[dict[Node, Any]]:
        """Values for the leaves, once for each sample; another `first` gives others.

        Raises NoValueError where there are none, or they are too large.
        """
        if self.elementwise:
            yield {n: _vector(n.type, first + k) for k, n in enumerate(self.leaves)}
        elif self.elements > LARGEST:
            raise NoValueError("its values are too large")
        else:
            few = sum(elements(n.type) for n in self.leaves) <= FEW
            for again in range(REPEATED if few and self.leaves else 1):  # one number at a time shows little
                for draw in DRAWS[: 1 if not self.leaves or len(self.inner) > SMALL else None]:
                    yield {n: sample_value(n.type, draw, first + k + 50 * again) for k, n in enumerate(self.leaves)}

    def values(self, filling: Mapping[Node, Any], rng: np.random.Generator | None = None) -> tuple[Any, Any]:
        """The values of the two nodes; with a generator every result is moved by its last place. Raises NoValueError."""
        known, same, vectors = dict(filling), self.same, self.elementwise
        for node in self.inner:
            if node.op is CONSTANT:
                literal = value_of(node)
                known[node] = np.asarray(literal.splat_value) if vectors else literal.array
                continue
            operands = [known[same.get(i, i)] for i in node.inputs]
            value = operands[0] if vectors and repeats_a_scalar(node) else applied(node, operands)
            known[node] = value if rng is None or node.op.view else moved(value, rng)
        return known[self.before], known[self.after]

    @property
    def key(self) -> tuple[Any, ...]:
        """What cuts have in common that are the same but for the identity of nodes, and for shapes where these do not matter."""
        number = {n: k for k, n in enumerate((*self.leaves, *self.inner))}
        same, vectors = self.same, self.elementwise
        rows = [(n.op, *(_of_any_shape(n) if vectors else (n.attrs, n.type)), *[number[same.get(i, i)] for i in n.inputs])
                for n in self.inner]
        leaves = [n.type.dtype if vectors and isinstance(n.type, TensorType) else n.type for n in self.leaves]
        return number[self.before], number[self.after], tuple(leaves), tuple(rows)

    def difference(self, filling: Mapping[Node, Any]) -> Discrepancy | None:
        """How the two differ by more than rounding makes of them. Raises NoValueError."""
        pair = self.values(filling)
        want, got = map(tensors, pair)
        if len(want) != len(got):
            raise NoValueError("it has no arrays")
        if self.elementwise:  # a scalar stands for all elements
            pairs = [np.broadcast_arrays(w, g) for w, g in zip(want, got, strict=True)]
            want, got = tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)
        return beyond_rounding(want, got, lambda rng: tensors(self.values(filling, rng)[0]))


def common_cut(before: Node, after: Node, same: Same) -> Cut:
    """Where the two nodes meet, going down from both, the newest node first."""
    seen: dict[Node, int] = {}
    heap: list[tuple[int, Node]] = []
    waiting = [0, 0, 0, 0]  # nodes to be visited, by who has seen them: 1 before, 2 after, 3 both

    leaves, inner = dict[Node, None](), dict[Node, None]()

    def see(node: Node, side: int) -> None:
        if node.op is CONSTANT:
            inner[node] = None
            return
        old = seen.get(node, 0)
        seen[node] = old | side
        if not old:
            heapq.heappush(heap, (-node.serial, node))
        else:
            waiting[old] -= 1
        waiting[old | side] += 1

    see(before, 1)
    see(after, 2)
    while heap:
        node = heapq.heappop(heap)[1]
        side = seen[node]
        waiting[side] -= 1
        alone = side != 3 and not waiting[3] and not waiting[3 - side]
        if side == 3 or not opens(node) or (alone and node is not before and node is not after):
            leaves[node] = None
        else:
            inner[node] = None
            for i in node.inputs:
                see(same.get(i, i), side)
    return _arranged(before, after, leaves, inner, same)


def _arranged(before: Node, after: Node, leaves: Iterable[Node], inner: Iterable[Node], same: Same) -> Cut:
    order = sorted(inner, key=lambda n: (n.op is not CONSTANT, n.serial))
    vectors = all(_of_elements(n) or (n.op is CONSTANT and value_of(n).splat_value is not None) or repeats_a_scalar(n)
                  for n in order)
    return Cut(before, after, tuple(leaves), tuple(order), same, vectors and all(isinstance(n.type, TensorType) for n in leaves))


def _of_elements(node: Node) -> bool:
    """Whether it is elementwise, and has the shape of an operand: a wrong rewrite may leave scalars alone."""
    return node.op.elementwise and (_is_scalar(node) or not all(map(_is_scalar, node.inputs)))


def _is_scalar(node: Node) -> bool:
    return isinstance(node.type, TensorType) and node.type.dims == ()


def repeats_a_scalar(node: Node) -> bool:
    """Whether each element of the result is the operand's one element: where elements are looked at, it is the operand."""
    return is_broadcast(node) and _is_scalar(node.inputs[0])


def _of_any_shape(node: Node) -> tuple[Any, ...]:
    """What an operation on elements computes, whatever the shape; of a constant its bits, so that the sign of zero counts."""
    assert isinstance(node.type, TensorType)
    if node.op is CONSTANT:
        return np.asarray(value_of(node).splat_value).tobytes(), node.type.dtype
    return () if repeats_a_scalar(node) else node.attrs, node.type.dtype


def opens(node: Node) -> bool:
    """Whether the value of a node is computed here from those of its inputs."""
    op = node.op
    return (op.eval is not None and op.exchange is None and op.ready is None and op is not CONSTANT) or op is REGION or op is PHI


def applied(node: Node, operands: Sequence[Any]) -> Any:
    """The value of a node that opens, its loop and branch at hand. Raises NoValueError."""
    op = node.op
    if op is PHI:
        return operands[0][index_of(node)]
    if op is REGION:
        width = branch_width(node)
        first = 1 + width * taken_branch(operands[0], branch_count(node))
        return tuple(operands[first : first + width])
    assert op.eval is not None
    try:
        return op.eval(operands, *node.attrs)
    except (DeepxGraphError, ArithmeticError, LookupError, TypeError, ValueError) as e:
        raise NoValueError(str(e)) from e


def identical(a: Any, b: Any) -> bool:
    """Whether two arrays have the same bits, where they are of one shape; a quick look."""
    return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())


def beyond_rounding(want: Value, got: Value, again: Callable[[np.random.Generator], Value]) -> Discrepancy | None:
    """How arrays differ by more than rounding can make of them; `again` computes those wanted with every result moved at random."""
    if all(map(identical, want, got)):
        return None
    found = [discrepancy(w, g) for w, g in zip(want, got, strict=True)]
    if not any(d is not None and not d.harmless for d in found):  # what is left may be rounding: how much it can make of them
        spread: list[Array] = [np.zeros(())] * len(want)
        rng = np.random.default_rng(0)
        for _ in range(RUNS):
            spread = [s if w.dtype.kind in "biu" else np.maximum(s, np.broadcast_to(distances(w, m), w.shape))
                      for s, w, m in zip(spread, want, again(rng), strict=True)]
        found = [discrepancy(w, g, s * MARGIN) for w, g, s in zip(want, got, spread, strict=True)]
    pair = worst([d for d in found if d is not None and not d.harmless])
    return None if pair is None else pair[1]


@lru_cache(maxsize=4096)
def elements(type: Type) -> int:
    """How many elements a value of the type has; more than `LARGEST` where that is not known."""
    tensors = [t for t in leaf_types(type) if isinstance(t, TensorType)]
    return sum(t.size if t.is_static else LARGEST + 1 for t in tensors)


VECTOR = 128
"""Elements that stand for an operand whose shape does not matter."""


def _vector(type: Type, which: int) -> Any:
    assert isinstance(type, TensorType)
    return sample_value(TensorType(type.dtype, (VECTOR,)), varied, which)


def sample_value(type: Type, draw: Draw, which: int) -> Any:
    """A value of a type. Raises NoValueError where there is no sample of it."""
    if isinstance(type, TupleType):
        return tuple(sample_value(t, draw, 100 * which + k) for k, t in enumerate(type.items))
    if not isinstance(type, TensorType) or not type.is_static or type.dtype is ANY:
        raise NoValueError(f"there are no samples of {type}")
    return cached_sample(type, draw, which)
