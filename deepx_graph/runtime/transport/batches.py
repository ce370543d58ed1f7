"""A compiled program mapped over batches, by the workers of a Dask cluster.

Workers may come and go while it runs. A batch whose worker dies is given to another one, and each result is given out once, in
the order of the batches; so many are under way as the workers can hold.

Source: distributed, https://distributed.dask.org.
"""

from __future__ import annotations

import hashlib
import pickle
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from deepx_graph.errors import Diagnostic, RunError, UsageError
from deepx_graph.literal import Array
from deepx_graph.runtime.transport.dask import PREFIX, dask_client

if TYPE_CHECKING:
    from distributed import Client, Future

    from deepx_graph.runtime.compile import Compiled

AHEAD = 2
"""So many batches for each thread of the cluster are under way."""
HERE = "here"


def mapped(f: Compiled, batches: Iterable[Any], on: str | Client, retries: int) -> Iterator[tuple[Array, ...]]:
    """The results for each batch, in order, as `Compiled.map` says."""
    if on == HERE:
        yield from (_applied(f, batch) for batch in batches)
    elif not isinstance(on, str):
        yield from _Mapping(f, on, retries).results(batches)
    elif on.startswith(PREFIX):
        with dask_client(on.removeprefix(PREFIX)) as client:
            yield from _Mapping(f, client, retries).results(batches)
    else:
        raise UsageError(Diagnostic(f"batches cannot be run on '{on}'", expected="here, dask:ADDRESS, or a client of Dask"))


class _Mapping:
    """A program on a cluster. It is a task, too, so that the cluster can make it again when who has it dies."""

    def __init__(self, f: Compiled, client: Client, retries: int) -> None:
        data = pickle.dumps(f)
        self.client, self.retries = client, retries
        self.key = hashlib.blake2b(data, digest_size=16).hexdigest()
        self.program = client.submit(bytes, data, key=f"deepx-graph-program-{self.key}")

    def results(self, batches: Iterable[Any]) -> Iterator[tuple[Array, ...]]:
        waiting: deque[tuple[int, Any, Future]] = deque()
        given = iter(enumerate(batches))
        try:
            while True:
                most = AHEAD * max(1, sum(self.client.ncores().values()))
                while len(waiting) < most and (entry := next(given, None)) is not None:
                    waiting.append((*entry, self._submitted(entry[1])))
                if not waiting:
                    return
                yield self._result(*waiting.popleft())
        finally:
            self.client.cancel([future for _, _, future in waiting])

    def _submitted(self, batch: Any) -> Future:
        return self.client.submit(_run_batch, self.program, self.key, batch, pure=False)

    def _result(self, number: int, batch: Any, future: Future) -> tuple[Array, ...]:
        """What a batch gives; it is submitted again when Dask gives it up as one whose workers die."""
        from distributed import KilledWorker

        for _ in range(self.retries + 1):
            try:
                found: tuple[Array, ...] = future.result()
                return found
            except KilledWorker:
                future = self._submitted(batch)
        hint = "it may need more memory than workers have"
        raise RunError(Diagnostic(f"batch {number} lost its workers {self.retries + 1} times", hint=hint))


def _applied(f: Compiled, batch: Any) -> tuple[Array, ...]:
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


_PROGRAMS: dict[str, Compiled] = {}
"""The last program of this worker."""
