"""Steps of rules that ask for ranks, sizes and values: what is not known yet raises NotKnown, and the caller defers the call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from deepx_graph.ir import Builder, Node
from deepx_graph.literal import Array
from deepx_graph.ops.known import NotKnown
from deepx_graph.text.common.steps import Steps, joint_dims
from deepx_graph.types import ANY, Dim, Dims, DType, TensorType, as_tensor, scalar


class Defers:
    """What lowers calls, and may leave one whose rule raises NotKnown to when the values are there."""

    may_defer: bool

    @contextmanager
    def complete(self) -> Iterator[None]:
        """In here nothing is deferred: NotKnown goes to the one who asked."""
        before, self.may_defer = self.may_defer, False
        try:
            yield
        finally:
            self.may_defer = before


class KnownSteps(Steps):
    """Steps over operands whose types and values may have to be known; `values` gives the value of a node, or None."""

    def __init__(self, b: Builder, values: Callable[[Node], Any]) -> None:
        super().__init__(b)
        self.values = values

    def static(self, dims: Dims, what: str = "an operand") -> tuple[int, ...]:
        """Sizes that are all known. Raises NotKnown."""
        if not all(isinstance(d, int) for d in dims):
            raise NotKnown(f"the shape of {what} is not known")
        return dims  # type: ignore[return-value]

    def shape_of(self, x: Node) -> tuple[int, ...]:
        """The sizes of a node, all known. Raises NotKnown."""
        return self.static(self.dims_of(x), x.name or "an operand")

    def type_of(self, x: Node) -> TensorType:
        """The type of a node that is a tensor."""
        return as_tensor(x.type)

    def dims_of(self, x: Node) -> Dims:
        dims = as_tensor(x.type).dims
        if dims is None:
            raise NotKnown("the rank of an operand is not known")
        return dims

    def dtype_of(self, x: Node) -> DType:
        return as_tensor(x.type).dtype

    def like(self, value: Any, node: Node) -> Node:
        """A scalar constant of the node's element type. Raises NotKnown where that is not known."""
        if isinstance(node.type, TensorType) and node.type.dtype is ANY:
            raise NotKnown(f"the element type of {node.name or 'an operand'} is not known")
        return super().like(value, node)

    def known(self, x: Node) -> Array:
        """The value of a node. Raises NotKnown."""
        found = self.values(x)
        if found is None:
            raise NotKnown(f"the value of {x.name or 'an operand'} is not known")
        return np.asarray(found)

    def broadcast(self, *nodes: Node) -> list[Node]:
        """Operands in one shape, but for scalars. Raises NotKnown where sizes that are not known may have to be stretched."""
        shapes = [self.dims_of(n) for n in nodes]
        wide = [s for s in shapes if s]
        if all(s == wide[0] for s in wide):
            return list(nodes)
        rank = max(map(len, wide))
        for k in range(1, rank + 1):
            sizes = {s[-k] for s in wide if len(s) >= k} - {1}
            if len(sizes) > 1 and any(isinstance(d, str) for d in sizes):
                raise NotKnown(f"whether the sizes {' and '.join(map(str, sizes))} are equal is not known")
        dims = joint_dims(wide)
        return [n if s in ((), dims) else self.broadcast_to(n, dims) for n, s in zip(nodes, shapes, strict=True)]

    def filled(self, x: Node, dims: Dims) -> Node:
        """The operand in that very shape, a scalar too."""
        return self.along(x, dims, ()) if self.dims_of(x) == () and dims else self.broadcast_to(x, dims)

    def each(self, op: Any, *nodes: Node, **attrs: Any) -> Node:
        """An elementwise op over operands broadcast as numpy does."""
        return self(op, *self.broadcast(*nodes), **attrs)

    def constant(self, value: Any, dtype: DType) -> Node:
        """A constant array."""
        return self.b.constant(np.asarray(value), dtype)

    def scalar(self, value: Any, dtype: DType) -> Node:
        return self.b.splat(value, scalar(dtype))

    def add_axes(self, x: Node, axes: Sequence[int]) -> Node:
        """Ones put in at these axes of the result."""
        dims: list[Dim] = list(self.dims_of(x))
        for a in sorted(axes):
            dims.insert(a, 1)
        return self.shaped(x, dims)
