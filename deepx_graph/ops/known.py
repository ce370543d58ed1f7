"""Values that are known before a program runs: what depends on constants, known sizes and given arguments alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.ir.evaluation import evaluation, scratch
from deepx_graph.ir.structure import (
    CONSTANT,
    PARAM,
    PHI,
    PROJ,
    REGION,
    TUPLE,
    branches_of,
    index_of,
    taken_branch,
    value_of,
)
from deepx_graph.ops.data.fusion import fusion
from deepx_graph.ops.tensor.layout import get_dimension_size
from deepx_graph.ops.tensor.shape import iota
from deepx_graph.types import as_tensor, is_static, nbytes

LIMIT = 1 << 22
"""Bytes that one step of an evaluation may take where no arguments are given: a text may ask for anything."""


EVALUATED = frozenset((iota, fusion))
"""Operations that are not folded, as they would grow, and whose values are known all the same."""


class NotKnown(InferError):
    """Raised by what builds nodes where it depends on a type or value that is not known yet."""


class KnownValues:
    """The values of nodes as far as they are known. `given` tells the value of a parameter by its index; None for one that it
    does not have. Each node is evaluated once.
    """

    def __init__(self, given: Callable[[int], Any] | None = None) -> None:
        self.given = given
        self._found: dict[Node, Any] = {}

    def __call__(self, node: Node) -> Any:
        """The array of a node, a tuple of them for a tuple; None where it is not known."""
        stack = [node]
        while stack:
            n = stack[-1]
            if n in self._found:
                stack.pop()
                continue
            needed = self._needed(n)
            waits = [i for i in needed if i not in self._found]
            if any(i in self._found and self._found[i] is None for i in needed):
                self._found[n] = None
            elif waits:
                stack += waits
            else:
                self._found[n] = self._value(n)
        return self._found[node]

    def tell(self, node: Node, value: Any) -> None:
        """Says the value of a node, known by other means; of what is asked about later more is known then."""
        self._found[node] = value

    def _needed(self, node: Node) -> tuple[Node, ...]:
        """What must be known of its inputs; of a branch its selector, and then the value taken."""
        if node.op is get_dimension_size:
            dims = as_tensor(node.inputs[0].type).dims
            known = dims is not None and isinstance(dims[node.attr("dimension")], int)
            return () if known else node.inputs[:1]
        if node.op is PHI and node.inputs[0].op is REGION:
            region = node.inputs[0]
            selector = self._found.get(region.inputs[0])
            if selector is None:
                return region.inputs[:1]
            return region.inputs[0], branches_of(region)[taken_branch(selector, len(branches_of(region)))][index_of(node)]
        return node.inputs

    def _value(self, node: Node) -> Any:
        """The value of a node whose needed inputs are known."""
        if node.op is CONSTANT:
            return value_of(node).array
        if node.op is PARAM:
            return self.given(index_of(node)) if self.given is not None else None
        inputs = [self._found[i] for i in self._needed(node)]
        if node.op is TUPLE:
            return tuple(inputs)
        if node.op is PROJ:
            return inputs[0][index_of(node)]
        if node.op is PHI and node.inputs[0].op is REGION:
            return inputs[1]
        if node.op is get_dimension_size:
            dims = as_tensor(node.inputs[0].type).dims
            size = dims[node.attr("dimension")] if dims is not None else None
            return np.asarray(inputs[0].shape[node.attr("dimension")] if inputs else size, np.int32)
        if node.op.eval is None or not (node.op.foldable or node.op in EVALUATED) or not is_static(node.type):
            return None
        types = [i.type for i in node.inputs]
        if self.given is None and nbytes(node.type) + scratch(node.op, types, node.type, node.attrs) > LIMIT:
            return None
        with np.errstate(all="ignore"):
            return evaluation(node.op, node.attrs, node.type)(inputs)
