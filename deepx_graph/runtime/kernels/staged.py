"""Kernels of small tensors as functions of Python: nothing is left between numpy's calls.

A function of tensors of rank 0 alone is computed by numpy's scalars, a tenth of the time that an array of one element takes. One of
small tensors is its program's steps one after the other, each writing into memory that is bound once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from operator import methodcaller
from typing import Any

import numpy as np

from deepx_graph.ir import Function, Node
from deepx_graph.ir.scalar_expr import Apply, Expr, Immediate, Variable
from deepx_graph.ir.structure import CONSTANT, PARAM, value_of
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.kernels import lower_primitives
from deepx_graph.runtime.kernels.execute import Kernel
from deepx_graph.runtime.kernels.lower import viewed
from deepx_graph.runtime.kernels.program import Shape
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
    "max": larger, "min": smaller,
}  # fmt: skip
"""Python's own operators, which give for numpy's scalars the very bits of the ufunc."""


def scalar_function(function: Function) -> Staged:
    """A function of elementwise operations on tensors of rank 0 as one of numpy's scalars. Raises Declined for any other."""
    if any(not isinstance(n.type, TensorType) or n.type.dims != () or n.type.dtype.np not in lower_primitives.ALL for n in function.nodes):
        raise Declined("not of rank 0")
    if len(function.nodes) == len(function.params) + 1 and (known := _one_call(function)) is not None:
        return known
    params = [f"a{k}" for k in range(len(function.params))]
    writer = _ScalarWriter(PythonFunction("scalars", params))
    names = dict(zip(function.params, params, strict=True))
    for node in function.nodes:
        if node.op is CONSTANT:
            names[node] = writer.out.bind(value_of(node).array[()])
        elif node.op is not PARAM:
            names[node] = writer.node(node, [names[i] for i in node.inputs])
    return _giving(writer.out, [names[r] for r in function.results])


def _one_call(function: Function) -> Staged | None:
    """The callable of a function of one operation, where this is one primitive of its operands in order."""
    (node,) = function.results
    tree = node.op.kernel(*node.attrs) if node.op.kernel else None
    if not isinstance(tree, Apply) or tree.args != tuple(map(Variable, range(len(function.params)))):
        return None
    return _scalar_call(tree.primitive, [_dtype(i) for i in node.inputs], _dtype(node))


class _ScalarWriter:
    def __init__(self, out: PythonFunction) -> None:
        self.out, self.made = out, 0

    def node(self, node: Node, operands: Sequence[str]) -> str:
        """The name of an operation's value."""
        tree = node.op.kernel(*node.attrs) if node.op.kernel and node.op.elementwise else None
        if tree is None:
            raise Declined("no primitives")
        name, dtype = self._expression(tree, node, operands, {})
        if dtype != _dtype(node):
            raise Declined("no exact lowering")
        return name

    def _expression(self, tree: Expr, node: Node, operands: Sequence[str], known: dict[Expr, tuple[str, Any]]) -> tuple[str, Any]:
        if tree not in known:
            known[tree] = self._part(tree, node, operands, known)
        return known[tree]

    def _part(self, tree: Expr, node: Node, operands: Sequence[str], known: dict[Expr, tuple[str, Any]]) -> tuple[str, Any]:
        match tree:
            case Variable(index):
                return operands[index], _dtype(node.inputs[index])
            case Immediate(value):
                dtype = _dtype(node.inputs[0])
                return self.out.bind(np.asarray(value, dtype)[()]), dtype
            case Apply(primitive, args):
                sources = [self._expression(a, node, operands, known) for a in args]
                dtypes = [d for _, d in sources]
                call = _scalar_call(primitive, dtypes, _dtype(node))
                if call is None:
                    raise Declined("no exact lowering")
                self.made += 1
                self.out.call(f"t{self.made}", call, *(name for name, _ in sources))
                return f"t{self.made}", _result_dtype(primitive, dtypes, _dtype(node))


def _result_dtype(primitive: str, dtypes: Sequence[Any], target: Any) -> Any:
    if primitive == "cast":
        return target
    if primitive == "where":
        return dtypes[1]
    found = lower_primitives.lower_primitive(primitive, dtypes)
    return np.dtype(np.bool_) if found is not None and found.is_predicate else dtypes[0]


def _scalar_call(primitive: str, dtypes: Sequence[Any], target: Any) -> Staged | None:
    """What computes a primitive of scalars; None where numpy has no exact form of it."""
    if primitive == "cast":
        if lower_primitives.lower_cast(dtypes[0], target) is None:
            return None
        return bool_of if target.kind == "b" else methodcaller("astype", target)
    if primitive == "where":
        return choose
    found = lower_primitives.lower_primitive(primitive, dtypes)
    return None if found is None else SCALAR_CALLS.get(primitive) or found.call


def choose(condition: Any, x: Any, y: Any) -> Any:
    """`x` for true."""
    return x if condition else y


def bool_of(x: Any) -> Any:
    """Whether a scalar is not 0."""
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
        if step.sources:
            used = [names[kernel.reused.get(r, r)] for r in (*step.sources, step.target)]
            out.call(None, step.make(), *used)
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


def _dtype(node: Node) -> Any:
    assert isinstance(node.type, TensorType)
    return node.type.dtype.np
