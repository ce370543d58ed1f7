"""How what is packed becomes an element of a panel: as it is, converted without rounding, or two integers of 16 bits as a pair."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deepx_graph.runtime.native.llvm.builder import DType, IRBuilder, VectorValue
from deepx_graph.runtime.native.llvm.target import this_machine
from deepx_graph.runtime.native.loop_program.primitives import lower_primitive, np_dtype
from deepx_graph.types import DType as ElementType
from deepx_graph.types import dtype_of

HALF = np.dtype("i2")


@dataclass(frozen=True)
class PanelElements:
    """Elements `dtype` of panels, made of elements of a type in memory; None for the same one. Those of integers are pairs."""

    dtype: DType
    type: ElementType | None = None

    @property
    def source(self) -> DType:
        """The dtype in memory, bf16 as its bits."""
        return self.dtype if self.type is None else np_dtype(self.type)

    @property
    def each(self) -> int:
        """How many elements of the operand make one of a panel."""
        return 1 if self.dtype.kind == "f" else 2

    def made(self, t: IRBuilder, x: VectorValue) -> VectorValue:
        """A vector of what lies side by side in memory."""
        if self.type is None:
            return x
        if self.each == 1:
            return lower_primitive("cast", [self.type], dtype_of(self.dtype), this_machine())(t, [x])
        lanes = t.lanes
        with t.narrowed(2 * lanes):
            halves = self._extended(t, x, HALF)
            kind = t.vector(HALF)
        return t.value(f"bitcast {kind} {halves.text} to {t.vector(self.dtype)}", self.dtype)

    def paired(self, t: IRBuilder, low: VectorValue, high: VectorValue | None) -> VectorValue:
        """Pairs of a vector of first elements, and one of second ones: zeros where there are none."""
        first = t.binary("and", self._extended(t, low, self.dtype), t.splat(0xFFFF, self.dtype))
        if high is None:
            return first
        return t.binary("or", first, t.binary("shl", self._extended(t, high, self.dtype), t.splat(16, self.dtype)))

    def one(self, t: IRBuilder, at: str, other: str | None) -> str:
        """An element of a panel, from the addresses of its first and its second element in memory."""
        with t.narrowed(1):
            low, high = t.load(at, self.source, None), None if other is None else t.load(other, self.source, None)
            return (self.made(t, low) if self.each == 1 else self.paired(t, low, high)).text

    def _extended(self, t: IRBuilder, x: VectorValue, dtype: DType) -> VectorValue:
        """Integers as wider ones."""
        if x.dtype.itemsize == dtype.itemsize:
            return x
        return t.convert("sext" if x.dtype.kind == "i" else "zext", x, dtype)
