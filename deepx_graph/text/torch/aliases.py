"""Which names are views of which: what is written in place is seen through all of them.

Exported programs that are not decomposed write in place (`aten.add_`, `aten.copy_`). A graph of values has no places: writing gives
a name a new value, and its base a value with that part replaced (`written_back`); other views of the base are read anew when they
are next used. Source: "Functionalization" (torch/_functorch, functionalize).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.text.torch.context import CallContext
from deepx_graph.text.torch.rules.parts import placed
from deepx_graph.text.torch.rules.views import transposition
from deepx_graph.text.torch.schema import ExportedGraph, ExportedNode, Name
from deepx_graph.types import I64

WriteBack = Callable[[CallContext, Node, Node, int], Node]
"""`(call of the view, base, new value of result k, k)`: the base with the new value in its place."""


def _shape(c: CallContext, base: Node, new: Node, k: int) -> Node:
    return c.shaped(new, c.dims_of(base))


def _whole(c: CallContext, base: Node, new: Node, k: int) -> Node:
    return new


def _order(c: CallContext, base: Node, new: Node, k: int) -> Node:
    order = transposition(c)
    return c.transposed(new, [order.index(j) for j in range(len(order))])


def _slice(c: CallContext, base: Node, new: Node, k: int) -> Node:
    dim = c.axis("dim", 0)
    size = c.shape_of(base)[dim]
    start, end, step = (c.number(name, default) for name, default in (("start", 0), ("end", size), ("step", 1)))
    return placed(c, base, new, dim, start, end, step)


def _select(c: CallContext, base: Node, new: Node, k: int) -> Node:
    dim = c.axis("dim", 0)
    index = c.number("index") % c.shape_of(base)[dim]
    return placed(c, base, c.add_axes(new, (dim,)), dim, index, index + 1, 1)


def _narrow(c: CallContext, base: Node, new: Node, k: int) -> Node:
    dim, start = c.axis("dim", 0), c.number("start")
    return placed(c, base, new, dim, start, start + c.number("length"), 1)


def _part(c: CallContext, base: Node, new: Node, k: int) -> Node:
    """Of a tensor cut in parts: where part k begins follows from the sizes of those before it."""
    dim = c.axis("dim", 0)
    sizes = [m.sizes[dim] for m in c.declared if m is not None]
    start = sum(c.static(tuple(sizes[:k])))
    return placed(c, base, new, dim, start, start + c.shape_of(new)[dim], 1)


def _item(c: CallContext, base: Node, new: Node, k: int) -> Node:
    dim = c.axis("dim", 0)
    return placed(c, base, c.add_axes(new, (dim,)), dim, k, k + 1, 1)


def _diagonal(c: CallContext, base: Node, new: Node, k: int) -> Node:
    """The elements of two axes whose numbers differ by the offset are those of the last axis of what is new."""
    first, second, offset = c.axis("dim1", 0), c.axis("dim2", 1), c.number("offset", 0)
    dims, size = c.shape_of(base), c.shape_of(new)[-1]
    rest = [j for j in range(len(dims)) if j not in (first, second)]
    low = max(-offset, 0)
    wide = c(ops.pad, new, c.like(0, new), edge_padding_low=(*(0 for _ in rest), low),
             edge_padding_high=(*(0 for _ in rest), dims[first] - low - size), interior_padding=(0,) * (len(rest) + 1))  # fmt: skip
    row, column = c.indices(I64, dims, first), c.indices(I64, dims, second)
    hit = c(ops.compare, c(ops.subtract, column, row), c.like(offset, row), direction="EQ")
    return c(ops.select, hit, c.along(wide, dims, (*rest, first)), base)


BACK: dict[str, WriteBack] = {
    **dict.fromkeys(("alias", "detach", "view_as", "lift_fresh", "dropout"), _whole),
    **dict.fromkeys(("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "ravel"), _shape),
    **dict.fromkeys(("permute", "transpose", "t", "numpy_T", "mT", "swapaxes", "swapdims", "movedim"), _order),
    "slice": _slice, "select": _select, "narrow": _narrow, "unbind": _item, "diagonal": _diagonal,
    **dict.fromkeys(("split", "split_with_sizes", "chunk", "tensor_split"), _part),
    **dict.fromkeys(("contiguous", "to"), _whole),
}  # fmt: skip
"""How each operator that gives a view writes back."""

COPIES = frozenset(("contiguous", "to", "reshape", "flatten", "ravel", "dropout"))
"""Operators that give their operand itself where they can, and a copy where they cannot."""

SEEN_ONLY = frozenset(("expand", "expand_as", "broadcast_to", "as_strided", "unfold", "real", "imag", "adjoint", "mH", "matrix_H"))
"""Operators that give views which nothing may be written through here."""


def packet(node: ExportedNode) -> str:
    """The operator without namespace and overload; empty for other namespaces."""
    namespace, _, rest = node.operator.partition(".")
    return rest.partition(".")[0] if namespace == "aten" else ""


def written_back(c: CallContext, base: Node, new: Node, k: int) -> Node:
    """The base of a view with result k of the view replaced. Raises InferError for views that this is not known of."""
    rule = BACK.get(packet(c.call))
    if rule is None:
        raise InferError(f"what is written through {c.call.operator} '{c.call.name}' is not followed",
                         hint="program.run_decompositions() gives a program that writes nothing in place")
    return rule(c, base, c.to(new, c.dtype_of(base)), k)


class Aliases:
    """The views of a graph by name."""

    def __init__(self) -> None:
        self.base: dict[str, tuple[str, ExportedNode | None]] = {}
        """What a name is a view of, and the call that made it; None for a call that wrote in place and gave what it wrote to."""
        self.views: dict[str, list[str]] = {}
        self.stale: set[str] = set()
        self.written: set[str] = set()
        """Names that are no views, and have been written to."""

    def is_view(self, node: ExportedNode, graph: ExportedGraph, of: Name) -> bool:
        """Whether what a call gives shares its elements with its first argument."""
        name = packet(node)
        if name in COPIES:
            made, given = graph.tensors.get(node.name), graph.tensors.get(of.text)
            plain = made is not None and given is not None and made.dtype is given.dtype
            return plain and (name == "dropout" or made.strides == given.strides or _dense(given.sizes, given.strides))  # type: ignore[union-attr]
        return name in BACK or name in SEEN_ONLY

    def add(self, name: str, base: str, call: ExportedNode | None) -> None:
        self.base[name] = (base, call)
        self.views.setdefault(self.root(base), []).append(name)

    def root(self, name: str) -> str:
        """The name whose elements these are."""
        while name in self.base:
            name = self.base[name][0]
        return name

    def wrote(self, root: str, fresh: set[str]) -> None:
        """All views of a name but these have to be read anew."""
        self.written.add(root)
        self.stale.update(v for v in self.views.get(root, ()) if v not in fresh)
        self.stale -= fresh

    def outdated(self, name: str) -> bool:
        """Whether a name has to be read anew; asked once."""
        if name in self.stale:
            self.stale.discard(name)
            return True
        return False


def _dense(sizes: Sequence[object], strides: Sequence[object]) -> bool:
    """Whether elements lie one after the other, as far as sizes are known."""
    expected: object = 1
    for n, s in zip(reversed(sizes), reversed(strides), strict=False):
        if n != 1 and s != expected:
            return False
        expected = expected * n if isinstance(expected, int) and isinstance(n, int) else s
    return True
