"""The values of every node of a program, as the reference engine computes them.

Of a node that is computed several times (in loops, in functions called repeatedly, on several devices) the first `RUNS` values are
kept, in order. The nodes are those of the module as it ran, with every type known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deepx_graph.ir import Module, Node
from deepx_graph.ir.structure import CONSTANT
from deepx_graph.literal import Array, content
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.engines.base import KernelFn
from deepx_graph.runtime.engines.numpy_engine import NumpyEngine
from deepx_graph.runtime.inputs import flatten

RUNS = 16
"""Values of one node that are kept."""

KEEP_BYTES = 1 << 29
"""Bytes of values that are kept in all; what does not fit is left out."""

Value = tuple[Array, ...]
"""The arrays of a value: one of a tensor, several of a tuple; none of a function, of data and of the state of effects."""


@dataclass
class ValueTable:
    """The values of the nodes of one run, in the order in which they were computed."""

    values: dict[Node, list[Value]] = field(default_factory=dict)
    computed: set[Node] = field(default_factory=set)
    """The nodes that an `eval` computed; of others, such as variables of loops, the values are those that users read."""
    kept_bytes: int = 0

    def __contains__(self, node: Node) -> bool:
        return bool(self.values.get(node))

    def of(self, node: Node, run: int = 0) -> Value | None:
        """The value of a node the `run`-th time that it was computed, None where it is not known."""
        if node.op is CONSTANT:
            return arrays_of(node.attr("value").array)
        found = self.values.get(node, ())
        return found[run] if run < len(found) else None

    def take(self, node: Node, operands: Sequence[Any], result: Any) -> None:
        """Records what was computed, and the operands that nothing computes."""
        for operand, value in zip(node.inputs, operands, strict=True):
            if operand not in self.computed:
                self.add(operand, value)
        self.computed.add(node)
        self.add(node, result)

    def add(self, node: Node, value: Any) -> None:
        """One more value of a node."""
        found, arrays = self.values.setdefault(node, []), arrays_of(value)
        if len(found) < RUNS and self.kept_bytes < KEEP_BYTES:
            self.kept_bytes += sum(a.nbytes for a in arrays)
            found.append(arrays)


class RecordingEngine:
    """The reference engine, whose results a table takes. They stay as they are: no kernel of it writes over a value."""

    name = "numpy"

    def __init__(self, table: ValueTable) -> None:
        self.inner, self.table = NumpyEngine(), table

    def writes(self, node: Node) -> bool:
        """As the reference: never."""
        return self.inner.writes(node)

    def kernel(self, node: Node) -> KernelFn:
        """`op.eval`, recorded."""
        kernel, take = self.inner.kernel(node), self.table.take

        def run(operands: Sequence[Any], out: Sequence[Array] | None) -> Any:
            result = kernel(operands, out)
            take(node, operands, result)
            return result

        return run


@dataclass(frozen=True)
class EvaluatedModule:
    """A module as it ran, the values of its nodes, and its outputs: one tuple for each device where there are several."""

    module: Module
    table: ValueTable
    outputs: tuple[Any, ...]


def evaluate(module: Module, inputs: Mapping[str, Any], *, partitions: int = 1, seed: int = 0,
             max_bytes: int | None = None) -> EvaluatedModule:
    """Runs the entry and records its values; an input is a list of one array for each device where there are several.

    Raises what compiling and running raise.
    """
    table, ready = ValueTable(), [module]

    def prepare(specialised: Module) -> Module:
        ready[:] = [specialised]
        return specialised

    f = compile(module, engine=RecordingEngine(table), partitions=partitions, seed=seed, max_bytes=max_bytes, prepare=prepare)
    outputs = f(**inputs)
    entry = ready[-1].entry
    for k, p in enumerate(entry.params):
        given = inputs.get(p.name or f"arg{k}")
        if given is not None and p not in table:
            for value in given if isinstance(given, list) else [given]:
                table.add(p, np.asarray(value))
    return EvaluatedModule(ready[-1], table, outputs)


def arrays_of(value: Any) -> Value:
    """The arrays in a value, tuples taken apart."""
    if isinstance(value, np.ndarray):
        return (value,)
    return tuple(np.asarray(v) for v in flatten(value) if isinstance(v, (np.ndarray, np.generic)))


def digest(arrays: Value) -> bytes:
    """What equal values have in common: element types, sizes and elements; every NaN is the same, shapes do not count."""
    made = hashlib.blake2b(digest_size=16)
    for a in arrays:
        if a.dtype.kind in "fc" or a.dtype.kind == "V":
            odd = np.isnan(a)
            a = np.where(odd, np.asarray(np.nan, a.dtype), a) if odd.any() else a
        made.update(f"{a.dtype.name}{a.size}".encode())
        made.update(content(a))
    return made.digest()
