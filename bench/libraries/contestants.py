"""The other libraries as contestants, each as one who knows it well would use it.

A contestant has `prepare(workload, arguments)`, which gives a function without arguments that runs the workload once, to the end,
and `outputs(results)`, which gives its results as numpy arrays. The arguments are this process's own. Results are fresh arrays, as
users of the library get them, but for the workload's `inplace` arguments: updated, donated (jax) or shared variables (pytensor).
Threads are set by the environment of the process, and by BENCH_THREADS where a library wants to be told.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.libraries.workloads import Array, Workload, listed

Call = Callable[[], Any]


def threads() -> int:
    return int(os.environ["BENCH_THREADS"])


class Numpy:
    """numpy, with its own allocator, which asks for huge pages."""

    package = "numpy"

    def prepare(self, w: Workload, args: list[Array]) -> Call:
        form = w.form("numpy")
        return (lambda: form(*args)) if form else (lambda: w.formula(np, *args))

    @staticmethod
    def outputs(results: Any) -> list[Array]:
        return [np.asarray(r) for r in listed(results)]


class Numexpr(Numpy):
    """`numexpr.evaluate`, and numpy for what it has not."""

    package = "numexpr"

    def prepare(self, w: Workload, args: list[Array]) -> Call:
        import numexpr

        numexpr.set_num_threads(threads())
        form = w.form("numexpr")
        return lambda: form(numexpr, *args)


class Numba(Numpy):
    """Loops as one writes them in C."""

    package = "numba"

    def prepare(self, w: Workload, args: list[Array]) -> Call:
        import numba
        import scipy.linalg.cython_blas  # noqa: F401  starts its threads before OpenMP binds this one to a core

        form = w.form("numba")(numba)
        return lambda: form(*args)


class Jax(Numpy):
    """`jax.jit`, in float64 where the workload is."""

    package = "jax"

    def prepare(self, w: Workload, args: list[Array]) -> Call:
        import jax

        jax.config.update("jax_enable_x64", w.dtype is np.float64)
        form = w.form("jax")

        def program(*given: Any) -> Any:
            return form(jax, *given) if form else w.formula(jax.numpy, *given)

        f = jax.jit(program, donate_argnums=w.inplace)
        state = jax.block_until_ready([jax.device_put(a) for a in args])

        def call() -> Any:
            results = f(*state)
            for k, r in zip(w.inplace, results if w.inplace else (), strict=True):
                state[k] = r
            return jax.block_until_ready(results)

        return call


class TorchNames:
    """numpy's names where torch has others."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.torch, name)

    def max(self, x: Any, axis: int, keepdims: bool = False) -> Any:
        return self.torch.amax(x, axis, keepdims)

    def transpose(self, x: Any, axes: Any) -> Any:
        return x.permute(axes)


class Torch(Numpy):
    """torch, operation by operation."""

    package = "torch"
    compiled = False

    def prepare(self, w: Workload, args: list[Array]) -> Call:
        import torch

        torch.set_num_threads(threads())
        form, names = w.form("torch"), TorchNames(torch)

        def program(*given: Any) -> Any:
            return form(torch, *given) if form else w.formula(names, *given)

        f: Any = program
        if self.compiled:
            torch._dynamo.reset()  # or the workloads after the eighth run into its limit of recompilations
            f = torch.compile(program, dynamic=False, fullgraph=True)
        given = [torch.from_numpy(a) for a in args]

        def call() -> Any:
            with torch.no_grad():
                return f(*given)

        return call

    @staticmethod
    def outputs(results: Any) -> list[Array]:
        return [r.detach().numpy() for r in listed(results)]


class Inductor(Torch):
    """`torch.compile`."""

    compiled = True


class PytensorNames:
    """numpy's names where pytensor has others."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tensor, {"where": "switch"}.get(name, name))


class Pytensor(Numpy):
    """`pytensor.function` on borrowed inputs."""

    package = "pytensor"

    def prepare(self, w: Workload, args: list[Array]) -> Call:
        import pytensor
        import pytensor.tensor as pt
        import scipy.linalg.cython_blas  # noqa: F401  as for numba

        pytensor.config.floatX = np.dtype(w.dtype).name
        form, names = w.form("pytensor"), PytensorNames(pt)
        given = [pt.tensor(dtype=a.dtype.name, shape=a.shape) for a in args]
        results = [r.astype(w.dtype) for r in listed(form(names, *given) if form else w.formula(names, *given))]
        if not w.inplace:
            f = pytensor.function([pytensor.In(x, borrow=True) for x in given],
                                  [pytensor.Out(r, borrow=True) for r in results], trust_input=True)
            return lambda: f(*args)
        shared = [pytensor.shared(a, borrow=True) for a in args]
        step = pytensor.function([], [], updates=[(shared[k], r) for k, r in zip(w.inplace, results, strict=True)],
                                 givens=dict(zip(given, shared, strict=True)))

        def call() -> Any:
            step()
            return [shared[k].get_value(borrow=True) for k in w.inplace]

        return call


PEERS = {"jax": Jax, "inductor": Inductor, "torch": Torch, "pytensor": Pytensor, "numba": Numba, "numexpr": Numexpr, "numpy": Numpy}
HUGE = "+huge"
"""The end of the name of a contestant whose allocator is told to ask for huge pages."""
ALLOCATES = ("jax", "inductor", "torch")
"""The peers that have an allocator of their own, which does not ask for huge pages by itself."""
HUGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""The environment that tells them."""
OURS = {"auto": "Auto", "native": "Native", "numexpr-engine": "Numexpr"}
"""Our engines: classes of `bench.libraries.ours`."""


def contestant(name: str) -> Any:
    """The contestant of that name. Raises ImportError where its library is missing."""
    if name in OURS:
        return getattr(importlib.import_module("bench.libraries.ours"), OURS[name])()
    peer = PEERS[name.removesuffix(HUGE)]
    importlib.import_module(peer.package)
    return peer()
