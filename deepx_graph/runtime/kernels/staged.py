"""Kernels of small tensors as functions of Python: nothing is left between numpy's calls.

A function of tensors of rank 0 alone is computed by numpy's scalars, a tenth of the time that an array of one element takes. One of
small tensors is its program's steps one after the other, each writing into memory that is bound once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import methodcaller
from typing import Any

import numpy as np

from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.kernels import lower_primitives
from deepx_graph.runtime.kernels.execute import Kernel
from deepx_graph.runtime.kernels.lower import BlockwiseEval, lower, viewed
from deepx_graph.runtime.kernels.program import KernelProgram, Shape, Step
from deepx_graph.runtime.python_code import PythonFunction
from deepx_graph.types import TensorType

Staged = Callable[..., Any]

def larger(x: Any, y: Any) -> Any:
    """The maximum of two scalars; what is no number, where one is none."""
    return x if x > y or x != x else y


def smaller(x: Any, y: Any) -> Any:
    """The minimum."""
    return x if x < y or x != x else y


SCALAR_CALLS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "mul": operator.mul, "sub": operator.sub, "neg": operator.neg, "abs": operator.abs,
    "div": operator.truediv, "and": operator.and_, "or": operator.or_, "xor": operator.xor, "not": operator.invert,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "max": larger, "min": smaller, "where": lambda condition, x, y: x if condition else y,
}  # fmt: skip
"""Python's own operators, which give for numpy's scalars the very bits of the ufunc."""

ARRAY_CALLS: dict[str, Callable[..., Any]] = {"where": np.where}


def scalar_function(function: Function) -> Staged:
    """A function of elementwise operations on tensors of rank 0 as one of numpy's scalars. Raises Declined for any other."""
    types = [n.type for n in function.nodes]
    if not all(isinstance(t, TensorType) and t.dims == () and t.dtype.np in lower_primitives.ALL for t in types):
        raise Declined("not of rank 0")
    return elementwise_function(function, SCALAR_CALLS)


def elementwise_function(function: Function, calls: Mapping[str, Staged], shape: Shape = ()) -> Staged:
    """A function of elementwise operations, of scalars or of arrays of one shape, that of its constants; `calls` are the primitives
    of such operands that have a form of their own. Raises Declined for one of other operations."""
    if any(not n.op.elementwise and n.op not in (PARAM, CONSTANT) for n in function.nodes):
        raise Declined("not elementwise")
    program = lower(function)
    params = [f"a{k}" for k in range(len(function.params))]
    out = PythonFunction("elements", params)
    names = {leaf.register: params[leaf.param] for leaf in program.leaves}
    names |= {r: out.bind(array.reshape(() if array.size == 1 else shape)[()]) for r, array in program.constants}
    for step in program.steps:
        names[step.target] = f"t{step.target}"
        call, sources = _value(step, program, calls), [names[s] for s in step.sources]
        if len(program.steps) == 1 and sources == params:
            return call
        out.call(names[step.target], call, *sources)
    return _giving(out, [names[r] for r in program.results])


def _value(step: Step, program: KernelProgram, calls: Mapping[str, Staged]) -> Staged:
    """A step as a function that gives its value."""
    call, dtype = step.call, program.registers[step.target].dtype
    if isinstance(call, BlockwiseEval):
        return call.value
    if call is lower_primitives.saturated:
        return partial(saturated_as, dtype)
    if call is lower_primitives.is_nonzero:
        return bool_of
    if call is lower_primitives.copy:
        return dtype.type if calls is SCALAR_CALLS else methodcaller("astype", dtype)
    return calls.get(step.primitive, call)


def saturated_as(target: Any, x: Any) -> Any:
    """Floats as integers."""
    out = np.empty(x.shape, target)
    lower_primitives.saturated(x, out)
    return out[()]


def bool_of(x: Any) -> Any:
    """Whether numbers are not 0."""
    return x != 0


def array_function(kernel: Kernel, params: Sequence[Node]) -> Staged:
    """A kernel of one block as a function of its arguments, of which only those that need it are seen in another shape."""
    program, whole = kernel.program, kernel.one_block()
    out = PythonFunction("kernel", [f"a{k}" for k in range(len(params))])
    names = {r: out.bind(array) for r, array in enumerate(whole) if array is not None}
    for leaf in program.leaves:
        names[leaf.register] = _seen(out, leaf, program.registers[leaf.register].shape, params[leaf.param])
    for r in program.results:
        names[r] = f"r{r}"
        out.call(names[r], partial(np.empty, program.registers[r].shape, program.registers[r].dtype))
    for step in kernel.plan.levels[0]:
        used = [names[r] for r in (*step.sources, step.target)]
        out.call(None, step.call, *used)
    for r, shape in zip(program.results, program.result_shapes, strict=True):
        if shape != program.registers[r].shape:
            out.call(names[r], methodcaller("reshape", shape), names[r])
    return _giving(out, [names[r] for r in program.results])


def _seen(out: PythonFunction, leaf: Any, shape: Shape, param: Node) -> str:
    """The name of an argument as its register has it."""
    argument, name = f"a{leaf.param}", f"r{leaf.register}"
    assert isinstance(param.type, TensorType)
    given = param.type.shape
    if leaf.views or leaf.order is not None:
        out.call(name, partial(_viewed, leaf.views, leaf.order, shape), argument)
    elif np.prod(shape, dtype=object) == 1:
        if given == ():
            return argument
        out.call(name, methodcaller("reshape", ()), argument)
    elif given == shape:
        return argument
    else:
        out.call(name, methodcaller("reshape", shape), argument)
    return name


def _viewed(views: Any, order: Any, shape: Shape, array: Any) -> Any:
    seen = viewed(np.asarray(array), views, order)
    return seen.reshape(()) if seen.size == 1 else seen.reshape(shape)


def _giving(out: PythonFunction, results: Sequence[str]) -> Staged:
    """The function with its results; the one result itself, where there is one."""
    out.give(results, one=len(results) == 1)
    return out.finished()


def reduction_function(node: Node) -> Staged:
    """A `reduce` by any body of elementwise operations: neighbouring pairs are combined, all of them at once, until one is left.

    Raises Declined for another body.
    """
    body, gone = node.attr("body"), node.attr("dimensions")
    combine = elementwise_function(body, ARRAY_CALLS)
    count = len(node.inputs) // 2
    first = node.inputs[0].type
    assert isinstance(first, TensorType)
    rest = [k for k in range(len(first.shape)) if k not in gone]
    order, shape = (*gone, *rest), (-1, *(first.shape[k] for k in rest))
    if 0 in first.shape or any(r.op in (CONSTANT, PARAM) for r in body.results):
        raise Declined("nothing to combine")

    def run(*values: Any) -> Any:
        rows = [x.transpose(order).reshape(shape) for x in values[:count]]
        while (size := len(rows[0])) > 1:
            even = size // 2 * 2
            new = combine(*(x[0:even:2] for x in rows), *(x[1:even:2] for x in rows))
            if count == 1:
                new = (new,)
            rows = list(new) if even == size else [np.concatenate((y, x[even:])) for y, x in zip(new, rows, strict=True)]
        return combine(*(np.full(x.shape[1:], v) for v, x in zip(values[count:], rows, strict=True)), *(x[0] for x in rows))

    return run
