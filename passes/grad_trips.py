"""What a loop's counters tell of the parts of arrays that its turns touch."""

from __future__ import annotations

from collections.abc import Sequence

from deepx_graph.ir import Node
from deepx_graph.ir.structure import PHI
from deepx_graph.ops.trips import counters, trip_count


def rows_apart(end: Node, starts: Sequence[Node], box: Sequence[int], whole: Sequence[int]) -> bool:
    """Whether boxes of that size at these starts lie apart, and inside, for all turns of a loop of known length."""
    begin, turns = end.inputs[0], trip_count(end)
    found = counters(end) if turns else {}
    for at, size, room in zip(starts, box, whole, strict=True):
        counter = found.get(at.attrs[0]) if at.op is PHI and at.inputs[0] is begin else None
        if counter is not None and turns and abs(counter.step) >= size:
            last = counter.first + (turns - 1) * counter.step
            if min(counter.first, last) >= 0 and max(counter.first, last) + size <= room:
                return True
    return False
