"""Devices that meet by MPI: the process of rank k is device k of the grid.

Before data moves, all members of a group compare the key of the meeting and what is met in. A wait that lasts too long is an
error, as a process that has failed would be waited for for ever; then the devices tell each other where they stand. In a
collective of MPI that blocks, where Python sees nothing, a thread looks at the time.

Source: MPI: A Message-Passing Interface Standard, 4.1; mpi4py.
"""

from __future__ import annotations

import atexit
import math
import signal
import sys
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import ref

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import DeepxGraphError, Diagnostic, RunError, UsageError
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.collective import Devices, Grid, GroupNetwork
from deepx_graph.literal import Array
from deepx_graph.runtime.engines.base import Engine
from deepx_graph.runtime.memory.assignment import BufferAssignment
from deepx_graph.runtime.memory.pool import RESULTS
from deepx_graph.runtime.program import engine_plans
from deepx_graph.runtime.transport.base import PATIENCE, Meeting, ProcessTransport, apart, late
from deepx_graph.types import TensorType, leaves, nbytes

T = TypeVar("T")

_SPINS = 2000
_NAP = 5e-5
_WHERE = 0x7FFF
"""The tag of messages that say where a device stands."""
_ENDING = _WHERE - 1
"""The tag of messages of processes that end with an error."""
_TOLD = _ENDING - 1
"""The tag of what device 0 tells all; those below it are of groups that assemble."""
_TELLING, _FAILING = 1.0, 3.0
"""How many seconds a device that gives up, and one that ends with an error, waits for what others say."""


def communicator(patience: float = PATIENCE) -> Any:
    """MPI's communicator of all processes, once all have come; a process that waits longer for them is ended by SIGALRM, as is
    one that waits so long for the others at its end.

    Raises UsageError where mpi4py is missing.
    """
    if threading.current_thread() is not threading.main_thread() or any(signal.getitimer(signal.ITIMER_REAL)):
        return _mpi().COMM_WORLD
    before = _alarm(patience)
    try:
        world = _mpi().COMM_WORLD
    finally:
        _alarm(0, before)
    atexit.register(_alarm, patience)
    return world


def ended_alike(said: str, patience: float = PATIENCE) -> bool | None:
    """Whether this process is to say an error that all processes end with; then MPI is over, and none waits for another one.

    None where some have not come to it within a moment, or to another one, and are to be ended. Raises as `communicator`.
    """
    world, digest = communicator(patience), zlib.crc32(said.encode())
    waits = [d for d in range(world.Get_size()) if d != world.Get_rank()]
    sent, until = [world.isend(digest, d, _ENDING) for d in waits], time.monotonic() + _FAILING
    while waits and time.monotonic() < until:
        came = [d for d in waits if world.iprobe(d, _ENDING)]
        if any(world.recv(source=d, tag=_ENDING) != digest for d in came):
            return None
        waits = [d for d in waits if d not in came]
        time.sleep(_NAP)
    if waits:
        return None
    is_first: bool = world.Get_rank() == 0
    del sent
    _mpi().Finalize()
    return is_first


def _alarm(seconds: float, handler: Any = signal.SIG_DFL) -> Any:
    """The system ends this process after so many seconds: while MPI starts and ends, no thread of Python runs, nor a handler."""
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    return before


def _mpi() -> Any:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as e:  # the latter where mpi4py finds no library
        message = f"MPI is not available: {str(e).partition(chr(10))[0]}"
        raise UsageError(Diagnostic(message, hint="pip install 'deepx-graph[mpi]', and start with mpiexec -n N")) from None
    return MPI


class _Watch:
    """Ends all processes when one of MPI's calls that block takes too long: such a call sees no signals, and never comes back
    where a process has stopped without dying. A thread looks, so the calls pay nothing."""

    def __init__(self, comm: Any, device: int, patience: float) -> None:
        self.comm, self.device, self.patience = comm, device, patience
        self.doing: Meeting | str = ""
        """What is waited for."""
        self._until: float | None = None
        threading.Thread(target=_look, args=(ref(self), min(1.0, patience / 4)), daemon=True).start()

    def over(self, doing: Meeting | str) -> _Watch:
        """To be entered where that may block."""
        self.doing = doing
        return self

    def __enter__(self) -> None:
        self._until = time.monotonic() + self.patience

    def __exit__(self, *_: object) -> None:
        self._until = None

    @property
    def is_late(self) -> bool:
        """Whether a call that blocks has taken too long."""
        until = self._until
        return until is not None and time.monotonic() > until

    def awaited(self, look: Callable[[], Any], doing: str) -> Any:
        """What a look gives, once it gives something; signals are seen meanwhile. Raises RunError when that lasts too long."""
        if not (found := _awaited(look, self.patience)):
            raise self.over(doing).error()
        return found

    def error(self) -> RunError:
        """What it says then."""
        if isinstance(self.doing, Meeting):
            return late(self.doing, self.device, self.patience, {d: "had come, too" for d in self.doing.group if d != self.device})
        message = f"device {self.device} has waited {self.patience:g} s {self.doing}"
        return RunError(Diagnostic(message, hint="another device has failed, or takes long: --patience allows more"))


def _look(watched: ref[_Watch], interval: float) -> None:
    """Looks at a watch as long as there is one."""
    while (watch := watched()) is not None:
        if watch.is_late:
            error = watch.error()
            print(error, file=sys.stderr, flush=True)
            watch.comm.Abort(error.exit_code)
        del watch
        time.sleep(interval)


class MpiTransport(ProcessTransport):
    """This process as the device of a grid that has its rank.

    `deterministic` sums in the order of devices, as lock step does; otherwise MPI chooses an order, which may differ in the last
    bits. `patience` is how many seconds a wait may last, `attempt` how often the run was started before. Raises UsageError where
    there are not as many processes as devices.
    """

    def __init__(self, grid: Grid, *, deterministic: bool = False, patience: float = PATIENCE, attempt: int = 0,
                 comm: Any = None) -> None:
        self.comm = communicator(patience) if comm is None else comm
        if self.comm.Get_size() != grid.count:
            raise UsageError(Diagnostic(f"{self.comm.Get_size()} processes run, and the program is for {grid}",
                                        hint=f"mpiexec -n {grid.count}"))
        super().__init__(grid, self.comm.Get_rank(), deterministic=deterministic, patience=patience, attempt=attempt)
        self._groups: dict[Devices, Any] = {}
        self._native = _native()
        self._last: Meeting | None = None
        self._watch = _Watch(self.comm, self.device, patience)

    @property
    def neighbours(self) -> int:
        """How many processes of the run are on this machine."""
        with self._watch.over("for the others to start"):
            count: int = self.comm.Split_type(_mpi().COMM_TYPE_SHARED).Get_size()
        return count

    def gather(self, arrays: Sequence[Array]) -> list[list[Array]] | None:
        """The arrays of every device, on device 0 once all have come; None elsewhere."""
        with self._watch.over("to give its results to device 0" if self.device else "for the results of the others"):
            found: list[list[Array]] | None = self.comm.gather(list(arrays), root=0)
        return found

    def told(self, make: Callable[[], T], doing: str) -> T:
        """What device 0 makes, on every device; the others sleep meanwhile, `doing` in words. All call it.

        Raises everywhere the error that it ends with there, RunError where it does not come.
        """
        if self.device:
            found, error = self._watch.awaited(lambda: self.comm.improbe(0, _TOLD), doing).recv()
        else:
            found, error = _attempted(make)
            sent = [self.comm.isend((found, error), d, _TOLD) for d in range(1, self.grid.count)]
            self._watch.awaited(lambda: all(s.test()[0] for s in sent), "for the others to be told")
        if error is not None:
            raise error
        made: T = found
        return made

    def messages(self) -> MpiMessages:
        """Messages between two processes, apart from the meetings; all processes ask for them."""
        with self._watch.over("for the others to start"):
            return MpiMessages(self.comm.Dup(), self.device, self.attempt, self._watch)

    def part(self, number: int, grid: Grid) -> MpiTransport:
        """This process as a device of a smaller grid, of those that ask for the same number, in their order; all processes ask."""
        with self._watch.over("for the others to start"):
            comm = self.comm.Split(number, self.device)
        return MpiTransport(grid, deterministic=self.deterministic, patience=self.patience, attempt=self.attempt, comm=comm)

    def exchanged(self, meeting: Meeting, arrays: Sequence[Array]) -> list[Sequence[Array]]:
        """As in `ProcessTransport`: all gathered, as bytes, since MPI does not know all element types."""
        network = self.network(meeting, ())
        each = [network.all_gather(a) for a in arrays]
        return [[parts[k] for parts in each] for k in range(len(meeting.group))]

    def network(self, meeting: Meeting, donated: Sequence[Array]) -> MpiGroup:
        """As in `ProcessTransport`. Once all are there, collectives that block are fast and cannot wait for ever: a process that
        dies in one ends the others, too."""
        comm = self._agreed(meeting)
        native = None if self.deterministic else self._native
        return MpiGroup(comm, len(meeting.group), native, self._watch.over(meeting), donated)

    def _agreed(self, meeting: Meeting) -> Any:
        """The communicator of the group, once all members have come to the same place. Raises RunError where they have not."""
        comm = self._communicator(meeting)
        mine = np.array([*meeting.key, meeting.digest], np.uint64)
        every = np.empty((len(meeting.group), len(mine)), np.uint64)
        self._wait(comm.Iallgather(mine, every), meeting)
        if not (every == mine).all():
            with self._watch.over(meeting):
                raise apart(meeting, dict(zip(meeting.group, comm.allgather(str(meeting)), strict=True)))
        self._last = meeting
        return comm

    def _communicator(self, meeting: Meeting) -> Any:
        """The communicator of a group, with ranks in its order; made once all members are there, as that cannot be broken off."""
        group = meeting.group
        if group == tuple(range(self.grid.count)):
            return self.comm
        if group not in self._groups:
            self._assemble(meeting)
            with self._watch.over(meeting):
                self._groups[group] = self.comm.Create_group(self.comm.Get_group().Incl(list(group)))
        return self._groups[group]

    def _assemble(self, meeting: Meeting) -> None:
        """Waits until all members of a group are there: the first hears from the others, and answers."""
        tag, first, nothing = zlib.crc32(repr(meeting.group).encode()) % _TOLD, meeting.group[0], np.zeros(1, np.uint8)
        others = meeting.group[1:] if self.device == first else (first,)
        for other in others:
            if self.device != first:
                self._wait(self.comm.Isend(nothing, other, tag), meeting)
            self._wait(self.comm.Irecv(np.empty(1, np.uint8), other, tag), meeting)
        if self.device == first:
            for other in others:
                self._wait(self.comm.Isend(nothing, other, tag), meeting)

    def _wait(self, request: Any, meeting: Meeting) -> None:
        """Until a request is done; signals are seen meanwhile. Raises RunError when that lasts too long."""
        if not _awaited(request.Test, self.patience):
            raise late(meeting, self.device, self.patience, self._told(meeting))

    def _told(self, meeting: Meeting) -> dict[int, str]:
        """What is known of where the other members are: what those say that have given up, too, and where they were met last."""
        others = [d for d in meeting.group if d != self.device]
        sent = [self.comm.isend(str(meeting), d, _WHERE) for d in others]
        known = {d: "has not come" + (f" since {self._last}" if self._last and d in self._last.group else "") for d in others}
        until = time.monotonic() + _TELLING
        while time.monotonic() < until:
            for d in others:
                if self.comm.iprobe(d, _WHERE):
                    known[d] = f"is in {self.comm.recv(source=d, tag=_WHERE)}"
            time.sleep(0.01)
        del sent
        return known


@dataclass(frozen=True)
class MpiGroup(GroupNetwork):
    """The members of a communicator. `native` gives MPI's reduction for an op and an element type; without it MPI adds nothing.
    Arrays that are `donated` may be written over."""

    comm: Any
    size: int
    native: Callable[[Any, np.dtype[Any]], Any] | None
    watch: _Watch
    donated: Sequence[Array] = ()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Memory for a result: used ones again, as a page that is touched for the first time costs more than what is sent."""
        return RESULTS.empty(shape, dtype)

    def all_reduce(self, array: Array, body: Function) -> Array | None:
        """MPI's own, where the body is one operation that it has; in place where the array is donated."""
        native = None if self.native is None else self.native(body.reducer, array.dtype)
        if native is None:
            return None
        is_in_place = array.flags.writeable and any(array is given for given in self.donated)
        total = array if is_in_place else self.empty(array.shape, array.dtype)
        with self.watch:
            self.comm.Allreduce(_mpi().IN_PLACE if is_in_place else array, total, op=native)
        return total

    def all_gather(self, array: Array) -> Array:
        """As bytes, since MPI does not know all element types."""
        received = self.empty((self.size, *array.shape), array.dtype)
        with self.watch:
            self.comm.Allgather(_bytes(array), _bytes(received))
        return received

    def all_to_all(self, parts: Array) -> Array:
        """As bytes."""
        received = self.empty(parts.shape, parts.dtype)
        with self.watch:
            self.comm.Alltoall(_bytes(parts), _bytes(received))
        return received


class MpiMessages:
    """Arrays from one process to another, each message with a number: who sends goes on, who receives waits for it.

    A message carries the attempt of the run, the step, its number and a digest of its types; another one than is waited for is an
    error that says so, as is one that does not come.
    """

    def __init__(self, comm: Any, device: int, attempt: int, watch: _Watch) -> None:
        self.comm, self.device, self.attempt, self.step, self._watch = comm, device, attempt, 0, watch
        self._pending: list[tuple[Any, Array]] = []

    def send(self, to: int, number: int, arrays: Sequence[Array]) -> None:
        """Sends arrays, of which it keeps a copy until they have gone."""
        arrays = [np.asarray(a, order="C") for a in arrays]
        data = np.concatenate([self._head(number, [(a.shape, a.dtype) for a in arrays]), *map(_bytes, arrays)])
        self._pending = [sent for sent in self._pending if not sent[0].Test()]
        self._pending.append((self.comm.Isend(data, to, number % _WHERE), data))

    def receive(self, source: int, number: int, types: Sequence[tuple[tuple[int, ...], np.dtype[Any]]], what: str) -> list[Array]:
        """The arrays of these shapes and element types that another one sends. Raises RunError where something else comes, or
        nothing for too long."""
        head, sizes = self._head(number, types), [math.prod(shape) * dtype.itemsize for shape, dtype in types]
        data = self._next(source, number, what)
        if len(data) != len(head) + sum(sizes) or (data[: len(head)] != head).any():
            said, here = (data[: len(head)].view(np.uint64).tolist(), head.view(np.uint64).tolist())
            raise RunError(Diagnostic(f"device {source} has sent something else than {what} to device {self.device}", notes=(
                f"run, step, number and types of what it sent: {said}, {len(data)} bytes", f"of what is waited for: {here}")))
        parts = np.split(data, np.cumsum([len(head), *sizes]))[1:-1]
        return [part.view(dtype).reshape(shape) for part, (shape, dtype) in zip(parts, types, strict=True)]

    def finish(self) -> None:
        """Waits until all that was sent has gone. Raises RunError where that lasts too long."""
        for request, _ in self._pending:
            self._watch.awaited(request.Test, "for what it has sent to be taken")
        self._pending = []

    def _next(self, source: int, number: int, what: str) -> Array:
        """The bytes of a message, once it is there."""
        status = _mpi().Status()
        found = self._watch.awaited(lambda: self.comm.Improbe(source, number % _WHERE, status), f"for {what} from device {source}")
        data = np.empty(status.Get_count(_mpi().BYTE), np.uint8)
        with self._watch.over(f"for {what} from device {source}"):
            found.Recv(data)
        return data

    def _head(self, number: int, types: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> Array:
        digest = zlib.crc32(repr([(tuple(shape), str(dtype)) for shape, dtype in types]).encode())
        return np.array([self.attempt, self.step, number, digest], np.uint64).view(np.uint8)


def _attempted(make: Callable[[], T]) -> tuple[T | None, DeepxGraphError | None]:
    """What is made, or the error that it ends with."""
    try:
        return make(), None
    except DeepxGraphError as e:
        return None, e


def _awaited(look: Callable[[], Any], patience: float) -> Any:
    """What a look gives, once it gives something, else what it gave last after so many seconds: looks at once at first, then at
    times, between which signals are seen."""
    for _ in range(_SPINS):
        if found := look():
            return found
    until = time.monotonic() + patience
    while not (found := look()) and time.monotonic() <= until:
        time.sleep(_NAP)
    return found


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


_OF_NUMBERS = {ops.add: "SUM", ops.multiply: "PROD"}
_OF_INTEGERS = {**_OF_NUMBERS, ops.maximum: "MAX", ops.minimum: "MIN"}


def native_reduction(op: Any, dtype: np.dtype[Any]) -> str | None:
    """MPI's reduction that is an op on such elements, by name; None where none is the same to the bit, up to the order of sums."""
    if dtype.kind in "iu" and dtype.isbuiltin == 1:
        return _OF_INTEGERS.get(op)
    return _OF_NUMBERS.get(op) if dtype in (np.float32, np.float64) else None


def _native() -> Callable[[Any, np.dtype[Any]], Any]:
    """MPI's own reduction for an op on such elements; None where there is none."""
    MPI = _mpi()  # noqa: N806

    def found(op: Any, dtype: np.dtype[Any]) -> Any:
        name = native_reduction(op, dtype)
        return None if name is None else getattr(MPI, name)

    return found


def scratch_of_meeting(node: Node, grid: Grid) -> int:
    """The most bytes that a process takes for a collective beside its operands and results, those of MPI itself left out."""
    exchange = node.op.exchange
    assert exchange is not None
    tensors = [t for i in node.inputs for t in leaves(i.type) if isinstance(t, TensorType)]

    def is_native(body: Function) -> bool:
        return all(t.dtype.np is not None and native_reduction(body.reducer, t.dtype.np) is not None for t in tensors)

    return exchange.most_scratch(len(exchange.group(grid, 0, *node.attrs)), [t.nbytes for t in tensors], nbytes(node.type),
                                 node.attrs, knows=is_native)


def plan_of_device(module: Module, engine: Engine, devices: int) -> BufferAssignment:
    """The memory plan of the program of one of so many devices, with what it takes to meet the others. Raises InferError where a
    size is not known."""
    grid = Grid(1, devices)
    return engine_plans(module, engine, lambda node: scratch_of_meeting(node, grid))[module.entry_name]
