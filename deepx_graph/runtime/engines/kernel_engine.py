"""What the fast engines share: a fusion, or a large elementwise node, becomes a kernel by the first builder that has one for it, a
matrix product writes straight into its buffer, and every other node is its op's own eval.
"""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from deepx_graph.analysis.kinds import kind_of
from deepx_graph.blas import available_cores
from deepx_graph.ir import Function, Node
from deepx_graph.ir.rebuild import alone
from deepx_graph.literal import Array
from deepx_graph.ops.contract.linear import dot_general
from deepx_graph.ops.data.fusion import fusion
from deepx_graph.ops.tensor.index import box_at, dynamic_update_slice
from deepx_graph.rewrite.product_layouts import canonicalized
from deepx_graph.runtime.cost import counts as cost_counts
from deepx_graph.runtime.cost.model import Forecast, ForecastParts
from deepx_graph.runtime.engines.base import CONSUMES_FIRST, Declined, Engine, KernelFn, by_eval
from deepx_graph.runtime.engines.gemm import GemmNodeKernel
from deepx_graph.runtime.engines.whole_function import is_program
from deepx_graph.runtime.kernels import costs
from deepx_graph.runtime.memory.assignment import of_eval
from deepx_graph.runtime.memory.pool import RESULTS
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

    def scratch(self, loose: Mapping[int, int]) -> int:
        """The most bytes that a call has beside arguments and results, where arguments of so many bytes may not lie in order."""
        ...

    def __call__(self, args: Sequence[Any], out: Sequence[Any] | None = None) -> list[Any]: ...


KernelBuilder = Callable[[Function], CompiledKernel]
"""The kernel of a function. Raises Declined."""


class KernelEngine(Engine):
    """Makes kernels by the first of its builders that does not decline. `threads` is how many cores a kernel may use; None for all
    that the process has."""

    name: str

    def __init__(self, threads: int | None = None) -> None:
        self.threads = available_cores() if threads is None else max(1, threads)
        self._built: dict[Any, CompiledKernel | None] = {}
        self._declined: dict[Any, str] = {}
        """Why there is no kernel for an operation, where a builder said so."""

    @property
    @abstractmethod
    def builders(self) -> Sequence[KernelBuilder]:
        """What makes the kernel of a function: the first that does not raise Declined. An empty reason is none to tell."""

    def kernel(self, node: Node) -> KernelFn:
        """The callable of one node; its eval where there is none here. Raises InferError for an op without eval."""
        return self._own(node) or by_eval(node)

    def writes(self, node: Node) -> bool:
        """Whether the node is computed here, and not by its eval, whose results are its own arrays."""
        return not node.op.view and self._own(node) is not None

    def canonicalize(self, function: Function, *, apart: bool = False) -> Function:
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
        kernel = self._compiled(node)
        return 0 if kernel is None else kernel.scratch({k: nbytes(node.inputs[k].type) for k in loose})

    def lowering(self, node: Node) -> str:
        """How the node's kernel, which has been made, runs: machine code, numpy's loops, numexpr's machine, BLAS, or its eval."""
        kernel = self._compiled(node)
        return kernel.lowering if kernel is not None else "view" if node.op.view else "eval"

    def forecast(self, node: Node) -> Forecast:
        """How long the node's kernel, which has been made, will take."""
        kernel = self._compiled(node)
        return cost_counts.alone(node, self.threads) if kernel is None else cost_counts.forecast(node, kernel.predicted())

    def build(self, function: Function) -> CompiledKernel:
        """The kernel of a function. Raises Declined where no builder has one, with the first reason."""
        reason = ""
        for builder in self.builders:
            try:
                kernel = builder(function)
            except Declined as e:
                reason = reason or str(e)
                continue
            if reason:
                kernel.lowering = f"{kernel.lowering}: {reason}"
            return kernel
        raise Declined(reason)

    def _compiled(self, node: Node) -> CompiledKernel | None:
        return self._built.get(key_of(node.attr("body")) if node.op is fusion else kind_of(node))

    def _own(self, node: Node) -> KernelFn | None:
        rule = _RULES.get(node.op, KernelEngine._elementwise if node.op.elementwise else None)
        return rule(self, node) if rule is not None else None

    def _fusion(self, node: Node) -> KernelFn | None:
        body: Function = node.attr("body")
        return self._kernel(node, key_of(body), lambda: self.build(body))

    def _elementwise(self, node: Node) -> KernelFn | None:
        if not is_tensor(node) or math.prod(_shape(node)) <= costs.VM_ELEMENTS:
            return None  # one numpy call: nothing to gain
        return self._kernel(node, kind_of(node), lambda: self.build(alone(node)))

    def _kernel(self, node: Node, key: Any, build: Callable[[], CompiledKernel]) -> KernelFn | None:
        kernel = self._remembered(key, build)
        if kernel is None:
            return None
        return _single(kernel) if isinstance(node.type, TensorType) else _several(kernel)

    def _remembered(self, key: Any, build: Callable[[], CompiledKernel]) -> CompiledKernel | None:
        """The kernel of that key, built when it is first asked for; None where that is declined."""
        if key not in self._built:
            try:
                self._built[key] = build()
            except Declined as e:
                self._built[key], self._declined[key] = None, str(e)
        return self._built[key]

    def _dot(self, node: Node) -> KernelFn | None:
        return self._kernel(node, kind_of(node), lambda: self.product(node))

    def product(self, node: Node) -> CompiledKernel:
        """The kernel of a `dot_general`. Raises Declined for one that has none."""
        return GemmNodeKernel(node, self.threads)

    def _update(self, node: Node) -> KernelFn | None:
        """A part of an array written anew, in place where nobody sees it."""
        return updated(_shape(node), _shape(node.inputs[1])) if is_tensor(node) else None


def key_of(body: Function) -> Any:
    """What the kernel of a function is remembered by: one that holds a whole program is built otherwise than others like it."""
    return (body, is_program(body))


Rule = Callable[[KernelEngine, Node], "KernelFn | None"]
_RULES: dict[object, Rule] = {
    fusion: KernelEngine._fusion, dot_general: KernelEngine._dot, dynamic_update_slice: KernelEngine._update,
}  # fmt: skip


def _single(kernel: CompiledKernel) -> KernelFn:
    return lambda values, out: kernel(values, out)[0]


def _several(kernel: CompiledKernel) -> KernelFn:
    return lambda values, out: tuple(kernel(values, out))


def is_tensor(node: Node) -> bool:
    return isinstance(node.type, TensorType) and is_static(node.type)


def _shape(node: Node) -> tuple[int, ...]:
    assert isinstance(node.type, TensorType)
    return node.type.shape


# --- updates of a part of an array, done in the array itself where nobody else can see it


def updated(shape: tuple[int, ...], box: tuple[int, ...]) -> KernelFn:
    """The kernel of a `dynamic_update_slice`. It wants its first operand out of the frame before it is called, if it dies there."""
    index = box_at(shape, box)

    def run(values: Sequence[Any], out: Sequence[Any] | None) -> Any:
        if out is not None:
            result = out[0]
            if result is not values[0]:
                np.copyto(result, values[0])
        elif is_held_here_alone(values):
            result = values[0]
        else:
            result = RESULTS.empty(shape, np.asarray(values[0]).dtype)
            np.copyto(result, values[0])
        result[index(values[2:])] = values[1]
        return result

    setattr(run, CONSUMES_FIRST, True)
    return run


def is_held_here_alone(values: Sequence[Any]) -> bool:
    """Whether nothing but this sequence, which its caller made for this call, refers to the memory of its first array."""
    array = values[0]
    if type(array) is not np.ndarray or sys.getrefcount(array) > _ALONE or not array.flags.writeable:
        return False
    if array.base is None:
        return bool(array.flags.owndata)
    return RESULTS.is_in_use_once(array)


def _references(values: Sequence[Array]) -> int:
    """The count, by the same steps as above, of an array that only a sequence holds."""
    array = values[0]
    return sys.getrefcount(array)


_ALONE = _references([np.empty(0)])
