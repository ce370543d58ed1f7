"""One device of a program in this process; it meets the others by MPI.

The same generator that runs in lock step (`runtime/devices.py`) stops at each collective; here its operands go to the processes of
the group and the results come back. Before data moves, all members of a group compare a header: the number of the run and of the
meeting, and what is met in. Where they differ, all raise an error that says who stands where, instead of taking each other's data.
A wait that lasts too long is an error, too, as a process that has failed would be waited for for ever.

Source: MPI: A Message-Passing Interface Standard, 4.1; mpi4py.
"""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import Diagnostic, RunError, UsageError
from deepx_graph.ir import Node
from deepx_graph.ir.collective import Devices, Grid
from deepx_graph.literal import Array
from deepx_graph.runtime.devices import Running, Stop, operands_of, value_at

PATIENCE = 600.0
"""How many seconds a device waits for others."""

_SPINS = 2000
_NAP = 5e-5


def communicator() -> Any:
    """MPI's communicator of all processes. Raises UsageError where mpi4py is missing."""
    try:
        from mpi4py import MPI  # type: ignore[import-not-found, unused-ignore]
    except ImportError as e:
        message = f"MPI is not available: {e}"
        raise UsageError(Diagnostic(message, hint="pip install 'deepx-graph[mpi]', and start with mpiexec -n N")) from None
    return MPI.COMM_WORLD


class MpiTransport:
    """This process as the device of a grid that has its rank.

    `deterministic` sums in the order of devices, as lock step does; otherwise MPI chooses an order, which may differ in the last
    bits. `patience` is how many seconds a wait may last. Raises UsageError where there are not as many processes as devices.
    """

    def __init__(self, grid: Grid, *, deterministic: bool = False, patience: float = PATIENCE, comm: Any = None) -> None:
        self.comm = communicator() if comm is None else comm
        self.grid, self.deterministic, self.patience = grid, deterministic, patience
        self.device: int = self.comm.Get_rank()
        if self.comm.Get_size() != grid.count:
            raise UsageError(Diagnostic(f"{self.comm.Get_size()} processes run, and the program is for {grid}",
                                        hint=f"mpiexec -n {grid.count}"))
        self._groups: dict[Devices, Any] = {}
        self._run = self._ordinal = 0
        self._ops = _native()

    def run(self, running: Running) -> list[Any]:
        """The results of this device. Raises RunError where devices do not meet."""
        self._run += 1
        self._ordinal = 0
        value: Any = None
        while True:
            try:
                stop = running.send(value)
            except StopIteration as e:
                found: list[Any] = e.value
                return found
            if stop.awaits:
                message = f"{stop.node.op.name} waits for {stop.awaits}, which processes do not send one another"
                raise RunError(Diagnostic(message, stop.node.span, hint="run the devices in one process"))
            value = value_at(stop, self._meet(stop))

    def gather(self, arrays: Sequence[Array]) -> list[list[Array]] | None:
        """The arrays of every device, on device 0; None elsewhere."""
        found: list[list[Array]] | None = self.comm.gather(list(arrays), root=0)
        return found

    def abort(self, code: int) -> None:
        """Ends all processes: without this one the others would wait for ever."""
        self.comm.Abort(code)

    def _meet(self, stop: Stop) -> Sequence[Any]:
        exchange, attrs, values = stop.node.op.exchange, stop.node.attrs, operands_of(stop)
        assert exchange is not None
        try:
            group = exchange.group(self.grid, self.device, *attrs)
            if not group:
                return [np.zeros_like(v) for v in values]
            if len(group) == 1:
                return exchange.combine(self.grid, group, [values], *attrs)[0]
            comm = self._communicator(group, stop.node)
            self._agree(comm, group, stop)
            arrays = [np.asarray(v, order="C") for v in values]  # of rank 0 as they are
            body = exchange.body(*attrs) if exchange.body else None
            native = None if self.deterministic or body is None else self._ops(body.reducer, arrays)
            if native is not None:
                return [self._reduced(comm, a, native, stop.node) for a in arrays]
            each = [self._gathered(comm, a, len(group), stop.node) for a in arrays]
            rows = [[parts[k] for parts in each] for k in range(len(group))]
            return exchange.combine(self.grid, group, rows, *attrs)[group.index(self.device)]
        except (ValueError, LookupError) as e:
            raise RunError(Diagnostic(f"{stop.node.op.name}: {e}", stop.node.span)) from None

    def _communicator(self, group: Devices, node: Node) -> Any:
        """The communicator of a group, with ranks in its order; made once all members are there, as that cannot be broken off."""
        if group == tuple(range(self.grid.count)):
            return self.comm
        if group not in self._groups:
            self._assemble(group, node)
            self._groups[group] = self.comm.Create_group(self.comm.Get_group().Incl(list(group)))
        return self._groups[group]

    def _assemble(self, group: Devices, node: Node) -> None:
        """Waits until all members of a group are there: the first hears from the others, and answers."""
        tag, first, nothing = zlib.crc32(repr(group).encode()) & 0x7FFF, group[0], np.zeros(1, np.uint8)
        others = group[1:] if self.device == first else (first,)
        for other in others:
            if self.device != first:
                self._wait(self.comm.Isend(nothing, other, tag), node)
            self._wait(self.comm.Irecv(np.empty(1, np.uint8), other, tag), node)
        if self.device == first:
            for other in others:
                self._wait(self.comm.Isend(nothing, other, tag), node)

    def _agree(self, comm: Any, group: Devices, stop: Stop) -> None:
        """Compares what the members of a group have come to."""
        node, self._ordinal = stop.node, self._ordinal + 1
        shapes = [(v.shape, str(v.dtype)) for v in map(np.asarray, operands_of(stop))]
        digest = hashlib.blake2b(repr((node.op.name, node.attrs[:1], shapes)).encode(), digest_size=8).digest()
        mine = np.array([self._run, self._ordinal, int.from_bytes(digest, "little")], np.uint64)
        every = np.empty((len(group), 3), np.uint64)
        self._wait(comm.Iallgather(mine, every), node)
        if (every == mine).all():
            return
        here = f" at {node.span}" if node.span else ""
        stated = comm.allgather(f"device {self.device} is in its meeting {self._ordinal} of run {self._run}: {node.op.name}{here}")
        raise RunError(Diagnostic("the devices do not meet in the same collective", node.span, notes=tuple(stated)))

    def _reduced(self, comm: Any, array: Array, native: Any, node: Node) -> Array:
        total = np.empty_like(array)
        self._wait(comm.Iallreduce(array, total, op=native), node)
        return total

    def _gathered(self, comm: Any, array: Array, count: int, node: Node) -> list[Array]:
        """The array of every member, as bytes: MPI does not know all element types."""
        received = np.empty((count, array.nbytes), np.uint8)
        self._wait(comm.Iallgather(array.reshape(-1).view(np.uint8), received), node)
        return [row.view(array.dtype).reshape(array.shape) for row in received]

    def _wait(self, request: Any, node: Node) -> None:
        """Until a request is done; signals are seen meanwhile. Raises RunError when that lasts too long."""
        for _ in range(_SPINS):
            if request.Test():
                return
        until = time.monotonic() + self.patience
        while not request.Test():
            if time.monotonic() > until:
                message = f"device {self.device} has waited {self.patience:g} s in {node.op.name} (meeting {self._ordinal})"
                hint = "another device has failed, or takes long: --timeout allows more"
                raise RunError(Diagnostic(message, node.span, hint=hint))
            time.sleep(_NAP)


def _native() -> Callable[[Any, Sequence[Array]], Any]:
    """Which of MPI's own reductions is an op on such arrays; None where none is the same to the bit, up to the order of sums."""
    from mpi4py import MPI

    of_numbers = {ops.add: MPI.SUM, ops.multiply: MPI.PROD}
    of_integers = {**of_numbers, ops.maximum: MPI.MAX, ops.minimum: MPI.MIN}

    def found(op: Any, arrays: Sequence[Array]) -> Any:
        if all(a.dtype.kind in "iu" and a.dtype.isbuiltin == 1 for a in arrays):
            return of_integers.get(op)
        return of_numbers.get(op) if all(a.dtype in (np.float32, np.float64) for a in arrays) else None

    return found
