"""What one machine function does from end to end: instructions, storages, and what each instruction does to them.

Plans are plain data; nothing is emitted here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from deepx_graph.ir import Node
from deepx_graph.literal import Array
from deepx_graph.lowering.bytecode import Code
from deepx_graph.runtime.native.call_image import rounded
from deepx_graph.runtime.native.machine_kernel import MachineKernel

MachineOf = Callable[[Node], MachineKernel | None]
Tree = int | tuple["Tree", ...]
"""The storage of a tensor; of a tuple those of its items."""


@dataclass(frozen=True)
class Storage:
    """Memory for the elements of one tensor. `array` are those of a constant, `param` the number of an argument; one that is a
    piece of an argument lies in that storage, so many bytes from its start."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    param: int | None = None
    array: Array | None = None
    inside: int | None = None
    start: int = 0

    @cached_property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def is_owned(self) -> bool:
        return self.param is None and self.array is None and self.inside is None


@dataclass(frozen=True)
class Called:
    """Run a kernel on storages: arguments in the order of its table, then results."""

    kernel: MachineKernel
    objects: tuple[int, ...]

    def may_write(self, result: int, argument: int) -> bool:
        """Whether the kernel may write a result over an argument, if it reads that at all."""
        count = len(self.kernel.params)
        read = {number for number, k in zip(self.kernel.params, self.objects, strict=False) if k == argument}
        return read <= self.kernel.in_place[self.objects.index(result, count) - count]


@dataclass(frozen=True)
class Copied:
    """Copy one storage to another."""

    source: int
    target: int


@dataclass(frozen=True)
class Swapped:
    """Two storages exchange buffers."""

    one: int
    other: int


@dataclass(frozen=True)
class Invoked:
    """Go on in a function of the plan, which reads the arguments and writes the results, and come back."""

    function: int
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    node: Node


Action = Called | Copied | Swapped | Invoked


def on_storages(action: Action, storage: Callable[[int], int]) -> Action:
    """The action on other storages, by the number of each."""
    match action:
        case Called(objects=objects):
            return replace(action, objects=tuple(map(storage, objects)))
        case Invoked(arguments=arguments, results=results):
            return replace(action, arguments=tuple(map(storage, arguments)), results=tuple(map(storage, results)))
        case Swapped(one, other):
            return Swapped(storage(one), storage(other))
    return replace(action, source=storage(action.source), target=storage(action.target))


@dataclass(frozen=True)
class CalledFunction:
    """A function that is called. One that calls itself, through others or not, has values for each activation."""

    plan: ProgramPlan
    is_recursive: bool


@dataclass(frozen=True)
class Home:
    """Where a storage lies when the program starts: so many bytes into the memory of the plan, or into that of a result."""

    offset: int
    result: int | None = None


@dataclass
class ProgramPlan:
    """`actions[at]` is what the instruction of the code at that position does before control goes on."""

    code: Code
    storages: list[Storage] = field(default_factory=list)
    actions: list[list[Action]] = field(default_factory=list)
    tested: dict[int, int] = field(default_factory=dict)
    """The storage that the test or selector at a position looks at."""
    results: tuple[int, ...] = ()
    homes: dict[int, Home] = field(default_factory=dict)
    """Of the storages that have memory of the plan, or of a result (in recursive functions: of an activation). Actions name the
    first alone of storages that share theirs."""
    exchanged: frozenset[int] = frozenset()
    """Storages that exchange buffers with one that lies in a result."""
    workspaces: list[tuple[Home, ...]] = field(default_factory=list)
    """Where each kernel that is called, in order, has its temporaries, and last what its threads have: never in a result."""
    nbytes: int = 0
    """The memory of the plan."""
    record_bytes: int = 0
    """That of an activation, in the plan of a recursive function."""
    in_place: tuple[frozenset[int], ...] = ()
    """For each result, the arguments of its type that nobody reads once it is written to, but who may write over them."""
    giving: ProgramPlan | None = None
    """The plan where arguments are given away, if it lies otherwise then. It has none of the functions."""
    functions: list[CalledFunction] = field(default_factory=list)
    """Those that are called, in it or in one another: their own have none."""

    @property
    def parts(self) -> list[ProgramPlan]:
        """The plan and those of functions, which have memory one behind the other."""
        return [self, *(f.plan for f in self.functions)]

    @property
    def parameters(self) -> dict[int, int]:
        """The first storage of each parameter that has one, by its number."""
        return {s.param: k for k, s in reversed([*enumerate(self.storages)]) if s.param is not None}

    @property
    def offsets(self) -> list[int]:
        """Where the memory of each part begins, and where that of all ends."""
        *before, last = self.parts
        offsets = list(accumulate((rounded(p.nbytes) for p in before), initial=0))
        return [*offsets, offsets[-1] + last.nbytes]

    @property
    def direct(self) -> frozenset[int]:
        """The numbers of the results that are made where they are wanted."""
        return frozenset(k for k, s in enumerate(self.results) if s not in self.exchanged and self.homes.get(s) == Home(0, k))


def swapped(actions: Sequence[Sequence[Action]]) -> Iterator[Swapped]:
    """The exchanges of buffers."""
    return (a for some in actions for a in some if isinstance(a, Swapped))


def called(actions: Sequence[Sequence[Action]]) -> Iterator[tuple[int, Called]]:
    """The calls of kernels, in order, with their positions."""
    return ((at, a) for at, some in enumerate(actions) for a in some if isinstance(a, Called))
