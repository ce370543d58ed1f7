"""The workloads that peers run, over a module like numpy: the same computations as the StableHLO texts in `programs/`.

Nothing here needs deepx_graph: the interpreter of a peer reads this file, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def axpy(xp: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    return a * b + c - d * 2


def trans(xp: Any, x: Any, y: Any, z: Any) -> Any:
    return xp.exp(-x * x) * xp.tanh(y) + xp.sqrt(xp.abs(z))


def gelu(xp: Any, x: Any) -> Any:
    return 0.5 * x * (1 + xp.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def layernorm(xp: Any, x: Any, w: Any, b: Any) -> Any:
    d = x - xp.mean(x, axis=-1, keepdims=True)
    return d / xp.sqrt(xp.mean(d * d, axis=-1, keepdims=True) + 1e-5) * w + b


def reduce_full(xp: Any, x: Any, y: Any) -> Any:
    return xp.sum((x - y) ** 2)


def reduce_axis(xp: Any, x: Any, y: Any) -> Any:
    d = (x - y) ** 2
    return xp.max(d, axis=1), xp.sum(d, axis=1), xp.mean(d, axis=0)


def mlp_fwd(xp: Any, x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    h = xp.matmul(x, w1) + b1
    return xp.matmul(xp.where(h > 0, h, 0 * h), w2) + b2


PROGRAMS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (axpy, trans, gelu, softmax, layernorm, reduce_full, reduce_axis, mlp_fwd)}


def per_call(call: Callable[[], Any], seconds: float) -> float:
    """Seconds a call, over a batch that takes about so long."""
    start = time.perf_counter()
    call()
    count = max(1, int(seconds / max(1e-7, time.perf_counter() - start)))
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count
