"""One device of a program in this process: what is the same however it reaches the others.

The same generator that runs in lock step (`lock_step.py`) stops at each collective; a transport takes its operands to the
processes of the group and brings the results back. Every message carries a key: which attempt of a run it belongs to, which call
of the program, and which meeting of its group. Devices that meet with other keys, or in other collectives, end with an error that
says who stands where, instead of taking each other's data; so does a device that waits too long.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from deepx_graph.errors import Diagnostic, RunError
from deepx_graph.ir import Node
from deepx_graph.ir.collective import Devices, Grid, GroupNetwork, nothing
from deepx_graph.literal import Array
from deepx_graph.runtime.devices import Running, Stop, operands_of, value_at

PATIENCE = 600.0
"""How many seconds a device waits for others."""


class MeetingKey(NamedTuple):
    """The attempt of a run, from 0; the call of the program; and the meeting of a group in it, both from 1."""

    run: int
    step: int
    ordinal: int


@dataclass(frozen=True, eq=False)
class Meeting:
    """Where a device meets others: which meeting of which devices it is, and in what."""

    key: MeetingKey
    group: Devices
    node: Node
    digest: int
    """Of what the devices must agree on: the operation, its attributes, and the types of what they bring."""

    def __str__(self) -> str:
        here = f" at {self.node.span}" if self.node.span else ""
        return f"{self.node.op.name}{here} (run {self.key.run}, step {self.key.step}, meeting {self.key.ordinal})"


class _KnownCollective:
    """A collective of the program as this device sees it: what it is, and who meets there."""

    def __init__(self, said: tuple[Any, ...], group: Devices) -> None:
        self.said, self.group = said, group
        self._types: list[tuple[Any, Any]] = []
        self._digest = 0

    def digest(self, arrays: Sequence[Array]) -> int:
        """Of what devices must agree on; computed again only where arrays have other types than the last ones."""
        types = [(a.shape, a.dtype) for a in arrays]
        if types != self._types:
            said = repr((*self.said, [(shape, str(dtype)) for shape, dtype in types]))
            self._digest = int.from_bytes(hashlib.blake2b(said.encode(), digest_size=8).digest(), "little")
            self._types = types
        return self._digest


class Transport(Protocol):
    """What runs a program on the device that this process is."""

    grid: Grid
    device: int
    deterministic: bool
    """Whether sums are in the order of devices."""

    def run(self, running: Running) -> list[Any]:
        """The results of this device. Raises RunError where devices do not meet."""

    def gather(self, arrays: Sequence[Array]) -> list[list[Array]] | None:
        """The arrays of every device, on device 0 once all have come; None elsewhere."""


class ProcessTransport(Transport):
    """A transport, but for how arrays get to the others. `attempt` is how often the run has been started before."""

    def __init__(self, grid: Grid, device: int, *, deterministic: bool, patience: float, attempt: int = 0) -> None:
        self.grid, self.device, self.deterministic, self.patience = grid, device, deterministic, patience
        self.attempt, self.step = attempt, 0
        self._met: Counter[Devices] = Counter()
        self._collectives: WeakKeyDictionary[Node, _KnownCollective] = WeakKeyDictionary()

    def run(self, running: Running) -> list[Any]:
        """The results of this device. Raises RunError where devices do not meet."""
        self.step += 1
        self._met.clear()
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
            value = self._meet(stop)

    @abstractmethod
    def exchanged(self, meeting: Meeting, arrays: Sequence[Array]) -> list[Sequence[Array]]:
        """What every member of a group brings to a meeting, in the order of the group. Raises RunError where they do not agree."""

    def network(self, meeting: Meeting, donated: Sequence[Array]) -> GroupNetwork | None:
        """What brings a group together by collectives of its own, once all members are there; None where there is no such thing.
        Results may be in the arrays `donated`.

        Raises RunError where they do not agree.
        """
        return None

    def _collective(self, node: Node) -> _KnownCollective:
        """Who meets at a node, found once. Raises ValueError or LookupError as `Exchange.group` does."""
        found = self._collectives.get(node)
        if found is None:
            assert node.op.exchange is not None
            group = node.op.exchange.group(self.grid, self.device, *node.attrs)
            found = self._collectives[node] = _KnownCollective((node.op.name, node.attrs[:1]), group)
        return found

    def _meet(self, stop: Stop) -> Any:
        """The value of the collective at which this device stands."""
        exchange, attrs, values = stop.node.op.exchange, stop.node.attrs, operands_of(stop)
        assert exchange is not None
        try:
            known = self._collective(stop.node)
            group = known.group
            if not group:
                return value_at(stop, nothing(values))
            if len(group) == 1:
                return value_at(stop, exchange.combine(self.grid, group, [values], *attrs)[0])
            self._met[group] += 1
            arrays = [np.asarray(v, order="C") for v in values]  # of rank 0 as they are
            meeting = Meeting(MeetingKey(self.attempt, self.step, self._met[group]), group, stop.node, known.digest(arrays))
            donated = [stop.values[k] for k in stop.donated]
            if exchange.network is not None and (network := self.network(meeting, donated)) is not None:
                results = exchange.network(network, arrays, *attrs)
                if results is not None:
                    return value_at(stop, results, fresh=True)
            rows = self.exchanged(meeting, arrays)
            return value_at(stop, exchange.combine(self.grid, group, rows, *attrs)[group.index(self.device)])
        except (ValueError, LookupError) as e:
            raise RunError(Diagnostic(f"{stop.node.op.name}: {e}", stop.node.span)) from None


def apart(meeting: Meeting, stated: Mapping[int, str]) -> RunError:
    """The error of devices that do not meet: where each of them stands."""
    notes = tuple(f"device {device} is in {where}" for device, where in sorted(stated.items()))
    return RunError(Diagnostic("the devices do not meet in the same collective", meeting.node.span, notes=notes))


def late(meeting: Meeting, device: int, patience: float, others: Mapping[int, str]) -> RunError:
    """The error of a device that has waited too long: where it stands, and what is known of the others."""
    notes = (f"device {device} is in {meeting}", *(f"device {d} {where}" for d, where in sorted(others.items())))
    message = f"device {device} has waited {patience:g} s in {meeting.node.op.name} (meeting {meeting.key.ordinal})"
    hint = "another device has failed, or takes long: --patience allows more"
    return RunError(Diagnostic(message, meeting.node.span, notes=notes, hint=hint))
