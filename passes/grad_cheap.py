"""Which operations a backward part does again rather than keep what they gave: those that cost less than memory does.

A value that is kept is written and read once an element; one operation on values that are there anyway costs less.
"""

from __future__ import annotations

from deepx_graph.ir import Node
from deepx_graph.ir.kernel import Apply, Expr, price
from deepx_graph.ops import broadcast_in_dim, convert, dynamic_slice, iota, reshape, slice_

_MEMORY = 4
"""What writing and reading a value costs at least, in additions."""
_MOVES = (reshape, broadcast_in_dim, slice_, dynamic_slice, iota, convert)


def is_cheap(node: Node) -> bool:
    """Arithmetic without a transcendental function or division, and what only moves elements."""
    if node.op in _MOVES:
        return True
    kernel = node.op.kernel(*node.attrs) if node.op.elementwise and node.op.kernel is not None else None
    return kernel is not None and not _is_dear(kernel)


def _is_dear(kernel: Expr) -> bool:
    stack: list[Expr] = [kernel]
    while stack:
        e = stack.pop()
        if isinstance(e, Apply):
            if price(e.primitive) > _MEMORY:
                return True
            stack += e.args
    return False
