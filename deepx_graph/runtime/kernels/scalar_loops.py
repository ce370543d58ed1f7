"""The kernel of loops whose iterations do next to nothing: there a call of numpy costs more than all that it computes.

The loop program of such a function (`lower_control`) becomes one function of Python over scalars (`scalar_code.py`), where that is
faster by what both are known to cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from deepx_graph.analysis.work import node_times
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import STRUCTURAL
from deepx_graph.literal import Array
from deepx_graph.loops.passes.pipeline import optimised
from deepx_graph.loops.program import (
    Combine,
    Conditional,
    For,
    Get,
    Let,
    Load,
    LoopProgram,
    Set,
    Statement,
    Store,
    While,
    blocks_of,
)
from deepx_graph.loops.scalar import NotExpressible, Scalar
from deepx_graph.loops.weight import likelihood, trips
from deepx_graph.lowering.control import lower_control
from deepx_graph.ops.data.fusion import fused_body
from deepx_graph.runtime.cost.file import constants
from deepx_graph.runtime.cost.model import ForecastParts
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.kernels import costs
from deepx_graph.runtime.kernels.scalar_code import elements, is_called, is_sliced, numpy_dtype, written
from deepx_graph.runtime.memory.pool import delivered, result_memory
from deepx_graph.types import TensorType, leaves


def build(function: Function) -> ScalarLoops:
    """The kernel of a function with loops that runs faster so than a call of numpy after the other. Raises Declined."""
    types = [n.type for n in (*function.params, *function.results)]
    if not all(isinstance(t, TensorType) and t.dtype.kind != "complex" for t in types):
        raise Declined("states or complex numbers")
    calls = numpy_nanoseconds(function)
    if calls < _least_nanoseconds(function):
        raise Declined("loops over arrays")
    try:
        program = optimised(lower_control(function))
    except NotExpressible as e:
        raise Declined(str(e)) from None
    if calls < python_nanoseconds(program):
        raise Declined("loops over arrays")
    return ScalarLoops(program)


class ScalarLoops:
    """A loop program of real numbers made callable. Raises Declined for one of more than Python compiles."""

    lowering = "loops of Python over scalars"

    def __init__(self, program: LoopProgram) -> None:
        self.program = program
        self._function = written(program)
        self._results = [(numpy_dtype(r.dtype), r.shape) for r in program.results]
        kinds = [(a.dtype, a.shape) for a in program.arguments]
        self.in_place = tuple(frozenset(k for k, kind in enumerate(kinds) if kind == (r.dtype, r.shape)) for r in program.results)

    def __call__(self, args: Sequence[Any], out: Sequence[Any] | None = None) -> list[Array]:
        """The results for the arguments; in the arrays of `out`, where one is given."""
        arrays = [result_memory(shape, dtype, args, None if out is None else out[k], self.in_place[k])
                  for k, (dtype, shape) in enumerate(self._results)]
        given = [elements(np.asarray(x), a.dtype) for x, a in zip(args, self.program.arguments, strict=True)]
        with np.errstate(all="ignore"):
            found = self._function(*given)
        for array, values in zip(arrays, found, strict=True):
            array.reshape(-1)[...] = values
        return delivered(arrays, out)

    def scratch(self, loose: Mapping[int, int]) -> int:
        """The most bytes that a call has beside arguments and results: of every element an object, and where that is."""
        p = self.program
        return costs.OBJECT_BYTES * sum(b.size for b in (*p.arguments, *p.results, *p.scratch)) + sum(loose.values())

    def predicted(self) -> ForecastParts:
        """How long a call takes by the cost model."""
        return ForecastParts(constants().eval_call_ns, python_nanoseconds(self.program))


# --- what a call takes


def numpy_nanoseconds(function: Function) -> float:
    """About how long numpy takes for a function at least: the call of every operation."""
    return sum(times * _call_nanoseconds(node) for node, times in _operations(function))


def _call_nanoseconds(node: Node) -> float:
    body = next((a for a in node.attrs if isinstance(a, Function)), None)
    if body is not None:
        return costs.TREE_NS if len(body.params) > 2 else costs.FOLD_NS
    if not (node.op.elementwise or node.op.view):
        return costs.OPERATION_NS
    is_scalar = all(isinstance(n.type, TensorType) and n.type.dims == () for n in (node, *node.inputs))
    return costs.SCALAR_CALL_NS if is_scalar else costs.CALL_NS


def _least_nanoseconds(function: Function) -> float:
    """What Python takes at least: a statement for every element that is computed."""
    return sum(times * costs.STATEMENT_NS * _size(n.type) for n, times in _operations(function) if n.op.elementwise)


def _operations(function: Function) -> Iterator[tuple[Node, int]]:
    """The operations that a function computes, also within fusions, and how often each runs."""
    for node, times in node_times(function).items():
        body = fused_body(node)
        for n in (node,) if body is None else body.nodes:
            if n.inputs and n.op not in STRUCTURAL:
                yield n, times.count


def _size(type: Any) -> int:
    return sum(t.size for t in leaves(type) if isinstance(t, TensorType))


def python_nanoseconds(program: LoopProgram) -> float:
    """About how long Python takes for a program, of loops of unknown length one iteration, as everywhere where work is counted."""
    moved = (*program.arguments, *program.results)
    return costs.OBJECT_NS * sum(b.size for b in moved) + _nanoseconds(program.body, {})


def _nanoseconds(body: Sequence[Statement], made: dict[Scalar, Let]) -> float:
    total = 0.0
    for s in body:
        total += _own_nanoseconds(s)
        if isinstance(s, Let):
            made[s.target] = s
        if isinstance(s, Conditional):
            share = likelihood(s.condition, made)
            total += share * _nanoseconds(s.then, made) + (1 - share) * _nanoseconds(s.otherwise, made)
        elif isinstance(s, For) and is_sliced(s):
            total += costs.SLICED_NS * trips(s, made)
        else:
            total += (1.0 if isinstance(s, While) else trips(s, made)) * sum(_nanoseconds(b, made) for b in blocks_of(s))
    return total


def _own_nanoseconds(s: Statement) -> float:
    if isinstance(s, (Load, Store, Get, Set)):
        return costs.MOVE_NS
    if isinstance(s, (Let, Combine)):
        dtypes = [s.cell.dtype] if isinstance(s, Combine) else [s.target.dtype, *(a.dtype for a in s.args)]
        if is_called(s):
            return costs.FUNCTION_NS if all(d.is_float for d in dtypes) else costs.CONVERTED_NS
        return costs.FLOAT_NS if dtypes[0].is_float and s.primitive not in ("where", "copy", "max", "min") else costs.STATEMENT_NS
    return costs.STATEMENT_NS
