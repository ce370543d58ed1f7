"""Devices that meet in the workers of a Dask cluster: each worker has a mailbox for every run of a gang.

A worker's handler puts what arrives into the mailbox; the task that runs a device takes it out. Messages go from worker to worker
by Dask's own connections, so they are as secure as the cluster's. A run that has ended wakes whoever waits in it.

Source: distributed, https://distributed.dask.org: plugins of workers, and the RPC handlers of its servers.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from distributed import WorkerPlugin, get_worker
from distributed.comm.core import CommClosedError
from distributed.protocol import to_serialize
from distributed.utils import sync

from deepx_graph.ir.collective import Grid
from deepx_graph.literal import Array, bits
from deepx_graph.runtime.transport.base import Meeting, ProcessTransport, apart, late

HANDLER = "deepx_graph_deliver"
"""The name of the handler on workers."""


class Interrupted(Exception):
    """A run of a gang cannot go on, as a worker was lost or the run was ended: to be started again."""


class Mailbox:
    """What the other devices of one run have sent to one of them, in the order of each."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._from: defaultdict[int, deque[dict[str, Any]]] = defaultdict(deque)
        self._ended = False

    def put(self, sender: int, message: dict[str, Any]) -> None:
        """Called by the handler."""
        with self._changed:
            self._from[sender].append(message)
            self._changed.notify_all()

    def end(self) -> None:
        """Wakes whoever waits: the run is over."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def take(self, sender: int, patience: float) -> dict[str, Any] | None:
        """The next message of a device; None when none came in time. Raises Interrupted when the run is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._from[sender], patience)
            if self._ended:
                raise Interrupted("the run has ended")
            return self._from[sender].popleft() if self._from[sender] else None


class Mailboxes(WorkerPlugin):  # type: ignore[misc]
    """The mailboxes of a worker, by run and device."""

    name = "deepx-graph-mailboxes"
    idempotent = True

    def setup(self, worker: Any) -> None:
        """Called by Dask on every worker, also on those that come later."""
        self._lock = threading.Lock()
        self._boxes: dict[tuple[str, int], Mailbox] = {}
        self._over: set[str] = set()
        worker.handlers[HANDLER] = self.deliver

    def box(self, run: str, device: int) -> Mailbox:
        """The mailbox of a device in a run."""
        with self._lock:
            box = self._boxes.setdefault((run, device), Mailbox())
        if run in self._over:
            box.end()
        return box

    def close(self, run: str) -> None:
        """Ends a run here: waiting devices are woken, and what was sent is dropped."""
        self._over.add(run)
        with self._lock:
            ended = [self._boxes.pop(key) for key in list(self._boxes) if key[0] == run]
        for box in ended:
            box.end()

    async def deliver(self, run: str, device: int, sender: int, message: dict[str, Any]) -> None:
        """Takes a message in."""
        if run not in self._over:
            self.box(run, device).put(sender, message)


def mailboxes() -> Mailboxes:
    """Those of the worker that runs this task."""
    found: Mailboxes = get_worker().plugins[Mailboxes.name]
    return found


def close_run(run: str, dask_worker: Any) -> None:
    """Ends a run on a worker; called there by the client."""
    dask_worker.plugins[Mailboxes.name].close(run)


class DaskTransport(ProcessTransport):
    """This task as a device of a grid. `run_name` is the gang's attempt, `addresses` the worker of each device."""

    def __init__(self, grid: Grid, device: int, addresses: Sequence[str], run_name: str, *, patience: float, attempt: int) -> None:
        super().__init__(grid, device, deterministic=True, patience=patience, attempt=attempt)
        self.addresses, self.run_name = addresses, run_name
        self._worker = get_worker()
        self._box = mailboxes().box(run_name, device)

    def exchanged(self, meeting: Meeting, arrays: Sequence[Array]) -> list[Sequence[Array]]:
        """As in `ProcessTransport`: each sends to each."""
        others = [d for d in meeting.group if d != self.device]
        message = {"key": tuple(meeting.key), "digest": meeting.digest, "place": str(meeting), "arrays": list(map(bits, arrays))}
        self._send(others, message)
        found: dict[int, Sequence[Array]] = {self.device: arrays}
        for sender in others:
            taken = self._box.take(sender, self.patience)
            if taken is None:
                raise late(meeting, self.device, self.patience, {sender: "has not come"})
            if (tuple(taken["key"]), taken["digest"]) != (meeting.key, meeting.digest):
                raise apart(meeting, {self.device: str(meeting), sender: taken["place"]})
            found[sender] = [np.frombuffer(data, a.dtype).reshape(a.shape) for data, a in zip(taken["arrays"], arrays, strict=True)]
        return [found[d] for d in meeting.group]

    def gather(self, arrays: Sequence[Array]) -> list[list[Array]] | None:
        """The arrays of every device, on device 0 once all have come; None elsewhere."""
        if self.device:
            self._send([0], {"dtypes": [(a.dtype, a.shape) for a in arrays], "arrays": list(map(bits, arrays))})
            return None
        found = [list(arrays)]
        for sender in range(1, self.grid.count):
            taken = self._box.take(sender, self.patience)
            if taken is None:
                raise Interrupted(f"device {sender} has not come within {self.patience:g} s")
            found.append([np.frombuffer(d, t).reshape(s) for d, (t, s) in zip(taken["arrays"], taken["dtypes"], strict=True)])
        return found

    def _send(self, devices: Sequence[int], message: dict[str, Any]) -> None:
        async def all_sent() -> None:
            calls = (getattr(self._worker.rpc(self.addresses[d]), HANDLER)(
                run=self.run_name, device=d, sender=self.device, message=to_serialize(message)) for d in devices)
            await asyncio.gather(*calls)

        try:
            sync(self._worker.loop, all_sent)
        except (OSError, CommClosedError) as e:
            raise Interrupted(f"a worker was lost: {e}") from None
