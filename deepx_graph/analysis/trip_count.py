"""How a loop counts: integer variables that go up or down by a constant, and the number of iterations where the text fixes it.

Exact integer arithmetic; a loop that ends only by wrapping around its dtype counts as not known. Nothing is evaluated. What a
kernel computes is seen as what stands in its body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from deepx_graph.ir import Node
from deepx_graph.ir.peephole import primitive_of, splat_of
from deepx_graph.ir.structure import CONSTANT, PHI, PROJ, index_of
from deepx_graph.ops.data.fusion import fused_body
from deepx_graph.ops.helpers import highest, lowest
from deepx_graph.types import DType, TensorType, as_tensor

_MIRROR = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
"""What each comparison says with its operands exchanged."""


class Counter(NamedTuple):
    """A loop variable that is `first + step * iteration`."""

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


def _opened(node: Node) -> tuple[str, tuple[Node, ...]]:
    """The primitive that makes a value, and what of, outside of the kernel that does; empty where it is of no such form."""
    source, k = (node.inputs[0], index_of(node)) if node.op is PROJ else (node, 0)
    body = fused_body(source)
    if body is None:
        return primitive_of(node.op, node.attrs), node.inputs
    result, given = body.results[k], dict(zip(body.params, source.inputs, strict=True))
    inputs = tuple([given.get(i, i) for i in result.inputs])
    is_outside = all(i.op is CONSTANT or i in given for i in result.inputs)
    return (primitive_of(result.op, result.attrs), inputs) if is_outside else ("", ())


def _integer(node: Node) -> int | None:
    """The value of a rank-0 integer constant."""
    type, value = node.type, splat_of(node)
    if value is None or not isinstance(type, TensorType) or type.dims != () or not type.dtype.is_integer:
        return None
    return int(value)


def _step(begin: Node, k: int, after: Node) -> int | None:
    """By how much variable `k` grows in an iteration when `after` is its next value."""
    primitive, inputs = _opened(after)
    if primitive not in ("add", "sub"):
        return None
    x, y = inputs
    if primitive == "add" and not is_variable(x, begin, k):
        x, y = y, x
    step = _integer(y)
    if step is None or not is_variable(x, begin, k):
        return None
    return -step if primitive == "sub" else step


def is_variable(node: Node, begin: Node, k: int) -> bool:
    """Whether the node is variable `k` of the loop."""
    return node.op is PHI and node.inputs[0] is begin and index_of(node) == k


def trip_count(end: Node) -> int | None:
    """How often the body of the loop that `end` closes runs, where a counter is compared with a constant; else None."""
    begin, condition = end.inputs[:2]
    carried = condition.op is PHI and condition.inputs[0] is begin
    known = splat_of(begin.inputs[index_of(condition)] if carried else condition)  # the first test; a carried one is made before
    if known is not None and not known:
        return 0
    comparison, inputs = _opened(condition)
    if comparison not in _MIRROR:
        return None
    left, right = inputs
    if _integer(left) is not None:
        left, right, comparison = right, left, _MIRROR[comparison]
    limit = _integer(right)
    if limit is None or left.op is not PHI or left.inputs[0] is not begin:
        return None
    counter = counters(end).get(index_of(left))
    return None if counter is None else _iterations(counter.first, counter.step, limit, comparison, as_tensor(left.type).dtype)


def _iterations(start: int, step: int, limit: int, comparison: str, dtype: DType) -> int | None:
    """Iterations of `for (k = start; k <comparison> limit; k += step)`; None where it does not end, or only by wrapping."""
    low, high = lowest(dtype), highest(dtype)
    if comparison in ("gt", "ge"):
        start, step, limit, comparison = -start, -step, -limit, _MIRROR[comparison]
        low, high = -high, -low
    if comparison == "eq":
        return 0 if start != limit else 1 if step else None
    if comparison == "ne":
        count, rest = divmod(limit - start, step) if step else (-1, 1)
        return 0 if start == limit else count if count >= 0 and not rest else None
    distance = limit - start + (comparison == "le")
    if distance <= 0:
        return 0
    count = -(-distance // step) if step > 0 else -1
    return count if count >= 0 and low <= start + count * step <= high else None


def rows_apart(end: Node, starts: Sequence[Node], box: Sequence[int], whole: Sequence[int]) -> bool:
    """Whether boxes of that size at these starts lie apart, and inside, for all iterations of a loop of known length."""
    begin, count = end.inputs[0], trip_count(end)
    found = counters(end) if count else {}
    for at, size, room in zip(starts, box, whole, strict=True):
        counter = found.get(index_of(at)) if at.op is PHI and at.inputs[0] is begin else None
        if counter is not None and count and abs(counter.step) >= size:
            last = counter.first + (count - 1) * counter.step
            if min(counter.first, last) >= 0 and max(counter.first, last) + size <= room:
                return True
    return False
