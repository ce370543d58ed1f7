"""Nests that are written only to see how much of a value they load."""

from __future__ import annotations

import math
from collections.abc import Sequence

from deepx_graph.loops.builder import LoopBuilder
from deepx_graph.loops.program import Buffer, Load, Statement
from deepx_graph.loops.scalar import Affine, NotExpressible, affine
from deepx_graph.loops.tensor import LazyTensor
from deepx_graph.loops.weight import weighted
from deepx_graph.types import I64

MOST_TRIED = 1500
"""How often a value is read is not counted in longer programs: conditions below conditions double what is written."""

LEAST_TRIED = 16
"""A trial is looked at when it has so many statements, and each time when it has become twice as long."""


class Trial(LoopBuilder):
    """Statements that are written to see how much of a buffer they load: of `most_bytes` more raise NotExpressible, and so does a
    program that is too long. Every subscript of a nest counts, or, unless it `counts_all`, only those of the loops a load needs."""

    def __init__(self, buffer: Buffer, most_bytes: float, *, counts_all: bool) -> None:
        super().__init__(MOST_TRIED)
        self.counted, self.most_bytes, self.counts_all = buffer, most_bytes, counts_all
        self.written: list[Statement] = []
        self.at: list[Affine] = []
        self.nest_shape: tuple[int, ...] = ()
        self.bytes = 0.0
        """What the nests before this one load."""
        self.unseen = LEAST_TRIED
        """After so many more statements it is looked whether there is too much; every time twice as many."""
        self.length = LEAST_TRIED

    def write(self, shape: tuple[int, ...], tensors: Sequence[LazyTensor]) -> None:
        """Writes what computes one element of each, for a nest of this shape."""
        self.written, self.nest_shape, self.at = [], shape, [affine(self.var(I64, 0, n - 1)) for n in shape]
        with self.block(self.written):
            for tensor in tensors:
                tensor.at(self, self.at)
        self.bytes = self._loaded()

    def emit(self, statement: Statement) -> None:
        """Adds a statement; looks now and then."""
        super().emit(statement)
        self.unseen -= 1
        if not self.unseen:
            self._loaded()
            self.unseen, self.length = self.length, 2 * self.length

    def _loaded(self) -> float:
        """The bytes that all nests load, as far as they are written."""
        loads = [(s, times) for s, times in weighted(self.written) if isinstance(s, Load) and s.buffer is self.counted]
        total = self.bytes + self.counted.dtype.itemsize * sum(
            times * math.prod(self.nest_shape if self.counts_all else self.nest_shape[: _depth(s, self.at)]) for s, times in loads)
        if total > self.most_bytes:
            raise NotExpressible("more is loaded")
        return total


def _depth(load: Load, axes: Sequence[Affine]) -> int:
    """In how many of the loops over these axes a load stands, outer ones first, when all others have moved out of them."""
    read = {v for a in load.index for v, _ in a.terms}
    variables = [{v for v, _ in a.terms} for a in axes]
    if not read <= set().union(*variables):
        return len(axes)
    return max((k + 1 for k, own in enumerate(variables) if not own.isdisjoint(read)), default=0)
