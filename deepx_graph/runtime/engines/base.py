"""Engines make a callable kernel of a node.

A kernel takes the operand values and, where the plan reserved memory for the results, arrays to put them in. It gives what
`op.eval` would give, to the last bit for integers and bool and within rounding for floats. The kernels of one engine object are
never run by two threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from deepx_graph.ir import Function, Module, Node
from deepx_graph.literal import Array
from deepx_graph.runtime.cost.model import Forecast

if TYPE_CHECKING:
    from deepx_graph.loops.program import LoopProgram

KernelFn = Callable[[Sequence[Any], Sequence[Array] | None], Any]
"""`kernel(values, out)`: `out` has one C-contiguous array of the exact type for each tensor result, or is None.

The memory of an `out` array may be that of an operand with the same shape and element size, for elementwise nodes with one
result (a fusion of elementwise nodes counts as one), and wherever the engine is `InPlace` and says so.
The result is `out[0]` itself (or the tuple of all) when the kernel filled it; any other result is a fresh array, or for an op
that is a `view` one over its operand.
"""


class Declined(Exception):
    """A kernel, or a part of one, cannot be made: says why, in a few words. Whoever asked for it takes the next. `node` is the one
    at fault, where it is known."""

    def __init__(self, reason: str = "", node: Node | None = None) -> None:
        super().__init__(reason)
        self.node = node


CONSUMES_FIRST = "takes_first"
"""A kernel with this attribute is called when its first operand, if that ends there, has left the frame: it may write over it."""


class Engine(Protocol):
    """Makes kernels. `writes(node)` says whether the kernel fills the arrays it is given; others are given None."""

    @property
    def name(self) -> str:
        """The word that selects it."""
        ...

    def kernel(self, node: Node) -> KernelFn:
        """The callable for a node of static type whose op has `eval`. Called once for each node; may be slow."""
        ...

    def writes(self, node: Node) -> bool:
        """Whether `kernel(node)` puts its results into `out` when it is given one, and makes fresh arrays when it is not."""
        ...


@runtime_checkable
class Canonicalizes(Protocol):
    """An engine that would rather run another function of the same meaning, up to the order of floating sums."""

    def canonicalize(self, function: Function, *, apart: bool = False) -> Function:
        """That function; the given one where it is as good. Called before planning, on static types. Kernels that could be one stay
        `apart` where each is to be measured or listed."""
        ...


def canonicalized(module: Module, engine: Engine, *, apart: bool = False) -> Module:
    """The module with its functions as an engine would rather run them (see `Canonicalizes`); itself where it has no such wish."""
    if not isinstance(engine, Canonicalizes):
        return module
    return module.with_functions(engine.canonicalize(f, apart=apart) for f in module.functions)


@runtime_checkable
class CompilesCalls(Protocol):
    """An engine that may run a module's entry as one kernel with the functions that it calls inside."""

    def with_calls(self, module: Module, max_depth: int, max_bytes: int) -> Module:
        """The module with such an entry; the given one where there is no such kernel. Called before functions are canonicalized.
        Calls nest at most so deeply, and recursive ones take at most so many bytes: its kernel raises LimitError beyond that."""
        ...


@runtime_checkable
class Explains(Protocol):
    """An engine that can say how it runs a node."""

    def lowering(self, node: Node) -> str:
        """In a few words, and why not faster."""
        ...


@runtime_checkable
class Describes(Protocol):
    """An engine that can make kernels which are only looked at, for less than it takes to make those that run."""

    def described(self) -> AbstractContextManager[None]:
        """Inside, the engine's kernels cannot run; it is of no use for anything else afterwards."""
        ...


@runtime_checkable
class WritesLoops(Protocol):
    """An engine that runs functions as one kernel each where it can, and single kernels from loop programs."""

    def why_apart(self, function: Function) -> str:
        """Why a function that it canonicalized is not one kernel; empty where nothing speaks against it, or nobody asked."""
        ...

    def loop_program(self, node: Node) -> LoopProgram | None:
        """The loops of a node's kernel, which has been made, alone or inside a kernel; None where it is of another kind."""
        ...


@runtime_checkable
class Forecasting(Protocol):
    """An engine that can say how long a node's kernel will take."""

    def forecast(self, node: Node) -> Forecast:
        """The prediction for a node of static type whose kernel has been made."""
        ...


@runtime_checkable
class InPlace(Protocol):
    """An engine that knows which kernels may write over their operands."""

    def overwrites(self, node: Node) -> tuple[frozenset[int], ...]:
        """For each result, the operands of its type over whose memory the node's kernel writes it without harm; () for none."""
        ...


@runtime_checkable
class Counting(Protocol):
    """An engine whose kernels have other memory of their own than an eval has; of others, `Op.scratch` is counted."""

    def scratch(self, node: Node, loose: frozenset[int]) -> int:
        """The most bytes that the node's kernel has in memory beside operands and results, blocks of bounded size left out.

        The operands numbered `loose` may not lie in the order of C: the kernel may have to copy them. Called before planning, with
        static types; must not take memory of the operands' size.
        """
        ...


@runtime_checkable
class Staging(Protocol):
    """An engine whose kernels are also functions of the operands alone, to be called with the least between them."""

    def staged(self, node: Node) -> Callable[..., Any] | None:
        """`staged(node)(*operands)`: what the kernel gives, in fresh memory, or over the first operand where the op is a `view`. A
        tensor of rank 0 may be a numpy scalar. None for a kernel that wants memory to write to."""
        ...


EntryFn = Callable[..., "tuple[Array, ...] | None"]
"""`entry(*arrays)`: the results; None, with nothing done, where an argument is not an array of just the type that it expects."""


@runtime_checkable
class Enters(Protocol):
    """An engine with kernels that take the arguments of a call, and give its results, without anything of Python between."""

    def entry(self, node: Node, params: Sequence[Node], over: Sequence[int | None]) -> EntryFn | None:
        """The call that runs the node's kernel, which has been made, for values of `params`, of which the node's operands are some;
        None where there is none. `over` has for each result the number of the parameter over which it is written, or None; it may
        be empty for none at all. A call gives None also while another one runs."""
        ...
