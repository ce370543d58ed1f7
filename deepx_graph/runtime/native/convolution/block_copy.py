"""The copy of a block of a convolution's input in scratch memory, padded with zeros, and laid out by remainders of a stride.

Only elements of the share's own image and group are read; every element that a stored result depends on is written.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepx_graph.runtime.native.convolution.plan import ELEMENTS, FEATURES, DirectPlan, Lanes, scratch_steps
from deepx_graph.runtime.native.llvm.builder import IRBuilder, VectorValue, below, branch, digit, greatest, least


class BlockCopy:
    """Writes the copying of one block into a function under construction. Vectors are stored whole, as what lies beyond is written
    next, or not read."""

    def __init__(self, plan: DirectPlan, t: IRBuilder) -> None:
        self.plan, self.problem, self.t, self.dtype = plan, plan.problem, t, plan.problem.dtype
        self.steps = scratch_steps(plan)
        self.order = [k for k in self.steps if k != ELEMENTS]

    def write(self, source: str, target: str, starts: Sequence[str], counts: Sequence[str]) -> None:
        """Copies what the windows from `starts` on, so many of them, see of the image at `source`."""
        t, axes = self.t, self.problem.axes
        self.firsts = [t.let(f"sub i64 {t.let(f'mul i64 {start}, {a.stride}')}, {a.low}")
                       for a, start in zip(axes, starts, strict=True)]
        """The index, in the input without padding, of the first element that is seen along each axis."""
        self.reaches = [t.let(f"add i64 {t.let(f'mul i64 {count}, {a.stride}')}, {a.reach(1) - a.stride}")
                        for a, count in zip(axes, counts, strict=True)]
        """How many elements are seen."""
        if self.plan.has_packed_spans:
            self._spans(source, target)
        else:
            self._axis(0, source, target)

    def _axis(self, depth: int, source: str, target: str) -> None:
        """An axis and those inside. Rows, planes and so on outside the input are zeros."""
        t, p, axis = self.t, self.problem, self.order[depth]
        count, x = (str(p.inputs), p.x[2]) if axis == FEATURES else (self.reaches[axis], p.axes[axis].x)

        def one(e: str) -> None:
            into = self._at(target, e, self.steps[axis])
            if axis == FEATURES:
                self._axis(depth + 1, self._at(source, e, x), into)
                return
            index = t.let(f"add i64 {self.firsts[axis]}, {e}")
            inside = t.let(f"icmp ult i64 {index}, {p.axes[axis].size}")  # a negative one is a huge one
            branch(t, inside, lambda: self._axis(depth + 1, self._at(source, index, x), into),
                   lambda: self._vectors(None, into, str(self.steps[axis])))

        if depth < len(self.order) - 1:
            t.rows("0", count, one)
        elif axis != FEATURES:
            self._row(axis, source, target)
        elif self.plan.method.lanes is Lanes.GROUPS:
            self._copy(source, target, str(p.groups), p.x[1])
        else:
            self._copy(source, target, count, x)

    def _row(self, axis: int, source: str, target: str) -> None:
        """What is seen along the innermost axis, one remainder by its stride after the other; zeros beside the input."""
        t, a, stride = self.t, self.problem.axes[axis], self.plan.phases
        if a.rows:
            t.rows("0", self.reaches[axis], lambda i: t.copy_one(
                self._element(source, t.let(f"add i64 {self.firsts[axis]}, {i}")), self._at(target, i, 1), self.dtype))
            return

        def steps(length: str) -> str:
            some = greatest(t, length, "0")
            return some if stride == 1 else t.let(f"udiv i64 {t.let(f'add i64 {some}, {stride - 1}')}, {stride}")

        for phase in range(stride):
            start, seen = (t.let(f"{how} i64 {n}, {phase}") for how, n in (("add", self.firsts[axis]), ("sub", self.reaches[axis])))
            whole = steps(seen)
            low = least(t, steps(t.let(f"sub i64 0, {start}")), whole)
            high = least(t, steps(t.let(f"sub i64 {a.size}, {start}")), whole)
            index = t.let(f"add i64 {start}, {t.let(f'mul i64 {low}, {stride}')}")
            into = self._at(target, str(phase), self.plan.phase_columns) if phase else target
            self._vectors(None, into, low)
            self._copy(self._at(source, index, a.x), self._at(into, low, 1), t.let(f"sub i64 {high}, {low}"), stride * a.x)
            self._vectors(None, self._at(into, high, 1), t.let(f"sub i64 {whole}, {high}"))

    def _spans(self, source: str, target: str) -> None:
        """The elements of each position, feature by feature. The last one begins earlier where it would not be full."""
        t, p, size, (a,) = self.t, self.problem, self.plan.span, self.problem.axes
        (first,), (count,) = self.firsts, self.reaches
        length, room = least(t, count, str(size)), greatest(t, t.let(f"sub i64 {count}, {size}"), "0")
        spans = t.let(f"udiv i64 {t.let(f'add i64 {count}, {size - 1}')}, {size}")
        masks = [below(t, t.let(f"sub i64 {length}, {v}")) for v in range(0, size, t.lanes)]

        def span(k: str) -> tuple[str, str]:
            """The first element of a position, and where it is kept."""
            return t.let(f"add i64 {first}, {least(t, t.let(f'mul i64 {k}, {size}'), room)}"), self._at(target, k, self.steps[0])

        def vectors(c: str, k: str) -> None:
            start, into = span(k)
            start, into = self._at(self._at(source, c, p.x[2]), start, 1), self._at(into, c, size)
            for v, mask in enumerate(masks):
                at, to = (t.address(pointer, str(v * t.lanes), self.dtype) for pointer in (start, into))
                t.store(t.load(at, self.dtype, mask), to, None)

        def column(k: str, j: str) -> None:
            start, into = span(k)
            start, into = self._element(source, t.let(f"add i64 {start}, {j}")), self._at(into, j, 1)
            t.rows("0", str(p.inputs), lambda c: t.copy_one(
                self._at(start, c, p.x[2]), self._at(into, c, size), self.dtype))

        if a.x == 1 and not a.rows:
            t.rows("0", str(p.inputs), lambda c: t.rows("0", spans, lambda k: vectors(c, k)))
        else:
            t.rows("0", spans, lambda k: t.rows("0", length, lambda j: column(k, j)))

    # --- memory

    def _element(self, source: str, index: str) -> str:
        """Where an element along the last axis is."""
        a, row = self.problem.axes[-1], "0"
        if a.rows:
            index, row = digit(self.t, index, a.rows[0])
        return self.t.moved(source, self.dtype, (row, a.rows[1] if a.rows else 0), (index, a.x))

    def _at(self, pointer: str, index: str, step: int) -> str:
        return self.t.moved(pointer, self.dtype, (index, step))

    def _copy(self, source: str, target: str, count: str, step: int) -> None:
        """So many elements, `step` apart at the source."""
        if step == 1:
            self._vectors(source, target, count)
        else:
            self.t.rows("0", count, lambda i: self.t.copy_one(self._at(source, i, step), self._at(target, i, 1), self.dtype))

    def _vectors(self, source: str | None, target: str, count: str) -> None:
        """So many neighbours; zeros where there is no source."""
        t = self.t

        def body(indices: Sequence[str], mask: str | None, _: Sequence[VectorValue]) -> Sequence[VectorValue]:
            for i in indices:
                value = t.splat(0, self.dtype) if source is None else t.load(t.address(source, i, self.dtype), self.dtype, mask)
                t.store(value, t.address(target, i, self.dtype), None)
            return ()

        t.vector_loop("0", count, 1 if source is None else 2, True, (), body, ())
