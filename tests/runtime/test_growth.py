"""A process that goes through ever new programs holds nothing of those it is done with, but what bounded caches keep."""

from __future__ import annotations

import functools
import gc
import inspect
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.runtime.engines import has_native
from tests.support.apart import apart

WARM, PROGRAMS, ROUNDS, SPARE = 6, 8, 3, 4
"""Programs before objects are counted and between counts, how often they are, and objects that may come and go."""

PROGRAM = """
HloModule m{k}

scaled {{
  p = f32[] parameter(0)
  c = f32[] constant({k}.5)
  ROOT r = f32[] multiply(p, c)
}}

less {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] constant({k}.25)
  d = f32[] multiply(a, c)
  ROOT l = pred[] compare(d, b), direction=LT
}}

sum {{
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y)
}}

ENTRY e {{
  x = f32[{k}] parameter(0)
  m = f32[{k}] map(x), dimensions={{0}}, to_apply=scaled
  s = f32[{k}] sort(m), dimensions={{0}}, to_apply=less
  t = f32[{k}] tanh(s)
  z = f32[] constant(0)
  ROOT r = f32[] reduce(t, z), dimensions={{0}}, to_apply=sum
}}
"""


def caches() -> Iterator[Any]:
    """Every function of the package that remembers its results."""
    for found in gc.get_objects():
        if isinstance(found, functools._lru_cache_wrapper) and str(found.__module__).startswith("deepx_graph"):
            yield found


def bound(cache: Any) -> int | None:
    return cache.cache_parameters()["maxsize"]  # type: ignore[no-any-return]


def held() -> int:
    """Objects that the collector knows, when bounded caches are empty."""
    for cache in caches():
        if bound(cache) is not None:
            cache.cache_clear()
    gc.collect()
    if has_native():
        from deepx_graph.runtime.native.llvm.machine_code import linker

        len(linker())  # code that nobody owns any more is unloaded when something is asked of the linker
    return len(gc.get_objects())


def unbounded() -> dict[str, int]:
    """How much caches without a bound hold; what takes nothing is remembered once, whenever that is."""
    return {f"{c.__module__}.{c.__qualname__}": c.cache_info().currsize for c in caches()
            if bound(c) is None and inspect.signature(c).parameters}


def go_through(engine: str, sizes: Iterable[int]) -> None:
    for k in sizes:
        module = dx.optimize(dx.grad(dx.loads(PROGRAM.format(k=k))))
        dx.compile(module, engine=engine, threads=1, optimize=False)(np.ones(k, "f4"), np.float32(1))


def counted(engine: str) -> tuple[list[int], dict[str, int]]:
    """Objects held after each round, and by how much the caches without a bound grew."""
    programs = iter(range(8, 8 + WARM + ROUNDS * PROGRAMS))
    go_through(engine, itertools.islice(programs, WARM))
    counts, known = [held()], unbounded()
    for _ in range(ROUNDS):
        go_through(engine, itertools.islice(programs, PROGRAMS))
        counts.append(held())
    return counts, {name: size - known.get(name, 0) for name, size in unbounded().items() if size != known.get(name, 0)}


@pytest.mark.parametrize("engine", ["numpy", "numexpr", pytest.param("native", marks=pytest.mark.skipif(
    not has_native(), reason="llvmlite is not installed"))])
def test_ever_new_programs_leave_nothing_behind(engine: str) -> None:
    counts, grown = apart(counted, engine)
    assert not grown, "what is remembered of programs has a bound"
    assert min(b - a for a, b in itertools.pairwise(counts)) < SPARE, counts
