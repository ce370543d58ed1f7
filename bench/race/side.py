"""One side of the race in a process of its own: `python -m bench.race.side ours|xla`, asked as `bench.libraries.worker` is.

`{"load": text, "inputs": folder, "dtypes": [...], "engine": name}` compiles the text, runs it on the arrays `in0.npy`, ..., writes
its results as `ours0.npy`, ... or `xla0.npy`, ... and tells their dtypes, the seconds of compiling and the first call by the clock
and by the processor (of all threads), and those of a later call by the clock. `{"time": calls}` tells the seconds a call.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from bench.harness.child import per_call, serve, undisturbed
from bench.harness.threads import Cores
from bench.race.program import BF16, Array

Call = Callable[[], Any]
Loaded = tuple[Call, Callable[[Any], list[Array]]]
"""What runs the program once, to the end, and what makes arrays of its results."""

WARM_UP = """func.func @main(%a: tensor<4x4xf32>, %x: tensor<1x8x8x4xf32>, %w: tensor<3x3x4x4xf32>)
    -> (tensor<4x4xf32>, tensor<1x8x8x4xf32>) {
  %p = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %c = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x8x8x4xf32>, tensor<3x3x4x4xf32>) -> tensor<1x8x8x4xf32>
  return %p, %c : tensor<4x4xf32>, tensor<1x8x8x4xf32>
}"""
"""A program that has each side import what it imports when it is first needed: for products, for convolutions."""
WARM_UP_SHAPES = (4, 4), (1, 8, 8, 4), (3, 3, 4, 4)


def ours(text: str, args: Sequence[Array], engine: str) -> Loaded:
    """One of our engines, from the text through the default pipeline."""
    import deepx_graph as dx

    function = dx.compile(dx.loads(text), engine=engine, threads=int(os.environ["BENCH_THREADS"]))
    return (lambda: function(*args)), lambda results: [np.asarray(r) for r in results]


def executable(text: str) -> Any:
    """What XLA's compiler for the CPU makes of a text, asked through its Python client."""
    import jax
    from jaxlib import xla_client

    jax.config.update("jax_enable_x64", True)
    jax.numpy.linalg.cholesky(np.eye(2))  # has LAPACK loaded, which texts may call
    device = jax.devices("cpu")[0]
    return device.client.compile_and_load(text, xla_client.DeviceList((device,)), xla_client.CompileOptions())


def xla(text: str, args: Sequence[Array], engine: str) -> Loaded:
    """XLA's executable; `engine` says nothing to it."""
    import jax

    execute = executable(text).execute_sharded
    given = jax.block_until_ready([jax.device_put(a) for a in args])

    def call() -> Any:
        return jax.block_until_ready([parts[0] for parts in execute(given).disassemble_into_single_device_arrays()])

    return call, lambda results: [np.asarray(r) for r in results]


SIDES: dict[str, Callable[[str, Sequence[Array], str], Loaded]] = {"ours": ours, "xla": xla}


def save(path: Path, array: Array) -> str:
    """Writes an array of any dtype; the name of its dtype, which `load` wants."""
    np.save(path, array.view(np.uint16) if array.dtype == BF16 else array)
    return array.dtype.name


def load(path: Path, dtype: str) -> Array:
    array = np.load(path)
    return np.asarray(array.view(BF16) if dtype == np.dtype(ml_dtypes.bfloat16).name else array)


class Side:
    """The state between questions."""

    def __init__(self, name: str) -> None:
        self.name, self.cores = name, Cores()
        self.call: Call | None = None
        self.slow = False

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        if "load" in question:
            return self.load(question["load"], Path(question["folder"]), question["dtypes"], question["engine"])
        call, count = self.call, question["time"]
        assert call is not None, "load first"

        def batch() -> float:
            if not self.slow:
                call()  # wakes workers and caches
            return per_call(call, count)

        return undisturbed(batch, count)

    def load(self, text: str, folder: Path, dtypes: Sequence[str], engine: str) -> dict[str, Any]:
        prepare = SIDES[self.name]
        if self.call is None:  # what a process does once
            np.empty(31 << 20, np.uint8)
            prepare(WARM_UP, [np.zeros(s, np.float32) for s in WARM_UP_SHAPES], engine)[0]()
        self.call = None
        self.cores.release()
        args = [load(folder / f"in{k}.npy", dtype) for k, dtype in enumerate(dtypes)]
        start, cpu = time.perf_counter(), time.process_time()
        call, arrays = prepare(text, args, engine)
        results = call()
        first, first_cpu = time.perf_counter() - start, time.process_time() - cpu
        names = [save(folder / f"{self.name}{k}.npy", r) for k, r in enumerate(arrays(results))]
        del results
        seconds = per_call(call, 1)
        self.slow = seconds > LONG
        if not self.slow:
            self.cores.spread(call)
            seconds = min(seconds, *(per_call(call, 1) for _ in range(3)))
        self.call = call
        return {"first": first, "first_cpu": first_cpu, "seconds": seconds, "dtypes": names}


LONG = 0.5
"""Seconds of a call beyond which nothing is done only to prepare for measuring."""

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    serve(Side(sys.argv[1]).answer)
