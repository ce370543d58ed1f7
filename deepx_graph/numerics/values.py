"""The values of every node of a program, as the reference engine computes them.

Of a node that is computed several times (in loops, in functions called repeatedly) the first values are kept, in order. The nodes
are those of the module as it ran, with every type known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deepx_graph.ir import Module, Node
from deepx_graph.ir.structure import CONSTANT
from deepx_graph.literal import Array
from deepx_graph.numerics.observed import RunObserver, Value, observe, tensors

RUNS = 16
"""Values of one node that are kept, unless more are asked for."""

KEEP_BYTES = 1 << 29
"""Bytes of values that are kept in all; what does not fit is left out."""


@dataclass
class ValueTable(RunObserver):
    """The values of the nodes of one run, in the order in which they were computed: of all nodes, or of those that are `wanted`."""

    wanted: Collection[Node] | None = None
    runs: int = RUNS
    values: dict[Node, list[Value]] = field(default_factory=dict)
    known: set[Node] = field(default_factory=set)
    """The nodes that an `eval` computed; of others, such as variables of loops, the values are those that users read."""
    kept_bytes: int = 0
    module: Module | None = None
    """The module as it runs."""

    def begin(self, module: Module, inputs: Mapping[str, Array]) -> None:
        """Notes the module."""
        self.module = module

    def __contains__(self, node: Node) -> bool:
        return bool(self.values.get(node))

    def of(self, node: Node, run: int = 0) -> Value | None:
        """The value of a node the `run`-th time that it was computed, None where it is not known."""
        if node.op is CONSTANT:
            return tensors(node.attr("value").array)
        found = self.values.get(node, ())
        return found[run] if run < len(found) else None

    def computed(self, node: Node, operands: Sequence[Any], result: Any) -> Any:
        """Records what was computed, and the operands that nothing computes."""
        for operand, value in zip(node.inputs, operands, strict=True):
            if operand not in self.known:
                self.add(operand, value)
        self.known.add(node)
        self.add(node, result)
        return result

    def add(self, node: Node, value: Any) -> None:
        """One more value of a node."""
        if self.wanted is not None and node not in self.wanted:
            return
        found, arrays = self.values.setdefault(node, []), tensors(value)
        if len(found) < self.runs and self.kept_bytes < KEEP_BYTES:
            self.kept_bytes += sum(a.nbytes for a in arrays)
            found.append(arrays)


@dataclass(frozen=True)
class EvaluatedModule:
    """A module as it ran, the values of its nodes, and its outputs."""

    module: Module
    table: ValueTable
    outputs: tuple[Any, ...]


def evaluate(module: Module, inputs: Mapping[str, Any], *, seed: int = 0, max_bytes: int | None = None) -> EvaluatedModule:
    """Runs the entry and records its values. Raises what compiling and running raise."""
    table = ValueTable()
    observed = observe(module, inputs, table, seed=seed, max_bytes=max_bytes)
    for k, p in enumerate(observed.module.entry.params):
        given = inputs.get(p.name or f"arg{k}")
        if given is not None and p not in table:
            table.add(p, np.asarray(given))
    return EvaluatedModule(observed.module, table, observed.outputs)

