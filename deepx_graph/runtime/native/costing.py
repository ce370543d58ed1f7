"""What the cost model makes of machine code: how a nest is shared out, and how long a kernel takes. Sizes only; nothing is run."""

from __future__ import annotations

from collections.abc import Sequence

from deepx_graph.runtime.cost import model as cost
from deepx_graph.runtime.cost.file import constants
from deepx_graph.runtime.kernels.program import Program, Step
from deepx_graph.runtime.native.sweeps.layout import Chunks
from deepx_graph.runtime.native.sweeps.nests import Nest, Nests, registers_used, sums_columns, together

MOST_CHUNKS, MOST_LONG_CHUNKS, LONG_CHUNK_NS = 16, 64, 100_000
"""How many chunks there are at most; and where each is at least so long, which evens out what else the cores do."""

FINER = 3
"""Work that is shared out at all is shared out in chunks so much smaller than the least for that: they are cheap to take."""

VECTOR_BYTES = 64
"""A row takes whole vectors: the last one is masked."""


def chunks_of(program: Program, nests: Nests, nest: Nest) -> Chunks:
    """How a nest is shared out; a matter of its shape and of the constants of the machine, never of the number of threads."""
    least, whole, step = cost.chunk_ns(constants()), alone_ns(program, nests, nest), together(nests, nest)
    if whole < 2 * least:
        return Chunks(1, step)
    long = whole > MOST_LONG_CHUNKS * LONG_CHUNK_NS and not sums_columns(nests, nest)
    most = min(MOST_LONG_CHUNKS if long else MOST_CHUNKS, nests.count(nest) // step, int(FINER * whole / least))
    return Chunks(1 << max(0, most.bit_length() - 1), step)  # a power of two: threads get as many each


def alone_ns(program: Program, nests: Nests, nest: Nest) -> float:
    """How long one thread works on a nest."""
    whole = sweep(program, nests, nest)
    return cost.sweep_ns(constants(), whole.elements, whole.work, _bytes(program, nest))


def sweep(program: Program, nests: Nests, nest: Nest, shares: int = 1) -> cost.Sweep:
    """A nest as the cost model sees it."""
    steps = [s for stage in nest.stages for s in (*stage.steps, *stage.reductions)]
    sizes = [program.registers[s.target].dtype.itemsize for s in steps] or [cost.LANE_BYTES]
    wide = max(1.0, max(sizes) / cost.LANE_BYTES)
    lanes = max(1, VECTOR_BYTES // max(sizes))
    elements = nests.count(nest) * -(-nests.width(nest) // lanes) * lanes
    return cost.Sweep(elements * wide, sum(map(_price, steps, sizes)) / wide, shares)


def _price(step: Step, itemsize: int) -> float:
    return cost.lane_price(step.primitive, itemsize)


def _bytes(program: Program, nest: Nest) -> int:
    return sum(program.registers[r].size * program.registers[r].dtype.itemsize for r in registers_used(nest))


def predicted(program: Program, nests: Nests, chunks: Sequence[Chunks], threads: int) -> cost.Parts:
    """The prediction of a whole kernel."""
    sweeps = [sweep(program, nests, n, c.count) for n, c in zip(nests.nests, chunks, strict=True)]
    return cost.machine_code(constants(), sweeps, sum(_bytes(program, n) for n in nests.nests), threads)
