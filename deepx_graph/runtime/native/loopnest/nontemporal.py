"""Which results go past the caches, and where strips begin: stores of whole cache lines.

A store reads its line first, unless it is told that the whole line is written and not needed soon. That pays for a result of a
kernel that sweeps over more than the caches hold; it needs lines that lie where the vectors do, which is seen when it runs.
"""

from __future__ import annotations

import math

from deepx_graph.runtime.kernels.program import KernelProgram, Register
from deepx_graph.runtime.native.loopnest.nest import Nest, Nests, registers_used

LINE = 64

CACHE_BYTES = 64 << 20
"""A nest that reads and writes more than this leaves nothing of its results in the caches."""


def reference(program: KernelProgram, nests: Nests, nest: Nest) -> int | None:
    """The register on whose lines the strips of a nest begin; None where they begin with the arrays."""
    if not nests.begins_on_line(nest):
        return None
    stored = [r for stage in nest.stages for r in stage.stores if program.registers[r].dtype.itemsize >= 4]
    return stored[0] if stored else None


def is_out_of_cache(program: KernelProgram, nest: Nest) -> bool:
    """Whether a nest goes over more than the caches hold."""
    return sum(_bytes(program.registers[r]) for r in registers_used(nest)) >= CACHE_BYTES


def streamed(program: KernelProgram, nests: Nests, nest: Nest, lanes: int) -> tuple[int, ...]:
    """The results of a nest that go past the caches, if they and the vectors lie on the same lines."""
    if not is_out_of_cache(program, nest):
        return ()
    read = {r for n in nests.nests for stage in n.stages for r in stage.loads}
    return tuple(r for stage in nest.stages for r in stage.stores
                 if r in program.results and r not in read and _has_whole_lines(program.registers[r], nests, nest, lanes))


def _bytes(register: Register) -> int:
    return register.size * register.dtype.itemsize


def _has_whole_lines(register: Register, nests: Nests, nest: Nest, lanes: int) -> bool:
    """Whether the rows of an array that begins on a line all do, and its vectors are lines."""
    shape, size = register.shape, register.dtype.itemsize
    starts = [math.prod(shape[k + 1:]) * size for k in nest.key if shape[k] > 1] if not nests.in_strips else []
    return lanes * size % LINE == 0 and all(start % LINE == 0 for start in starts)
