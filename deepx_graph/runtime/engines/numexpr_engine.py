"""The engine that always works: cache blocks of numpy's vector loops on several threads, numexpr's machine for small arithmetic.

A fusion, or a large elementwise node, becomes a kernel (`runtime.kernels`); a matrix product writes straight into its buffer;
every other node is its op's own eval. Whatever way is taken, the values are those of eval, up to the order of floating sums.
No text is evaluated, and no global setting of numexpr is changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from deepx_graph.blas import available_cores
from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.evaluation import evaluation
from deepx_graph.ops.contract.linear import dot_general
from deepx_graph.ops.data.fusion import fusion
from deepx_graph.ops.tensor.index import dynamic_update_slice
from deepx_graph.ops.tensor.layout import reshape
from deepx_graph.runtime.cost import counts as cost_counts
from deepx_graph.runtime.cost.model import Forecast, ForecastParts
from deepx_graph.runtime.engines.base import KernelFn
from deepx_graph.runtime.engines.gemm import BatchedGemm, Multiply, ProductKernel, canonicalized, product
from deepx_graph.runtime.engines.updates import updated
from deepx_graph.runtime.kernels import costs
from deepx_graph.runtime.kernels.execute import build
from deepx_graph.runtime.memory.assignment import of_eval
from deepx_graph.runtime.memory.pool import RESULTS, Allowance
from deepx_graph.types import TensorType, is_static, nbytes


class CompiledKernel(Protocol):
    """A program made callable: `kernel(args, out)` gives all its results, in `out` where that is given.

    `in_place` are, for each result, the arguments of its type over which it may be written.
    """

    in_place: tuple[frozenset[int], ...]
    lowering: str

    def predicted(self) -> ForecastParts:
        """How long a call takes by the cost model."""
        ...

    def keep(self, allowance: Allowance) -> None:
        """Keeps memory from call to call only where the allowance has room for it."""
        ...

    def scratch(self, loose: Mapping[int, int]) -> int:
        """The most bytes that a call has beside arguments and results, where arguments of so many bytes may not lie in order."""
        ...

    def __call__(self, args: Sequence[Any], out: Sequence[Any] | None = None) -> list[Any]: ...


class NumexprEngine:
    """Makes callables for nodes. `threads` is how many cores a kernel may use; None for all that the process has."""

    name = "numexpr"

    def __init__(self, threads: int | None = None) -> None:
        self.threads = available_cores() if threads is None else max(1, threads)
        self._built: dict[Any, CompiledKernel | None] = {}
        self._products: dict[Any, ProductKernel | None] = {}
        self._kept = Allowance(costs.KEPT_BYTES)

    def kernel(self, node: Node) -> KernelFn:
        """The callable of one node: `kernel(values, out)` gives what `op.eval` gives, in `out` where that is given."""
        found = self._own(node)
        return evaluated(node) if found is None else found

    def writes(self, node: Node) -> bool:
        """Whether the node is computed here, and not by its eval, whose results are its own arrays."""
        return not node.op.view and self._own(node) is not None

    def canonicalize(self, function: Function) -> Function:
        """The function as it runs best."""
        return canonicalized(function)

    def overwrites(self, node: Node) -> tuple[frozenset[int], ...]:
        """For each result, the operands of its type over whose memory the node's kernel writes it without harm; () for none."""
        kernel = self._compiled(node)
        return () if kernel is None else kernel.in_place

    def scratch(self, node: Node, loose: frozenset[int]) -> int:
        """The bytes that the node's kernel has for itself. Makes the kernel where it is none of eval's."""
        if node.op.view or self._own(node) is None:
            return of_eval(node, loose)
        product = self._products.get(key_of(node))
        if product is not None:
            return product.scratch(loose)
        kernel = self._compiled(node)
        return 0 if kernel is None else kernel.scratch({k: nbytes(node.inputs[k].type) for k in loose})

    def lowering(self, node: Node) -> str:
        """How the node's kernel, which has been made, runs: machine code, numpy's loops, numexpr's machine, BLAS, or its eval."""
        kernel = self._compiled(node)
        if kernel is not None:
            return kernel.lowering
        product = self._products.get(key_of(node))
        return product.lowering if product is not None else "view" if node.op.view else "eval"

    def forecast(self, node: Node) -> Forecast:
        """How long the node's kernel, which has been made, will take."""
        kernel = self._compiled(node)
        return cost_counts.alone(node, self.threads) if kernel is None else cost_counts.forecast(node, kernel.predicted())

    def _compiled(self, node: Node) -> CompiledKernel | None:
        return self._built.get(node.attr("body") if node.op is fusion else key_of(node))

    def build(self, function: Function) -> CompiledKernel | None:
        """The kernel of a body of elementwise operations, broadcasts and reductions; None where there is none."""
        return build(function, self.threads)

    def _own(self, node: Node) -> KernelFn | None:
        rule = _RULES.get(node.op, NumexprEngine._elementwise if node.op.elementwise else None)
        return rule(self, node) if rule is not None else None

    def _fusion(self, node: Node) -> KernelFn | None:
        body: Function = node.attr("body")
        return self._kernel(node, body, lambda: body)

    def _elementwise(self, node: Node) -> KernelFn | None:
        if not is_tensor(node) or math.prod(_shape(node)) <= costs.VM_ELEMENTS:
            return None  # one numpy call: nothing to gain
        return self._kernel(node, key_of(node), lambda: alone(node))

    def _kernel(self, node: Node, key: Any, function: Callable[[], Function]) -> KernelFn | None:
        kernel = self._remembered(key, function)
        if kernel is None:
            return None
        return _single(kernel) if isinstance(node.type, TensorType) else _several(kernel)

    def _remembered(self, key: Any, function: Callable[[], Function]) -> CompiledKernel | None:
        """The kernel of that key, built when it is first asked for."""
        if key not in self._built:
            self._remember(key, self.build(function()))
        return self._built[key]

    def _remember(self, key: Any, kernel: CompiledKernel | None) -> None:
        self._built[key] = kernel
        if kernel is not None:
            kernel.keep(self._kept)

    def _dot(self, node: Node) -> KernelFn | None:
        key = key_of(node)
        if key not in self._products:
            self._products[key] = product(node, self.multiply)
        return self._products[key]

    def multiply(self, stacks: BatchedGemm) -> Multiply | None:
        """What multiplies such stacks of matrices; None for BLAS."""
        return None

    def _reshape(self, node: Node) -> KernelFn | None:
        """A view where the elements lie in order, else a copy in memory that is used again."""
        if not is_tensor(node):
            return None
        shape, dtype = node.type.shape, node.type.dtype.np  # type: ignore[attr-defined]

        def run(values: Sequence[Any], out: Sequence[Any] | None) -> Any:
            x = np.asarray(values[0])
            if x.flags.c_contiguous:
                return x.reshape(shape)
            into = RESULTS.empty(shape, dtype)
            np.copyto(into.reshape(x.shape), x)
            return into

        return run

    def _update(self, node: Node) -> KernelFn | None:
        """A part of an array written anew, in place where nobody sees it."""
        return updated(node) if is_tensor(node) else None


Rule = Callable[[NumexprEngine, Node], "KernelFn | None"]
_RULES: dict[object, Rule] = {
    fusion: NumexprEngine._fusion, dot_general: NumexprEngine._dot, dynamic_update_slice: NumexprEngine._update,
    reshape: NumexprEngine._reshape,
}  # fmt: skip


def evaluated(node: Node) -> KernelFn:
    """The op's own eval, its result copied to `out` where that is given. Raises InferError for an op without eval."""
    evaluate = evaluation(node.op, node.attrs, node.type)

    def run(values: Sequence[Any], out: Sequence[Any] | None) -> Any:
        value = evaluate(values)
        if out is None:
            return value
        if not isinstance(value, tuple):
            return _kept(value, out[0])
        return tuple(_kept(v, o) for v, o in zip(value, out, strict=True))

    return run


def _kept(value: Any, out: Any) -> Any:
    if out is None:
        return value
    np.copyto(out, value)
    return out


def key_of(node: Node) -> Any:
    """What decides the kernel of a node alone."""
    return node.op, node.attrs, tuple(i.type for i in node.inputs), node.type


def _single(kernel: CompiledKernel) -> KernelFn:
    return lambda values, out: kernel(values, out)[0]


def _several(kernel: CompiledKernel) -> KernelFn:
    return lambda values, out: tuple(kernel(values, out))


def alone(node: Node) -> Function:
    """A function of just that node."""
    b = Builder()
    params = tuple(b.param(k, i.type) for k, i in enumerate(node.inputs))
    return Function(node.op.name, params, (Node(node.op, params, node.attrs, node.type),))


def is_tensor(node: Node) -> bool:
    return isinstance(node.type, TensorType) and is_static(node.type)


def _shape(node: Node) -> tuple[int, ...]:
    assert isinstance(node.type, TensorType)
    return node.type.shape
