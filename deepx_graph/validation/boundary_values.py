"""Boundary values: numbers at which programs change what they do (constants, where indices end), and inputs on both sides of them.

A value is compared with a constant, an index is clamped to what is left of a dimension: what random numbers reach only by chance,
or not at all where there are few of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.ir import Module, Node
from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.literal import Array
from deepx_graph.runtime.inputs import Port
from deepx_graph.types import TensorType
from deepx_graph.types import leaves as leaf_types
from deepx_graph.validation.constants import every_node, float_constants
from deepx_graph.validation.samples import samples

STEPS = (1, -1, 0, None)
"""How far from a boundary value the numbers of a set are: all above, all below, all at it, or each of its own."""

MOST = 256
"""Elements of a constant of integers that is looked at."""

FEW, REPEATED = 8, 4
"""Elements of an input up to which there are so many times as many sets: a single number shows little."""


@dataclass(frozen=True)
class BoundaryValues:
    """Sorted numbers, each once."""

    floats: Array
    integers: Array

    def samples(self, ports: Sequence[Port], count: int, seed: int = 0) -> list[dict[str, Array]]:
        """Sets of inputs, numbers of each of which lie at, or one beside, a boundary value; bools are ordinary.

        Raises UsageError for an input whose type is not known.
        """
        found = [samples(ports, 1, seed + k)[0] for k in range(count)]
        for k, (chosen, port) in enumerate(itertools.product(found, ports)):
            array, rng = chosen[port.name], np.random.default_rng([seed, k])
            numbers = self.floats if array.dtype.kind == "f" else self.integers if array.dtype.kind in "iu" else self.floats[:0]
            if numbers.size:
                step = STEPS[k // len(ports) % len(STEPS)]
                moved = rng.choice(numbers, array.shape) + (rng.integers(-1, 2, array.shape) if step is None else step)
                chosen[port.name] = _as(moved, array.dtype)
        return found


def _as(numbers: Array, dtype: Any) -> Array:
    if dtype.kind in "iu":
        numbers = np.clip(numbers, np.iinfo(dtype).min, min(np.iinfo(dtype).max, np.iinfo(np.int64).max))
    with np.errstate(over="ignore"):
        return np.asarray(numbers).astype(dtype)


def boundary_values(*modules: Module) -> BoundaryValues:
    """The boundary values of programs."""
    integers = {int(k) for m in modules for n in every_node(m) for k in _integers(n)}
    inside = [k for k in integers if -(1 << 62) < k < 1 << 62]
    return BoundaryValues(np.unique(np.concatenate([float_constants(m) for m in modules])), np.array(sorted(inside), np.int64))


def _integers(node: Node) -> Iterator[int]:
    """Integers of a constant; the sizes of a result, and what is left of an operand's when a part of that size is taken."""
    if node.op is CONSTANT:
        literal = value_of(node)
        if literal.dtype.is_integer and (literal.splat_value is not None or literal.array.size <= MOST):
            yield from np.unique(literal.array if literal.splat_value is None else literal.splat_value).tolist()
        return
    for result in leaf_types(node.type):
        if isinstance(result, TensorType) and result.is_static:
            yield from result.shape
            for operand in (i.type for i in node.inputs):
                if isinstance(operand, TensorType) and operand.is_static and len(operand.shape) == len(result.shape):
                    yield from (n - m for n, m in zip(operand.shape, result.shape, strict=True) if n > m)


def repetitions(ports: Sequence[Port]) -> int:
    """How many times as many sets of inputs are needed, for the input with the fewest elements."""
    sizes = [p.type.size for p in ports if isinstance(p.type, TensorType) and p.type.is_static and p.type.size]
    return REPEATED if sizes and min(sizes) <= FEW else 1
