"""How a loop counts: integer variables that go up or down by a constant, and the number of turns where the text fixes it.

Exact integer arithmetic; a counter that would wrap around its dtype counts as not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from deepx_graph.ir import Node
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.structure import LOOP_BEGIN, PHI
from deepx_graph.ops import add, compare, subtract
from deepx_graph.types import TensorType

_SWAPPED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "NE": "NE", "EQ": "EQ"}


class Counter(NamedTuple):
    """A loop variable that is `first + step * turn`."""

    first: int
    step: int


def counters(end: Node) -> dict[int, Counter]:
    """The variables of the loop that count, by number."""
    begin = end.inputs[0]
    found: dict[int, Counter] = {}
    for k, (init, after) in enumerate(zip(begin.inputs, end.inputs[2:], strict=True)):
        first = _integer(init)
        step = _step(begin, k, after) if first is not None else None
        if first is not None and step is not None:
            found[k] = Counter(first, step)
    return found


def _integer(node: Node) -> int | None:
    """The value of a rank-0 integer constant."""
    type, value = node.type, splat_of(node)
    if value is None or not isinstance(type, TensorType) or type.dims != () or not type.dtype.is_integer:
        return None
    return int(value)


def _step(begin: Node, k: int, after: Node) -> int | None:
    """By how much variable `k` grows in a turn when `after` is its next value."""
    if after.op is not add and after.op is not subtract:
        return None
    x, y = after.inputs
    if after.op is add and not is_variable(x, begin, k):
        x, y = y, x
    step = _integer(y)
    if step is None or not is_variable(x, begin, k):
        return None
    return -step if after.op is subtract else step


def is_variable(node: Node, begin: Node, k: int) -> bool:
    """Whether the node is variable `k` of the loop."""
    return node.op is PHI and node.inputs[0] is begin and node.attrs[0] == k


def trip_count(end: Node) -> int | None:
    """How often the body runs, where a counter is compared with a constant; None when that is not known."""
    begin, condition = end.inputs[:2]
    value = splat_of(condition)
    if value is not None and not value:
        return 0
    if condition.op is not compare:
        return None
    x, y = condition.inputs
    direction: str = condition.attr("direction")
    if _integer(x) is not None:
        x, y, direction = y, x, _SWAPPED[direction]
    limit = _integer(y)
    if limit is None or x.op is not PHI or x.inputs[0] is not begin or x.inputs[0].op is not LOOP_BEGIN:
        return None
    counter = counters(end).get(x.attrs[0])
    if counter is None:
        return None
    turns = _turns(counter, direction, limit)
    if turns is None or not isinstance(x.type, TensorType):
        return None
    info = np.iinfo(x.type.dtype.np)
    return turns if info.min <= counter.first + turns * counter.step <= info.max else None


def _turns(counter: Counter, direction: str, limit: int) -> int | None:
    """The turns until `first + step * turn` no longer stands in the relation to the limit; None when that never ends."""
    first, step = counter
    way = limit - first
    if direction == "NE":
        return way // step if step and way % step == 0 and way // step >= 0 else None
    if direction == "EQ":
        return int(way == 0) if step else None
    if direction in ("GT", "GE"):
        way, step = -way, -step
    inclusive = direction in ("LE", "GE")
    if way < 0 or (way == 0 and not inclusive):
        return 0
    return way // step + 1 if inclusive and step > 0 else -(-way // step) if step > 0 else None


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
