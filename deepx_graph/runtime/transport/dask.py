"""Connections to Dask clusters (the extra `dask`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deepx_graph.errors import Diagnostic, UsageError, printable

if TYPE_CHECKING:
    from distributed import Client

PREFIX = "dask:"
"""What stands before the address of a scheduler where a place is written."""
ANSWER = 30.0
"""How many seconds a scheduler has to answer."""


@contextmanager
def dask_client(address: str, timeout: float = ANSWER) -> Iterator[Client]:
    """A connection to the scheduler of a cluster. Raises UsageError without distributed, and where nobody answers in time."""
    try:
        from distributed import Client
    except ImportError as e:
        raise UsageError(Diagnostic(f"Dask is not available: {e}", hint="pip install 'deepx-graph[dask]'")) from None
    try:
        client = Client(address, timeout=timeout, set_as_default=False)
    except (OSError, ValueError) as e:
        hint = "dask scheduler starts one, and prints its address"
        raise UsageError(Diagnostic(f"no scheduler at {printable(address)}: {printable(str(e))}", expected="tcp://HOST:PORT",
                                    hint=hint)) from None
    with client:
        yield client
