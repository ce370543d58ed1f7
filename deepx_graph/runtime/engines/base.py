"""Engines make a callable kernel of a node.

A kernel takes the operand values and, where the plan reserved memory for the results, arrays to put them in. It gives what
`op.eval` would give, to the last bit for integers and bool and within rounding for floats. The kernels of one engine object are
never run by two threads at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.evaluation import evaluation, scratch_of
from deepx_graph.literal import Array
from deepx_graph.runtime.cost.model import Forecast

if TYPE_CHECKING:
    from deepx_graph.loops.program import LoopProgram

KernelFn = Callable[[Sequence[Any], Sequence[Array] | None], Any]
"""`kernel(values, out)`: `out` has one C-contiguous array of the exact type for each tensor result, or is None.

The memory of an `out` array may be that of an operand with the same shape and element size, for elementwise nodes with one
result (a fusion of elementwise nodes counts as one), and wherever the engine says so (`overwrites`).
The result is `out[0]` itself (or the tuple of all) when the kernel filled it; any other result is a fresh array, or for an op
that is a `view` one over its operand.
"""


def by_eval(node: Node) -> KernelFn:
    """The kernel that is the op's own eval, which puts nothing into `out`. Raises InferError for an op without eval."""
    evaluate = evaluation(node.op, node.attrs, node.type)
    return lambda values, out: evaluate(values)


class Declined(Exception):
    """A kernel, or a part of one, cannot be made: says why, in a few words. Whoever asked for it takes the next. `node` is the one
    at fault, where it is known."""

    def __init__(self, reason: str = "", node: Node | None = None) -> None:
        super().__init__(reason)
        self.node = node


CONSUMES_FIRST = "takes_first"
"""A kernel with this attribute is called when its first operand, if that ends there, has left the frame: it may write over it."""


EntryFn = Callable[..., "tuple[Array, ...] | None"]
"""`entry(*arrays)`: the results; None, with nothing done, where an argument is not an array of just the type that it expects."""


class Engine(ABC):
    """Makes kernels. `writes(node)` says whether the kernel fills the arrays it is given; others are given None. What else it may
    say is here as an engine says it that runs each node by its eval."""

    name: str
    """The word that selects it."""
    stages = False
    """Whether its kernels are `staged`."""
    writes_loops = False
    """Whether it runs functions as one kernel each where it can, and single kernels from loop programs."""

    @abstractmethod
    def kernel(self, node: Node) -> KernelFn:
        """The callable for a node of static type whose op has `eval`. Called once for each node; may be slow."""

    @abstractmethod
    def writes(self, node: Node) -> bool:
        """Whether `kernel(node)` puts its results into `out` when it is given one, and makes fresh arrays when it is not."""

    def with_calls(self, module: Module, max_depth: int, max_bytes: int) -> Module:
        """The module with its entry as one kernel that has the functions it calls inside; the given one where there is no such
        kernel. Called before functions are canonicalized. Calls nest at most so deeply, and recursive ones take at most so many
        bytes: its kernel raises LimitError beyond that."""
        return module

    def canonicalize(self, function: Function, *, apart: bool = False) -> Function:
        """Another function of the same meaning, up to the order of floating sums, that it would rather run. Called before planning,
        on static types. Kernels that could be one stay `apart` where each is to be measured or listed."""
        return function

    def described(self) -> AbstractContextManager[None]:
        """Inside, kernels may be made for less, which are only looked at; the engine is of no use for anything else afterwards."""
        return nullcontext()

    def lowering(self, node: Node) -> str:
        """How it runs a node, in a few words, and why not faster."""
        return "eval"

    def why_apart(self, function: Function) -> str:
        """Why a function that it canonicalized is not one kernel; empty where nothing speaks against it, or nobody asked."""
        return ""

    def loop_program(self, node: Node) -> LoopProgram | None:
        """The loops of a node's kernel, which has been made, alone or inside a kernel; None where it is of another kind."""
        return None

    def forecast(self, node: Node) -> Forecast | None:
        """How long a node's kernel, which has been made, will take; None where it cannot say."""
        return None

    def overwrites(self, node: Node) -> tuple[frozenset[int], ...]:
        """For each result, the operands of its type over whose memory the node's kernel writes it without harm; () for none."""
        return ()

    def scratch(self, node: Node, loose: frozenset[int]) -> int:
        """The most bytes that the node's kernel has in memory beside operands and results, blocks of bounded size left out.

        The operands numbered `loose` may not lie in the order of C: the kernel may have to copy them. Called before planning, with
        static types; must not take memory of the operands' size.
        """
        return scratch_of(node)

    def staged(self, node: Node) -> Callable[..., Any] | None:
        """The kernel as a function of the operands alone, to be called with the least between: `staged(node)(*operands)` is what
        the kernel gives, in fresh memory, or over the first operand where the op is a `view`. A tensor of rank 0 may be a numpy
        scalar. None for a kernel that wants memory to write to."""
        return None

    def entry(self, node: Node, params: Sequence[Node], over: Sequence[int | None]) -> EntryFn | None:
        """The call that runs the node's kernel, which has been made, with nothing of Python between, for values of `params`, of
        which the node's operands are some; None where there is none. `over` has for each result the number of the parameter over
        which it is written, or None; it may be empty for none at all. A call gives None also while another one runs."""
        return None


def canonicalized(module: Module, engine: Engine, *, apart: bool = False) -> Module:
    """The module with its functions as an engine would rather run them."""
    return module.with_functions(engine.canonicalize(f, apart=apart) for f in module.functions)
