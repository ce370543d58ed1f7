"""A store of machine code of a test's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deepx_graph.runtime.native.llvm import store


@contextmanager
def kernel_store(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    """Machine code is kept in that folder."""
    monkeypatch.setenv("DEEPX_GRAPH_CACHE", str(folder))
    store._folder.cache_clear()
    yield
    store._folder.cache_clear()
