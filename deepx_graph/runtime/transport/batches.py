"""A compiled program mapped over batches, by the workers of a Dask cluster.

Workers may come and go while it runs. A batch whose worker dies is given to another one, and each result is given out once, in
the order of the batches; so many are under way as the workers can hold.

Source: distributed, https://distributed.dask.org.
"""

from __future__ import annotations

import hashlib
import pickle
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from deepx_graph.errors import Diagnostic, RunError, UsageError, printable
from deepx_graph.literal import Array
from deepx_graph.runtime.transport.base import PATIENCE
from deepx_graph.runtime.transport.dask import PREFIX, dask_client

if TYPE_CHECKING:
    from distributed import Client, Future

Program = Callable[..., tuple[Array, ...]]
"""A compiled program, which pickles."""
AHEAD = 2
"""So many batches for each thread of the cluster are under way."""
LOOK_SECONDS = 2.0
"""How often it is looked whether there is any worker while a batch is waited for."""
HERE = "here"


def mapped(f: Program, batches: Iterable[Any], on: str | Client, retries: int,
           patience: float | None) -> Iterator[tuple[Array, ...]]:
    """The results for each batch, in order, as `Compiled.map` says."""
    if on == HERE:
        yield from (_applied(f, batch) for batch in batches)
    elif not isinstance(on, str):
        yield from _Mapping(f, on, retries, patience).results(batches)
    elif on.startswith(PREFIX):
        with dask_client(on.removeprefix(PREFIX)) as client:
            yield from _Mapping(f, client, retries, patience).results(batches)
    else:
        raise UsageError(Diagnostic(f"batches cannot be run on '{on}'", expected="here, dask:ADDRESS, or a client of Dask"))


class _Mapping:
    """A program on a cluster. It is a task, too, so that the cluster can make it again when who has it dies."""

    def __init__(self, f: Program, client: Client, retries: int, patience: float | None) -> None:
        data = pickle.dumps(f)
        self.client, self.retries, self.patience = client, retries, PATIENCE if patience is None else patience
        self.address = str(client.scheduler.address)
        self.key = hashlib.blake2b(data, digest_size=16).hexdigest()
        self.program = client.submit(bytes, data, key=f"deepx-graph-program-{self.key}")

    def results(self, batches: Iterable[Any]) -> Iterator[tuple[Array, ...]]:
        waiting: deque[tuple[int, Any, Future]] = deque()
        given = iter(enumerate(batches))
        try:
            while True:
                most = AHEAD * max(1, self._threads())
                while len(waiting) < most and (entry := next(given, None)) is not None:
                    waiting.append((*entry, self._submitted(entry[1])))
                if not waiting:
                    return
                yield self._result(*waiting.popleft())
        finally:
            if self._is_connected:
                self.client.cancel([future for _, _, future in waiting])

    def _submitted(self, batch: Any) -> Future:
        return self.client.submit(_run_batch, self.program, self.key, batch, pure=False)

    def _result(self, number: int, batch: Any, future: Future) -> tuple[Array, ...]:
        """What a batch gives; it is submitted again when Dask gives it up as one whose workers die."""
        from distributed import CancelledError, KilledWorker

        for _ in range(self.retries + 1):
            try:
                return self._awaited(number, future)
            except KilledWorker:
                future = self._submitted(batch)
            except CancelledError:
                raise self._lost() from None
        hint = "it may need more memory than workers have"
        raise RunError(Diagnostic(f"batch {number} lost its workers {self.retries + 1} times", hint=hint))

    def _awaited(self, number: int, future: Future) -> tuple[Array, ...]:
        """What a batch gives once it is done. Raises what it raises, and RunError where there has been no worker for too long."""
        from distributed import TimeoutError, wait

        seen = time.monotonic()
        while True:
            try:
                wait(future, timeout=min(LOOK_SECONDS, self.patience))
                found: tuple[Array, ...] = future.result(self.patience)  # its worker may die before it is here
                return found
            except TimeoutError:
                if future.status == "error":
                    raise
            if self._threads():
                seen = time.monotonic()
            if (waited := time.monotonic() - seen) >= self.patience:
                message = f"batch {number} waits for a worker, and the cluster has had none for {waited:.0f} s"
                hint = f"dask worker {printable(self.address)} starts one; patience= allows more"
                raise RunError(Diagnostic(message, expected="a worker with this version of deepx_graph", hint=hint))

    def _threads(self) -> int:
        """Of all workers that there are. Raises RunError where the scheduler is gone."""
        if not self._is_connected:
            raise self._lost()
        try:
            return sum(self.client.ncores().values())
        except OSError:
            raise self._lost() from None

    @property
    def _is_connected(self) -> bool:
        """Whether there is a scheduler to ask, as far as the client knows."""
        return str(self.client.status) == "running"

    def _lost(self) -> RunError:
        return RunError(Diagnostic(f"the scheduler at {printable(self.address)} is gone", hint="start it and the run again"))


def _applied(f: Program, batch: Any) -> tuple[Array, ...]:
    if isinstance(batch, Mapping):
        return f(**batch)
    return f(*batch) if isinstance(batch, (list, tuple)) else f(batch)


def _run_batch(data: bytes, key: str, batch: Any) -> tuple[Array, ...]:
    """In a task: the program is made once in each worker."""
    f = _PROGRAMS.get(key)
    if f is None:
        _PROGRAMS.clear()
        f = _PROGRAMS[key] = pickle.loads(data)
    return _applied(f, batch)


_PROGRAMS: dict[str, Program] = {}
"""The last program of this worker."""
