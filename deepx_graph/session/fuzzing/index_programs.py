"""Random programs of operations that move elements, over start indices in range and out of it.

They come from the shapes of values alone and not from the samples that declarations have, so that they are what nobody thought of:
slices of slices at computed starts, negative padding, gathers and scatters beyond the ends, reversals, reshapes, empty pieces.
Elements are integers, each another one, so that none hides from where it was taken.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import numpy as np

from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.literal import Array
from deepx_graph.ops import (
    add,
    broadcast_in_dim,
    compare,
    concatenate,
    dynamic_slice,
    dynamic_update_slice,
    gather,
    pad,
    reshape,
    reverse,
    scatter,
    select,
    slice_,
    subtract,
    transpose,
)
from deepx_graph.types import I32, TensorType, scalar, tensor
from deepx_graph.validation.programs import RandomProgram

LARGEST_RANK, LARGEST = 3, 600
"""Of values; larger ones are not made."""

STARTS = (-100, -5, -2, -1, 0, 0, 1, 1, 2, 3, 5, 7, 9, 100)


def index_program(seed: int, steps: int = 6, *, whole_windows: bool = False) -> RandomProgram:
    """The program of a seed, of about so many operations; the same one each time.

    With `whole_windows` a window of a scatter lies inside or outside: of one across the end StableHLO writes the elements inside,
    and XLA none.
    """
    return _Moves(random.Random(seed), whole_windows).program(steps)


def _assign(name: str) -> Function:
    """A computation of scatter: the update, or its sum with what was there."""
    b = Builder()
    types = [("old", scalar(I32)), ("new", scalar(I32))]
    return b.function(name, types, lambda old, new: [b(add, old, new) if name == "sum" else new])


class _Moves:
    def __init__(self, rng: random.Random, whole_windows: bool) -> None:
        self.rng, self.whole_windows, self.b = rng, whole_windows, Builder()
        self.params: list[Node] = []
        self.inputs: dict[str, Array] = {}
        self.pool: list[Node] = []
        self.starts: list[Node] = []

    def program(self, steps: int) -> RandomProgram:
        """A program whose results are its last values."""
        for _ in range(self.rng.randint(1, 2)):
            shape = tuple(self.rng.choice((1, 2, 3, 4, 5, 8)) for _ in range(self.rng.randint(1, LARGEST_RANK)))
            self.pool.append(self.input(np.arange(10, 10 + math.prod(shape), dtype=np.int32).reshape(shape)))
        for _ in range(2):
            self.starts.append(self.input(np.asarray(self.rng.choice(STARTS), np.int32)))
        for _ in range(steps):
            x = self.pool[-1] if self.rng.random() < 0.7 else self.rng.choice(self.pool)
            made = self.rng.choice(MOVES)(self, x)
            if math.prod(_shape(made)) <= LARGEST and len(_shape(made)) <= LARGEST_RANK:
                self.pool.append(made)
        results = tuple(dict.fromkeys(self.pool[-2:]))
        entry = Function("main", tuple(self.params), results, tuple(f"y{k}" for k in range(len(results))))
        return RandomProgram(Module((entry,)), self.inputs)

    def input(self, array: Array) -> Node:
        name = f"x{len(self.params)}"
        node = self.b.param(len(self.params), tensor(I32, array.shape), name)
        self.params.append(node)
        self.inputs[name] = array
        return node

    def start(self) -> Node:
        """A start index: a constant, an input, or one computed of these, also by an operation that may overflow."""
        kind = self.rng.random()
        if kind < 0.2:
            return self.b.constant(self.rng.choice(STARTS), I32)
        chosen = self.rng.choice(self.starts)
        if kind < 0.6:
            return chosen
        made = self.b(self.rng.choice((add, subtract)), chosen, self.b.constant(self.rng.choice(STARTS), I32))
        self.starts.append(made)
        return made

    def parts(self, x: Node) -> tuple[int, ...]:
        """Sizes of a part of a value."""
        return tuple(self.rng.randint(min(1, n), n) if self.rng.random() < 0.9 else n for n in _shape(x))

    def cut(self, x: Node) -> Node:
        """A static part, every so many elements."""
        low = [self.rng.randint(0, n) for n in _shape(x)]
        high = [self.rng.randint(a, n) if self.rng.random() < 0.5 else n for a, n in zip(low, _shape(x), strict=True)]
        steps = tuple(self.rng.choice((1, 1, 2, 3)) for _ in low)
        return self.b(slice_, x, start_indices=tuple(low), limit_indices=tuple(high), strides=steps)

    def moving_cut(self, x: Node) -> Node:
        """A part at starts that are clamped."""
        return self.b(dynamic_slice, x, *(self.start() for _ in _shape(x)), slice_sizes=self.parts(x))

    def update(self, x: Node) -> Node:
        """A part of another value written at starts that are clamped."""
        part = self.moving_cut(x)
        if self.rng.random() < 0.5:
            part = self.b(reverse, part, dimensions=tuple(range(len(_shape(x)))))
        return self.b(dynamic_update_slice, x, part, *(self.start() for _ in _shape(x)))

    def padded(self, x: Node) -> Node:
        """Padding of either sign at both ends, and gaps."""
        low, high, gaps = [], [], []
        for n in _shape(x):
            gap = self.rng.choice((0, 0, 0, 1, 2)) if n else 0
            size = n + gap * max(0, n - 1)
            a, c = self.rng.randint(-2, 3), self.rng.randint(-2, 3)
            fits = size + a + c >= 0
            low.append(a if fits else 1)
            high.append(c if fits else 0)
            gaps.append(gap)
        value = self.b.constant(-7, I32)
        return self.b(pad, x, value, edge_padding_low=tuple(low), edge_padding_high=tuple(high), interior_padding=tuple(gaps))

    def turned(self, x: Node) -> Node:
        axes = list(range(len(_shape(x))))
        self.rng.shuffle(axes)
        return self.b(transpose, x, permutation=tuple(axes))

    def flipped(self, x: Node) -> Node:
        return self.b(reverse, x, dimensions=tuple(k for k in range(len(_shape(x))) if self.rng.random() < 0.6))

    def reshaped(self, x: Node) -> Node:
        """The same elements in another shape: one axis, a factor taken out, or axes of size one."""
        size = math.prod(_shape(x))
        factors = [k for k in range(1, size + 1) if size % k == 0] or [1]
        k = self.rng.choice(factors)
        shapes = ((size,), (k, size // k), (1, size), (size // k, 1, k))
        return self.b(reshape, x, shape=self.rng.choice(shapes))

    def joined(self, x: Node) -> Node:
        """With another value of the same other sizes, itself if there is none."""
        axis = self.rng.randrange(len(_shape(x)))
        rest = [v for v in self.pool if len(_shape(v)) == len(_shape(x)) and
                all(a == c for k, (a, c) in enumerate(zip(_shape(v), _shape(x), strict=True)) if k != axis)]  # fmt: skip
        pieces = [self.rng.choice(rest or [x]) for _ in range(self.rng.randint(1, 2))]
        pieces.insert(self.rng.randrange(len(pieces) + 1), x)
        return self.b(concatenate, *pieces, dimension=axis)

    def spread(self, x: Node) -> Node:
        """A new axis somewhere."""
        shape = list(_shape(x))
        at = self.rng.randrange(len(shape) + 1)
        shape.insert(at, self.rng.choice((1, 2, 3)))
        return self.b(broadcast_in_dim, x, shape=tuple(shape), broadcast_dimensions=tuple(k for k in range(len(shape)) if k != at))

    def chosen(self, x: Node) -> Node:
        """Of two values of one shape, by a comparison."""
        alike = [v for v in self.pool if v.type == x.type]
        other = self.rng.choice(alike)
        test = self.b(compare, x, self.b.constant(self.rng.randint(10, 30), I32), direction=self.rng.choice(("LT", "GE", "EQ")))
        return self.b(select, test, x, other)

    def indices(self, count: int, width: int) -> Node:
        """Rows of so many indices, in range and out of it."""
        array = np.array([[self.rng.choice(STARTS) for _ in range(width)] for _ in range(count)], np.int32).reshape(count, width)
        return self.b.constant(array) if self.rng.random() < 0.5 else self.input(array)

    def gathered(self, x: Node) -> Node:
        """Parts at several starts, some of their axes of size one dropped."""
        rank, sizes = len(_shape(x)), list(self.parts(x))
        indexed = sorted(self.rng.sample(range(rank), self.rng.randint(1, rank)))
        dropped = tuple(k for k in indexed if self.rng.random() < 0.5 and _shape(x)[k])
        for k in dropped:
            sizes[k] = 1
        kept = rank - len(dropped)
        offset = tuple(range(1, kept + 1)) if self.rng.random() < 0.5 else tuple(range(kept))
        starts = self.indices(self.rng.randint(1, 3), len(indexed))
        return self.b(gather, x, starts, offset_dims=offset, collapsed_slice_dims=dropped, start_index_map=tuple(indexed),
                      index_vector_dim=1, slice_sizes=tuple(sizes))  # fmt: skip

    def scattered(self, x: Node) -> Node:
        """Parts written, or added, at several starts; those that do not fit are left out."""
        rank, sizes = len(_shape(x)), list(self.parts(x))
        indexed = sorted(self.rng.sample(range(rank), self.rng.randint(1, rank)))
        dropped = tuple(k for k in indexed if self.rng.random() < 0.5 and _shape(x)[k])
        windows = [1 if self.whole_windows and k in indexed and n else n for k, n in enumerate(sizes) if k not in dropped]
        count, name = self.rng.randint(1, 3), "sum"
        if count == 1 and self.rng.random() < 0.7:  # of several that meet any may be the last
            name = "last"
        shape = (count, *windows)
        updates = self.b.constant(np.arange(1000, 1000 + math.prod(shape), dtype=np.int32).reshape(shape))
        return self.b(scatter, x, self.indices(count, len(indexed)), updates, update_window_dims=tuple(range(1, len(windows) + 1)),
                      inserted_window_dims=dropped, scatter_dims_to_operand_dims=tuple(indexed), index_vector_dim=1,
                      update_computation=_assign(name))  # fmt: skip


def _shape(node: Node) -> tuple[int, ...]:
    assert isinstance(node.type, TensorType)
    return node.type.shape


MOVES: Sequence[Callable[[_Moves, Node], Node]] = (
    _Moves.cut, _Moves.moving_cut, _Moves.moving_cut, _Moves.update, _Moves.padded, _Moves.turned, _Moves.flipped, _Moves.reshaped,
    _Moves.joined, _Moves.spread, _Moves.chosen, _Moves.gathered, _Moves.scattered,
)  # fmt: skip
"""What a step may do, as often as it stands there."""
