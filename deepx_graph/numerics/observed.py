"""A run on the reference engine under observation: every operation as it is computed, with its operands and its result.

Whoever wants the values of a run is an observer: tables of values, bounds on operations, noise in the last place, taints of NaN.
What is looked at is the program as it stands, node by node, so passes that hide values in kernels should not have run.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from deepx_graph.errors import LimitError
from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ir.rebuild import with_results
from deepx_graph.literal import Array
from deepx_graph.ops.tensor.layout import stop_gradient
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.engines.base import Engine, KernelFn
from deepx_graph.runtime.engines.numpy_engine import NumpyEngine
from deepx_graph.runtime.inputs import Port, flatten
from deepx_graph.types import TensorType, TupleType

T = TypeVar("T")

Value = tuple[Array, ...]
"""The arrays of a value: one of a tensor, several of a tuple; none of a function, of data and of the state of effects."""

OPERATIONS = 20_000
"""Operations of a run of many, where inputs at the edges may make loops long, or endless."""


class RunObserver:
    """Looks at what is computed. Base: does nothing. Arrays are the program's own and must not be changed."""

    def begin(self, module: Module, inputs: Mapping[str, Array]) -> None:
        """The program is about to run: types and sizes of this module are known, its nodes are those that are told of."""

    def computed(self, node: Node, operands: Sequence[Any], result: Any) -> Any:
        """A node has been computed; results and operands keep their identity on their way through branches, loops and calls.

        What is returned is what the program goes on with: the result, unless the observer puts another value in its place.
        """
        return result


class OperationBudget(RunObserver):
    """Operations that may still be computed; `left` may be set anew for each run."""

    def __init__(self, left: int = OPERATIONS) -> None:
        self.left = left

    def computed(self, node: Node, operands: Sequence[Any], result: Any) -> Any:
        """Counts it."""
        self.take()
        return result

    def take(self) -> None:
        """One operation. Raises LimitError when there are none left."""
        self.left -= 1
        if self.left < 0:
            raise LimitError("the run computes more operations than it is allowed here")


class ObservedEngine(Engine):
    """The reference engine, which tells an observer of all that it computes."""

    name = "numpy"

    def __init__(self, observer: RunObserver) -> None:
        self.inner, self.observer = NumpyEngine(), observer

    def writes(self, node: Node) -> bool:
        """As the reference engine: never."""
        return self.inner.writes(node)

    def kernel(self, node: Node) -> KernelFn:
        """`op.eval`; a result that may share memory with something is a copy, so that it is found again by its identity."""
        kernel, computed = self.inner.kernel(node), self.observer.computed

        def run(operands: Sequence[Any], out: Sequence[Array] | None) -> Any:
            result = kernel(operands, out)
            if not node.op.view:
                result = tuple([_own(r, operands) for r in result]) if isinstance(result, tuple) else _own(result, operands)
            return computed(node, operands, result)

        return run


def _own(result: Any, operands: Sequence[Any]) -> Any:
    if not isinstance(result, np.ndarray):
        return result
    return result.copy() if result.base is not None or any(result is o for o in operands) else result


class ArrayFacts(Generic[T]):
    """What is known of arrays, for as long as they live; they are told apart by identity."""

    def __init__(self) -> None:
        self._found: dict[int, T] = {}
        self._kept: dict[int, Any] = {}

    def note(self, array: Any, fact: T) -> None:
        """Remembers the fact, instead of an earlier one."""
        key = id(array)
        self._found[key] = fact
        # numpy's scalars have no weak references, and are small
        self._kept[key] = weakref.ref(array, lambda _: self._drop(key)) if isinstance(array, np.ndarray) else array

    def forget(self, array: Any) -> None:
        """Nothing is known of the array any more."""
        self._drop(id(array))

    def _drop(self, key: int) -> None:
        self._found.pop(key, None)
        self._kept.pop(key, None)

    def of(self, array: Any, default: T) -> T:
        """What is known of the array."""
        return self._found.get(id(array), default)


@dataclass(frozen=True)
class Observed:
    """A run that somebody looked at: the module whose nodes were computed, and its outputs."""

    module: Module
    inputs: dict[str, Array]
    ports: tuple[Port, ...]
    outputs: tuple[Array, ...]
    taken: tuple[Node, ...]
    """For each output the node that takes it, the last one that is computed of it."""


def observe(module: Module, inputs: Mapping[str, Any], observer: RunObserver, *, seed: int = 0, max_bytes: int | None = None,
            data_root: str | None = None, out: Any = None) -> Observed:
    """Runs the entry under an observer. Raises what compiling and running raise."""
    ready: list[tuple[Module, tuple[Node, ...]]] = []
    arrays = {name: np.asarray(a, order="C") for name, a in inputs.items()}

    def prepare(specialised: Module) -> Module:
        running, taken = _with_outputs(specialised)
        ready[:] = [(specialised, taken)]
        observer.begin(specialised, arrays)
        return running

    f = compile(module, engine=ObservedEngine(observer), seed=seed, max_bytes=max_bytes, data_root=data_root, out=out,
                prepare=prepare)
    outputs = f(*[arrays[p.name] for p in f.inputs if p.name in arrays])
    return Observed(ready[-1][0], arrays, f.outputs, outputs, ready[-1][1])


def _with_outputs(module: Module) -> tuple[Module, tuple[Node, ...]]:
    """The module with every output taken by a node of its own, and these nodes."""
    b, taken = Builder(), list[Node]()

    def take(node: Node) -> Node:
        if isinstance(node.type, TupleType):
            return b.pack(*(take(b.proj(node, k)) for k in range(len(node.type.items))))
        if not isinstance(node.type, TensorType):
            return node
        taken.append(b(stop_gradient, node))
        return taken[-1]

    entry = with_results(module.entry, tuple(map(take, module.entry.results)))
    return module.with_functions(entry if f is module.entry else f for f in module.functions), tuple(taken)


def tensors(value: Any) -> Value:
    """The arrays in a value of a node, tuples taken apart; functions, data and the state of effects are none."""
    if isinstance(value, np.ndarray):
        return (value,)
    return tuple([np.asarray(v) for v in flatten(value) if isinstance(v, (np.ndarray, np.generic))])
