"""Gangs on a Dask cluster: one long task for each device, all or none of them.

Dask starts a task again whose worker died, alone, from its beginning, while the others are far ahead. So a gang is watched from
the client: when a worker is lost, the run ends for all, and a new one, with a number of its own, begins on workers that are there.
Each task stands on a worker that the client chose, as the others have to know where to send to.

Source: the run ids and barriers of distributed's P2P shuffle; dask/distributed#8624, collective-style tasks.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from distributed import Client, Future, Lock

from deepx_graph.errors import DeepxGraphError, Diagnostic, RunError, UsageError, counted, printable
from deepx_graph.ir.collective import Grid
from deepx_graph.runtime.transport.base import PATIENCE
from deepx_graph.runtime.transport.mailbox import DaskTransport, Mailboxes, close_run

RESTARTS = 3
"""How often a gang is started again."""
GATHERING = 30.0
"""How many seconds a gang waits for workers."""

Member = Callable[..., Any]
"""`member(transport, *arguments)` runs one device in a task, and gives what the client gets."""


def run_gang(client: Client, grid: Grid, member: Member, arguments: Sequence[tuple[Any, ...]], *, restarts: int = RESTARTS,
             patience: float = PATIENCE, gathering: float = GATHERING) -> list[Any]:
    """What `member` gives on every device; `arguments[d]` are those of device d.

    It waits `gathering` seconds for workers, at most as long as members wait for each other; when one was lost, as long as these,
    since it may come back.
    Raises UsageError when fewer workers are free than devices, RunError when workers were lost too often, and what a member raises.
    """
    _give_mailboxes(client)
    watch, name = _Watch(client), uuid.uuid4().hex
    try:
        for attempt in range(restarts + 1):
            wait = patience if attempt else min(gathering, patience)
            found = _attempt(client, watch, f"{name}-{attempt}", (grid, member, arguments, patience, attempt), wait)
            if found is not None:
                return found
    finally:
        watch.close()
    message = f"workers were lost in each of {restarts + 1} runs"
    raise RunError(Diagnostic(message, hint="--checkpoint-every lets a restarted run go on from where it was"))


def _give_mailboxes(client: Client) -> None:
    """Also to workers that come later. Raises UsageError for workers with no or another deepx_graph, which could not take them."""
    every = client.get_versions(packages=["deepx_graph"])
    mine = every["client"]["packages"]["deepx_graph"]
    for worker, said in every["workers"].items():
        if (other := said["packages"].get("deepx_graph")) != mine:
            message = f"the worker {printable(worker)} has {f'deepx_graph {other}' if other else 'no deepx_graph'}"
            raise UsageError(Diagnostic(message, expected=f"deepx_graph {mine}, as here"))
    for _ in range(RESTARTS):
        with suppress(OSError):  # a worker died meanwhile; the scheduler has noted the call by then
            client.register_plugin(Mailboxes())
            return
    client.register_plugin(Mailboxes())


class _Watch:
    """Tells the client of lost workers and of futures that have changed."""

    def __init__(self, client: Client) -> None:
        self.client, self.changed, self.lost = client, threading.Event(), set[str]()
        client.subscribe_topic("all", self._heard)

    def _heard(self, event: tuple[float, Any]) -> None:
        message = event[1]
        if isinstance(message, dict) and message.get("action") == "remove-worker":
            self.lost.add(message.get("worker", ""))
            self.changed.set()

    def settled(self, futures: Sequence[Future], workers: Sequence[str]) -> bool:
        """Waits until all is done (true), or one of the workers is lost or a task has failed (false)."""
        for f in futures:
            f.add_done_callback(lambda _: self.changed.set())
        while True:
            self.changed.wait()
            self.changed.clear()
            if self.lost & set(workers) or any(f.status in ("error", "cancelled", "lost") for f in futures):
                return False
            if all(f.status == "finished" for f in futures):
                return True

    def gathered(self, futures: Sequence[Future], workers: Sequence[str]) -> list[Any] | None:
        """What tasks have given; None where a worker is lost before all of it is here: its task alone would wait for ever."""
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(self.client.gather, futures)
            found.add_done_callback(lambda _: self.changed.set())
            while not found.done():
                self.changed.wait()
                self.changed.clear()
                if self.lost & set(workers):
                    self.client.cancel(futures, force=True)  # ends the gathering
                    break
            return None if found.exception() else list(found.result())

    def close(self) -> None:
        self.client.unsubscribe_topic("all")


def _attempt(client: Client, watch: _Watch, run: str, task: tuple[Any, ...], gathering: float) -> list[Any] | None:
    """The results of one run; None when it has to be started again. Raises what a member does."""
    grid, member, arguments, patience, attempt = task
    with client.as_current(), Lock("deepx-graph-gang"):  # of two gangs that gather at once neither would get all
        watch.lost.clear()  # who comes back may have its old address
        workers = _free_workers(client, grid.count, gathering)
        futures = [
            client.submit(_run_member, member, grid, d, workers, run, patience, attempt, arguments[d],
                          workers=[workers[d]], allow_other_workers=False, pure=False, retries=0, key=f"{run}-{d}")
            for d in range(grid.count)
        ]  # fmt: skip
        _await_started(client, futures, watch, workers)
    if watch.settled(futures, workers) and (found := watch.gathered(futures, workers)) is not None:
        return found
    alive = [w for w in workers if w in client.ncores()]
    client.run(close_run, run, workers=alive, on_error="ignore")
    failures = [e for f in futures if f.status == "error" and isinstance(e := f.exception(), DeepxGraphError)]
    _await_ended(futures, [f for f, w in zip(futures, workers, strict=True) if w in alive])
    client.cancel(futures, force=True)
    if failures:
        raise failures[0]
    return None


def _free_workers(client: Client, count: int, gathering: float) -> list[str]:
    """As many workers without a task. Raises UsageError when there are not that many after so many seconds."""
    until = time.monotonic() + gathering
    while True:
        free = [worker for worker, tasks in client.processing().items() if not tasks]
        if len(free) >= count:
            return sorted(free)[:count]
        if time.monotonic() > until:
            message = f"the program needs {counted(count, 'free worker')}, one for each device, and the cluster has {len(free)}"
            raise UsageError(Diagnostic(message, hint="start more workers; each needs this version of deepx_graph"))
        time.sleep(0.1)


def _await_started(client: Client, futures: Sequence[Future], watch: _Watch, workers: Sequence[str]) -> None:
    """Until the scheduler has given every task to its worker, so that the next gang sees these as taken."""
    keys = {f.key for f in futures}
    while not watch.lost & set(workers):
        given = {key for tasks in client.processing().values() for key in tasks}
        if all(f.done() or f.key in given for f in futures) or not keys:
            return
        time.sleep(0.02)


def _await_ended(futures: Sequence[Future], alive: Sequence[Future], longest: float = 60.0) -> None:
    """Until the tasks on workers that are there have seen that their run is over."""
    until = time.monotonic() + longest
    while any(f.status == "pending" for f in alive) and time.monotonic() < until:
        time.sleep(0.05)


def _run_member(member: Member, grid: Grid, device: int, addresses: Sequence[str], run: str, patience: float, attempt: int,
                arguments: tuple[Any, ...]) -> Any:
    """In a task: one device of one run."""
    transport = DaskTransport(grid, device, addresses, run, patience=patience, attempt=attempt)
    return member(transport, *arguments)
