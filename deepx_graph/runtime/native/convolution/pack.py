"""Copying the input of a share of a convolution into scratch memory: padded with zeros, spread out, by remainders of a stride.

Only elements of the share's own image and group are read; every element that a stored result depends on is written.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from deepx_graph.runtime.native.convolution.plan import SIZE, ConvolutionPlan, Lanes, phase_columns, scratch_steps
from deepx_graph.runtime.native.llvm.builder import IRBuilder, VectorValue, memory_type


class Packing:
    """Writes the copying of one share into a function under construction."""

    def __init__(self, plan: ConvolutionPlan, t: IRBuilder) -> None:
        self.plan, self.t, self.dtype = plan, t, plan.problem.dtype
        self.steps = scratch_steps(plan)
        self.order = [k for k in self.steps if k != SIZE]
        self.extents = dict(zip(self.order, self._extents(), strict=True))

    def _extents(self) -> list[int]:
        sizes = [self.steps[SIZE], *(self.steps[k] for k in self.order)]
        return [a // b for a, b in itertools.pairwise(sizes)]

    def write(self, source: str, target: str, starts: Sequence[str], counts: Sequence[str]) -> None:
        """Copies what the windows from `starts` on, so many of them, see of the image at `source`."""
        self.firsts = {k: self._first(k, start) for k, start in enumerate(starts)}
        self.reaches = {k: self._reach(k, count) for k, count in enumerate(counts)}
        self._axis(0, source, target)

    def _first(self, axis: int, start: str) -> str:
        """The index, in the input spread out and without padding, of the first element that is seen."""
        a, t = self.plan.problem.axes[axis], self.t
        return t.let(f"sub i64 {t.let(f'mul i64 {start}, {a.stride}')}, {a.low}")

    def _reach(self, axis: int, count: str) -> str:
        """How many elements are seen."""
        a, t = self.plan.problem.axes[axis], self.t
        return t.let(f"add i64 {t.let(f'mul i64 {count}, {a.stride}')}, {a.reach(1) - a.stride}")

    # --- axes from the outermost to the innermost

    def _axis(self, depth: int, source: str, target: str) -> None:
        axis = self.order[depth]
        if depth == len(self.order) - 1:
            self._innermost(axis, source, target)
        elif axis < 0:
            self._features(depth, source, target)
        else:
            self._spatial(depth, source, target)

    def _features(self, depth: int, source: str, target: str) -> None:
        t, p = self.t, self.plan.problem
        t.rows("0", str(p.inputs),
               lambda c: self._axis(depth + 1, self._at(source, c, p.x[2]), self._at(target, c, self.steps[-1])))

    def _spatial(self, depth: int, source: str, target: str) -> None:
        """Rows, planes and so on: those outside the input, or between its elements, are zeros."""
        t, axis = self.t, self.order[depth]
        a, step = self.plan.problem.axes[axis], self.steps[axis]

        def one(e: str) -> None:
            index, inside = self._index(axis, e)
            within, without, done = (t.name(k) for k in ("in", "out", "put"))
            into = self._at(target, e, step)
            t.line(f"br i1 {inside}, label %{within}, label %{without}")
            t.start(within)
            self._axis(depth + 1, self._at(source, index, a.x), into)
            t.line(f"br label %{done}")
            t.start(without)
            self._zeros(into, str(step))
            t.line(f"br label %{done}")
            t.start(done)

        t.rows("0", self.reaches[axis], one)

    def _index(self, axis: int, e: str) -> tuple[str, str]:
        """The input's index of the e-th element that is seen, and whether there is one."""
        a, t = self.plan.problem.axes[axis], self.t
        offset = t.let(f"add i64 {self.firsts[axis]}, {e}")
        inside = t.let(f"icmp ult i64 {offset}, {(a.size - 1) * a.base + 1}")  # a negative one is a huge one
        if a.base == 1:
            return offset, inside
        index = t.let(f"sdiv i64 {offset}, {a.base}")
        whole = t.let(f"icmp eq i64 {t.let(f'srem i64 {offset}, {a.base}')}, 0")
        return index, t.let(f"and i1 {inside}, {whole}")

    # --- the innermost axis

    def _innermost(self, axis: int, source: str, target: str) -> None:
        p = self.plan.problem
        if axis < 0:
            count, step = (p.groups, p.x[1]) if self.plan.method.lanes is Lanes.GROUPS else (p.inputs, p.x[2])
            self._copy(source, target, str(count), step)
            return
        a = p.axes[axis]
        is_split = self.plan.method.lanes is Lanes.WINDOWS and a.stride > 1
        low, high, first = self._inside(axis)
        if a.base == 1 and not is_split:
            self._zeros(target, low)
            length = self.t.let(f"sub i64 {high}, {low}")
            self._copy(self._at(source, first, a.x), self._at(target, low, 1), length, a.x)
            self._zeros(self._at(target, high, 1), self.t.let(f"sub i64 {self.reaches[axis]}, {high}"))
            return
        self._zeros(target, str(self.extents[axis]))
        self._spread(axis, source, target, is_split)

    def _inside(self, axis: int) -> tuple[str, str, str]:
        """From where to where, along what is seen, the input lies; and the input's index where that begins."""
        a, t, first = self.plan.problem.axes[axis], self.t, self.firsts[axis]
        before = t.let(f"sub i64 0, {first}")
        low = self._clamped(before, self.reaches[axis])
        high = self._clamped(t.let(f"add i64 {before}, {a.size}"), self.reaches[axis])
        return low, high, t.let(f"add i64 {first}, {low}")

    def _clamped(self, index: str, most: str) -> str:
        t = self.t
        below = t.let(f"icmp slt i64 {index}, 0")
        least = t.let(f"select i1 {below}, i64 0, i64 {index}")
        above = t.let(f"icmp sgt i64 {least}, {most}")
        return t.let(f"select i1 {above}, i64 {most}, i64 {least}")

    def _spread(self, axis: int, source: str, target: str, is_split: bool) -> None:
        """Element by element, to where each belongs."""
        a, t = self.plan.problem.axes[axis], self.t

        def one(e: str) -> None:
            index, inside = self._index(axis, e)
            within, done = t.name("in"), t.name("put")
            t.line(f"br i1 {inside}, label %{within}, label %{done}")
            t.start(within)
            offset = e
            if is_split:
                phase = t.let(f"mul i64 {t.let(f'urem i64 {e}, {a.stride}')}, {phase_columns(self.plan)}")
                offset = t.let(f"add i64 {phase}, {t.let(f'udiv i64 {e}, {a.stride}')}")
            self._move(self._at(source, index, a.x), self._at(target, offset, 1))
            t.line(f"br label %{done}")
            t.start(done)

        t.rows("0", self.reaches[axis], one)

    # --- memory

    def _at(self, pointer: str, index: str, step: int) -> str:
        t = self.t
        return t.address(pointer, index if step == 1 else t.let(f"mul i64 {index}, {step}"), self.dtype)

    def _move(self, source: str, target: str) -> None:
        type, align = memory_type(self.dtype), self.dtype.itemsize
        one = self.t.let(f"load {type}, ptr {source}, align {align}")
        self.t.line(f"store {type} {one}, ptr {target}, align {align}")

    def _copy(self, source: str, target: str, count: str, step: int) -> None:
        """So many elements, `step` apart at the source."""
        t = self.t
        if step != 1:
            t.rows("0", count, lambda i: self._move(self._at(source, i, step), self._at(target, i, 1)))
            return

        def body(indices: Sequence[str], mask: str | None, _: Sequence[VectorValue]) -> Sequence[VectorValue]:
            for i in indices:
                t.store(t.load(t.address(source, i, self.dtype), self.dtype, mask), t.address(target, i, self.dtype), mask)
            return ()

        t.sweep(count, 2, True, (), body, ())

    def _zeros(self, target: str, count: str) -> None:
        t, zero = self.t, self.t.splat(0, self.dtype)

        def body(indices: Sequence[str], mask: str | None, _: Sequence[VectorValue]) -> Sequence[VectorValue]:
            for i in indices:
                t.store(zero, t.address(target, i, self.dtype), mask)
            return ()

        t.sweep(count, 1, True, (), body, ())
