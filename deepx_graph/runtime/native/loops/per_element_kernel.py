"""A loop whose elements are independent, as a callable of machine code (see `per_element`).

The elements are shared out among the workers in pieces. A call is one round or several: after a round in which some vector has come
to the limit of its iterations Python has the floor for a moment, so that an endless loop can be interrupted, and the next round
goes on. A loop that ends soon, by a count, and gives arrays alone is one call, which can stand in a row of kernels (`BoundedLoop`).
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.ir import Function, Node
from deepx_graph.ir.scalar_expr import price
from deepx_graph.ir.structure import CONSTANT, PARAM, index_of, value_of
from deepx_graph.runtime.cost import model as cost
from deepx_graph.runtime.cost.file import constants
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.kernels import lower_primitives
from deepx_graph.runtime.kernels.lower import lower
from deepx_graph.runtime.kernels.program import Array, KernelProgram
from deepx_graph.runtime.memory.pool import RESULTS, delivered, result_memory, room
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.llvm.target import this_machine
from deepx_graph.runtime.native.loops.per_element import MaskedLoop, recognise
from deepx_graph.runtime.native.loops.per_element_emit import (
    FLAG,
    OPEN,
    SCALARS,
    module_text,
    plain_table_slots,
    row_bytes,
    table_slots,
)
from deepx_graph.runtime.native.machine_kernel import (
    SHARED,
    Layout,
    MachineCode,
    MachineKernel,
    run_shared,
)
from deepx_graph.runtime.straightline import ArrayType

ROUND_NANOSECONDS = 50_000_000
"""About how long a round takes at most."""

ITERATIONS_EXPECTED = 16
"""For how many iterations work is shared out, where nothing tells how many there will be."""

PIECE_NANOSECONDS, MOST_PIECES, LEAST_PIECE = 20_000, 128, 1024
"""The least work of a piece, the most pieces, and the fewest elements of one: pieces take unequal time, so there are many."""

_SHARED_AND_SHORT = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


@dataclass(frozen=True)
class Shares:
    """How the elements are shared out, and what that costs: nanoseconds of one thread for an iteration of all elements."""

    size: int
    piece: int
    pieces: int
    work: float
    iteration_ns: float

    @staticmethod
    def of(loop: MaskedLoop, program: KernelProgram) -> Shares:
        """A matter of the loop and of the constants of the machine, never of the number of threads."""
        size, work = math.prod(loop.shape), max(2, sum(price(s.primitive) for s in program.steps))
        iteration_ns = cost.nest_ns(constants(), size, work)
        iterations = ITERATIONS_EXPECTED if loop.bound is None else loop.bound
        count = max(1, min(MOST_PIECES, size // LEAST_PIECE, int(iteration_ns * iterations / PIECE_NANOSECONDS)))
        piece = math.ceil(math.ceil(size / count) / 64) * 64
        return Shares(size, piece, math.ceil(size / piece), work, iteration_ns)


def source_of(node: Node) -> int | Array:
    """The number of the argument, or the constant, that a value of outside is."""
    return index_of(node) if node.op is PARAM else np.ascontiguousarray(value_of(node).array)


def build(body: Function, threads: int) -> MaskedLoopKernel | BoundedLoop:
    """The kernel of a body that is such a loop. Raises Declined."""
    loop = recognise(body)
    program = lower(loop.iteration)
    if not _is_plain(program, loop):
        raise Declined("an iteration that is no elementwise kernel")
    shares = Shares.of(loop, program)
    kind = BoundedLoop if is_bounded(loop, shares, threads) else MaskedLoopKernel
    return kind(loop, program, shares, threads)


def _is_plain(program: KernelProgram, loop: MaskedLoop) -> bool:
    """Whether every register is one number or has an element for each of the loop's, in the same order."""
    whole = math.prod(loop.shape)
    return (whole > 1 and len(program.space) == 1
            and all(r.size in (1, whole) and r.dtype in lower_primitives.ALL for r in program.registers)
            and all(not leaf.views and leaf.order is None for leaf in program.leaves)
            and all(a.size == 1 for _, a in program.constants)
            and all(s.primitive and s.reduction is None for s in program.steps))


class _Workspace:
    """The table and the memory of one call."""

    def __init__(self, kernel: MaskedLoopKernel) -> None:
        self.extra = {k: RESULTS.empty(kernel.loop.shape, d) for k, d in enumerate(kernel.array_dtypes)
                      if k not in kernel.result_of}
        self.left = room(kernel.left_bytes)
        self.left[:] = 0
        self.rows = room(kernel.row_bytes)
        self.control = bytearray(24)
        self.table = bytearray(8 * kernel.slots.size)
        control = ctypes.addressof(ctypes.c_char.from_buffer(self.control))
        struct.pack_into("3N", self.table, 8 * kernel.slots.left, self.left.ctypes.data, self.rows.ctypes.data, control)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.table))
        self.counter = ctypes.c_int64()
        self.counter_at = ctypes.addressof(self.counter)
        self.scratches = (ctypes.c_void_p * kernel.threads)()


class MaskedLoopKernel(MachineKernel):
    """A compiled loop and how to call it."""

    lowering = "machine code: a loop, element by element"

    def __init__(self, loop: MaskedLoop, program: KernelProgram, shares: Shares, threads: int) -> None:
        self.loop = loop
        self.in_place = (frozenset[int](),) * len(loop.columns)
        self.size, self.pieces = shares.size, shares.pieces
        self.slots = table_slots(loop)
        kinds = [program.registers[r].dtype for r in program.results]
        self.array_dtypes, self.scalar_dtypes = kinds[: len(loop.arrays)], kinds[len(loop.arrays) :][: len(loop.scalars)]
        self.result_of = {loop.arrays.index(k): at for at, k in enumerate(loop.columns) if k in loop.arrays}
        self.threads = min(threads, self.pieces)
        self.limit = max(16, int(ROUND_NANOSECONDS * self.threads / shares.iteration_ns))
        self._leaves = [*(source_of(loop.inits[k]) for k in (*loop.arrays, *loop.scalars)), *map(source_of, loop.given)]
        self._flag = None if loop.flag is None else source_of(loop.inits[loop.flag])
        text = module_text(loop, program, shares.piece, self.slots, this_machine())
        address = machine_code.functions(text, ["work0"], self)["work0"]
        self._work, self._alone = SHARED(address), _SHARED_AND_SHORT(address)
        self._is_short = shares.iteration_ns * ITERATIONS_EXPECTED < PIECE_NANOSECONDS
        self._nest_work = cost.NestWork(self.size * ITERATIONS_EXPECTED, shares.work, self.pieces)

    @property
    def left_bytes(self) -> int:
        """What notes the elements that are left."""
        return self.size // 2 + 64

    @property
    def row_bytes(self) -> int:
        """The rows of all pieces."""
        return self.pieces * row_bytes(self.loop)

    @property
    def workspace_bytes(self) -> int:
        """The memory of a call: arrays that are no result, and the state of the pieces."""
        extra = [d.itemsize * self.size for k, d in enumerate(self.array_dtypes) if k not in self.result_of]
        return sum(extra) + self.left_bytes + self.row_bytes

    def new_workspace(self) -> _Workspace:
        """The table and the memory of one call."""
        return _Workspace(self)

    def scratch(self, loose: Mapping[int, int]) -> int:
        """Its workspace, and copies of arguments that may not lie in order."""
        return self.workspace_bytes + sum(loose.values())

    def predicted(self) -> cost.ForecastParts:
        """How long a call takes by the cost model, if the loop iterates as often as is expected of any."""
        return cost.machine_code(constants(), [self._nest_work], 0, self.threads)

    def __call__(self, args: Sequence[Any], out: Sequence[Any] | None = None) -> list[Array]:
        """The results for the arguments; in the arrays of `out`, where one is given."""
        workspace = self.workspace()
        incoming = [self._array(args[s] if isinstance(s, int) else s) for s in self._leaves]
        flag = self._flag if not isinstance(self._flag, int) else args[self._flag]
        stores = self._stores(args, out, workspace)
        live = True if flag is None else bool(flag) != self.loop.asks_all
        scalars, live = self._rounds(workspace, incoming, stores, live)
        self.give_back(workspace)
        return delivered(self._found(stores, scalars, live), out)

    @staticmethod
    def _array(value: Any) -> Array:
        array = value if type(value) is np.ndarray else np.asarray(value)
        return array if array.flags.c_contiguous else np.ascontiguousarray(array)

    def _stores(self, args: Sequence[Any], out: Sequence[Any] | None, workspace: _Workspace) -> list[Array]:
        """Where each array variable goes: the memory of its result, or our own."""
        stores = []
        for k, dtype in enumerate(self.array_dtypes):
            if k in workspace.extra:
                stores.append(workspace.extra[k])
            else:
                given = None if out is None else out[self.result_of[k]]
                stores.append(result_memory(self.loop.shape, dtype, args, given, frozenset()))
        return stores

    def _rounds(self, workspace: _Workspace, incoming: list[Array], stores: list[Array], live: bool) -> tuple[list[Array], bool]:
        """The scalars in the end, and whether the flag then says that some element is live."""
        arrays, count = len(self.loop.arrays), len(self.loop.scalars)
        fresh = 1
        while True:
            struct.pack_into(f"{len(incoming) + arrays}N", workspace.table, 0, *map(id, incoming), *map(id, stores))
            struct.pack_into("3q", workspace.control, 0, self.limit, fresh, live)
            self._round(workspace)
            row, state = self._outcome(workspace)
            scalars = [row[SCALARS + 8 * k :][: d.itemsize].view(d)[0] for k, d in enumerate(self.scalar_dtypes)]
            live = bool(state & FLAG)
            if not state & OPEN:
                return scalars, live
            incoming = [*stores, *(np.array(s) for s in scalars), *incoming[arrays + count :]]
            fresh = 0

    def _outcome(self, workspace: _Workspace) -> tuple[Array, int]:
        """The row of a piece with the most iterations, and the states of all pieces together."""
        rows = workspace.rows.reshape(self.pieces, -1)
        heads = rows[:, :SCALARS].view(np.int64)
        if self.pieces == 1:
            return rows[0], int(heads[0, 1])
        return rows[int(heads[:, 0].argmax())], int(np.bitwise_or.reduce(heads[:, 1]))

    def _round(self, workspace: _Workspace) -> None:
        if self._is_short:
            workspace.counter.value = 0
            self._alone(workspace.address, workspace.counter_at, None)
        else:
            none = [None] * self.threads
            run_shared(self._work, workspace.address, none, ctypes.addressof(workspace.scratches), self.threads)

    def _found(self, stores: Sequence[Array], scalars: Sequence[Any], live: bool) -> list[Array]:
        """The values of the columns."""
        loop = self.loop
        found = []
        for k in loop.columns:
            if k == loop.flag:
                found.append(np.array(live != loop.asks_all))
            elif k in loop.arrays:
                found.append(stores[loop.arrays.index(k)])
            else:
                found.append(np.array(scalars[loop.scalars.index(k)]))
        return found


def is_bounded(loop: MaskedLoop, shares: Shares, threads: int) -> bool:
    """Whether one round is enough, and there is nothing to give but arrays."""
    if loop.bound is None or not set(loop.columns) <= set(loop.arrays):
        return False
    known = loop.flag is None or loop.inits[loop.flag].op is CONSTANT
    return known and loop.bound * shares.iteration_ns / min(threads, shares.pieces) <= ROUND_NANOSECONDS


class BoundedLoop(MachineCode):
    """A compiled loop and how to call it."""

    lowering = MaskedLoopKernel.lowering

    def __init__(self, loop: MaskedLoop, program: KernelProgram, shares: Shares, threads: int) -> None:
        assert loop.bound is not None
        self.threads = min(threads, shares.pieces)
        slots = plain_table_slots(loop)
        sources = [source_of(n) for n in (*(loop.inits[k] for k in (*loop.arrays, *loop.scalars)), *loop.given)]
        self.params = tuple(s for s in sources if isinstance(s, int))
        live = loop.flag is None or bool(value_of(loop.inits[loop.flag]).array) != loop.asks_all
        control = np.array([loop.bound, 1, live], np.int64)
        self.constants = (*(s for s in sources if not isinstance(s, int)), control)
        dtypes = [program.registers[r].dtype for r in program.results]
        self.results = tuple(ArrayType(dtypes[loop.arrays.index(k)], loop.shape) for k in loop.columns)
        extra = [dtypes[k].itemsize * shares.size for k, number in enumerate(loop.arrays) if number not in loop.columns]
        self.own_bytes = (*extra, shares.size // 2 + 64, shares.pieces * row_bytes(loop))
        self.layout = Layout(0, slots.objects, slots.size)
        self.in_place = (frozenset[int](),) * len(self.results)
        self.nanoseconds = loop.bound * shares.iteration_ns
        self._nest_work = cost.NestWork(shares.size * loop.bound, shares.work, shares.pieces)
        at = machine_code.functions(module_text(loop, program, shares.piece, slots, this_machine()), ["work0", "whole"], self)
        self.calls = ((at["whole"], 0),) if self.threads == 1 else ((at["work0"], self.threads),)

    def predicted(self) -> cost.ForecastParts:
        """How long a call takes by the cost model, if no element ends before the count."""
        return cost.machine_code(constants(), [self._nest_work], 0, self.threads)
