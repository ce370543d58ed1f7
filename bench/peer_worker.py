"""One contestant in a process of its own: `python peer_worker.py CONTESTANT THREADS`, requests as lines of JSON on standard input.

`{"load": name, "size": size, "folder": folder}` makes the workload ready on the arrays `in0.npy`, ... and answers with the
seconds of the first call; its results go to `CONTESTANT.npz`. `{"seconds": s}` calls it for about so long and answers with the
seconds of a call.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CONTESTANT, THREADS = sys.argv[1], int(sys.argv[2])
for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = str(THREADS)

import numpy as np  # noqa: E402
from peer_programs import PROGRAMS, per_call  # noqa: E402


def ours(engine: str) -> Callable[..., Callable[[], Any]]:
    """An engine of ours, on the StableHLO text."""

    def prepare(name: str, size: str, args: list[Any]) -> Callable[[], Any]:
        import deepx_graph as dx

        text = Path(__file__).parent / "programs" / f"{name}.{size}.stablehlo"
        f = dx.compile(dx.optimize(dx.load(text)), engine=engine, threads=THREADS)
        return lambda: f(*args)

    return prepare


def by_jax(name: str, size: str, args: list[Any]) -> Callable[[], Any]:
    import jax

    f = jax.jit(lambda *xs: PROGRAMS[name](jax.numpy, *xs))
    given = jax.block_until_ready([jax.device_put(a) for a in args])
    return lambda: jax.block_until_ready(f(*given))


class TorchNames:
    """numpy's names where torch has others."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.torch, name)

    def max(self, x: Any, axis: int, keepdims: bool = False) -> Any:
        return self.torch.amax(x, axis, keepdims)


def by_torch(compiled: bool) -> Callable[..., Callable[[], Any]]:
    def prepare(name: str, size: str, args: list[Any]) -> Callable[[], Any]:
        import torch

        torch.set_num_threads(THREADS)
        names, given = TorchNames(torch), [torch.from_numpy(a) for a in args]

        def program(*xs: Any) -> Any:
            return PROGRAMS[name](names, *xs)

        f = torch.compile(program, dynamic=False) if compiled else program

        def call() -> Any:
            with torch.no_grad():
                return f(*given)

        return call

    return prepare


def by_numpy(name: str, size: str, args: list[Any]) -> Callable[[], Any]:
    return lambda: PROGRAMS[name](np, *args)


CONTESTANTS: dict[str, Callable[..., Callable[[], Any]]] = {
    "native": ours("native"), "numexpr": ours("numexpr"), "numpy": by_numpy, "jax": by_jax, "torch": by_torch(False),
    "inductor": by_torch(True)}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    call: Callable[[], Any] = tuple
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if "load" in asked:
                folder = Path(asked["folder"])
                args = [np.load(folder / f"in{k}.npy") for k in range(len(list(folder.glob("in*.npy"))))]
                start = time.perf_counter()
                call = CONTESTANTS[CONTESTANT](asked["load"], asked["size"], args)
                results = call()
                answer: dict[str, Any] = {"first": time.perf_counter() - start}
                each = results if isinstance(results, (tuple, list)) else (results,)
                np.savez(folder / f"{CONTESTANT}.npz", *(np.asarray(r) for r in each))
                del results, each
            else:
                answer = {"seconds": per_call(call, asked["seconds"])}
        except Exception as e:  # what a peer cannot do is a result, too
            call, answer = tuple, {"fails": f"{type(e).__name__}: {e}"[:200]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
