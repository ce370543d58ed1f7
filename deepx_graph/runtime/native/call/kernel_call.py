"""One kernel as a callable for the walk of a program: through an entry where it can be, else the careful way.

An entry for results in fresh arrays, and one for results in the arrays that the plan has for them, each made when first used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepx_graph.runtime.engines.base import EntryFn, KernelFn
from deepx_graph.runtime.native.call.trampoline import entry
from deepx_graph.runtime.native.machine_kernel import MachineCode
from deepx_graph.runtime.straightline.segment import (
    ArgBuffer,
    ArrayType,
    KernelUse,
    ResultBuffer,
    Segment,
    SegmentGroup,
    SegmentResult,
)


def quick(kernel: MachineCode, params: Sequence[ArrayType], *, single: bool) -> KernelFn:
    """The kernel as an engine gives it, for arguments of those forms, which it reads as they lie; a `single` result is no tuple."""
    entries = _Entries(kernel, tuple(params))

    def run(values: Sequence[Any], out: Sequence[Any] | None) -> Any:
        found = None
        if out is None:
            fresh = entries.fresh or entries.make_fresh()
            found = fresh(*values)
        else:
            filling = entries.filling or entries.make_filling()
            found = filling(*values, *out)
        if found is None:
            found = tuple(kernel(values, out))
        return found[0] if single else found

    return run


def _never(*arrays: Any) -> None:
    return None


class _Entries:
    """Both entries of a kernel; they share its memory, so one of them runs at a time."""

    def __init__(self, kernel: MachineCode, params: tuple[ArrayType, ...]) -> None:
        self.kernel, self.params = kernel, params
        self.shared = SegmentGroup()
        self.fresh: EntryFn | None = None
        self.filling: EntryFn | None = None

    def make_fresh(self) -> EntryFn:
        """The entry that takes the arguments."""
        operands, made = tuple(map(ArgBuffer, range(len(self.params)))), tuple(map(ResultBuffer, range(len(self.kernel.results))))
        segment = Segment(self.params, tuple(map(SegmentResult, self.kernel.results)), (KernelUse(operands, made),))
        self.fresh = entry(segment, [self.kernel], self.shared) or _never
        return self.fresh

    def make_filling(self) -> EntryFn:
        """The entry that takes the arguments and then the arrays for the results."""
        count, results = len(self.params), self.kernel.results
        operands, outs = tuple(map(ArgBuffer, range(count))), tuple(ArgBuffer(count + k) for k in range(len(results)))
        over = tuple(SegmentResult(form, over=count + k) for k, form in enumerate(results))
        alone = frozenset(range(count, count + len(results)))
        under = frozenset.intersection(*self.kernel.in_place)
        segment = Segment((*self.params, *results), over, (KernelUse(operands, outs),), alone=alone, under=under)
        self.filling = entry(segment, [self.kernel], self.shared) or _never
        return self.filling
