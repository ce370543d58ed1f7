"""How much memory a call really takes: the most that was resident during it, beside what was before. Linux alone tells."""

from __future__ import annotations

import gc
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import deepx_graph as dx
from deepx_graph.errors import InferError
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ops import OPS
from deepx_graph.ops.contract.convolution import conv_attrs
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.ops.math.elementwise import add, compare, maximum, multiply, select
from deepx_graph.types import BF16, F16, F32, F64, I8, I32, U8, U32, DType, scalar, type_of_array
from tests.support.laws import LAWFUL, SAMPLED_DTYPES, Sample, one_op, random_array
from tests.support.paths import ROOT

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
REASON = "the kernel does not tell, or reset, how much memory a process has had (/proc/self/status, /proc/self/clear_refs)"

SPARE = 12 << 20
"""Bytes that any call may take beside what is planned: blocks, caches of allocators, the interpreter's own."""


def is_told() -> bool:
    """Whether this system tells."""
    try:
        before = _field("VmHWM")
        CLEAR.write_text("5")
        return before > 0
    except (OSError, LookupError):
        return False


def _field(name: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) << 10


def growth(call: Callable[[], Any]) -> int:
    """The most bytes that were resident during the call, beside those before it."""
    gc.collect()
    CLEAR.write_text("5")
    before = _field("VmRSS")
    result = call()
    after = _field("VmHWM")
    del result
    return after - before


def large(op: Any, seed: int = 0) -> Iterator[Sample]:
    """Operands of some megabytes, and attributes, for an operation that is computed from arrays."""
    rng = np.random.default_rng(seed)
    if op.elementwise:
        yield from _elementwise(op, rng)
    elif op.name in LARGE:
        yield from LARGE[op.name](rng)


N = 2_000_000


def _elementwise(op: Any, rng: Any) -> Iterator[Sample]:
    attrs = next((attrs for _, attrs in op.samples(rng)), {}) if op.samples else {}
    for dtype in SAMPLED_DTYPES:
        arrays = [random_array(rng, dtype, (N,), op.domain) for _ in op.operands]
        try:
            op.infer([type_of_array(a) for a in arrays], *op.bind(attrs))
        except InferError:
            continue
        yield arrays, attrs


def _of(rng: Any, dtype: Any, *shape: int) -> Any:
    return random_array(rng, dtype, shape, (0.5, 1.5))


def _body(dtype: DType, op: Any = add) -> Function:
    return monoid_body(op, dtype)


def _replace(dtype: DType) -> Function:
    t = scalar(dtype)
    return Builder().function("replace", (("old", t), ("new", t)), lambda old, new: [new], public=False)


def _odds(dtype: DType) -> Function:
    b, t = Builder(), scalar(dtype)
    return b.function("odds", (("a", t), ("b", t)), lambda x, y: [b(add, b(add, x, y), b(multiply, x, y))], public=False)


def _greatest(dtype: DType) -> Function:
    def body(x: Node, at: Node, y: Node, other: Node) -> list[Node]:
        b = Builder()
        keep = b(compare, x, y, direction="GE")
        return [b(select, keep, x, y), b(select, keep, at, other)]

    params = [("x", scalar(dtype)), ("at", scalar(I32)), ("y", scalar(dtype)), ("other", scalar(I32))]
    return Builder().function("greatest", params, body, public=False)


def _less(dtype: DType, direction: str = "LT", extra: bool = False) -> Function:
    t = scalar(dtype)
    params = [("a", t), ("b", t), *((("i", scalar(I32)), ("j", scalar(I32))) if extra else ())]
    return Builder().function("less", params, lambda x, y, *_: [Builder()(compare, x, y, direction=direction)], public=False)


def _odd_order(dtype: DType) -> Function:
    """An order by no key: x * y decides too."""
    t, b = scalar(dtype), Builder()
    return b.function("order", (("x", t), ("y", t)), lambda x, y: [b(compare, b(add, x, b(multiply, x, y)), b(
        add, y, b(multiply, x, y)), direction="LT")], public=False)


def _reduce(rng: Any) -> Iterator[Sample]:
    for d in (F32, F64, BF16, I8):
        for axes, shape in (((0,), (1000, 2000)), ((1,), (1000, 2000)), ((0, 1), (1000, 2000)), ((0,), (N,))):
            for op in (add, maximum):
                yield [_of(rng, d, *shape), op_identity(op, d)], {"dimensions": axes, "body": _body(d, op)}
    for d in (F32, I8):
        found = [_of(rng, d, N), np.arange(N, dtype="i4"), np.zeros((), d.np), np.int32(0)]
        yield found, {"dimensions": (0,), "body": _greatest(d)}
        yield [_of(rng, d, 1000, 2000), np.zeros((), d.np)], {"dimensions": (1,), "body": _odds(d)}
        yield [_of(rng, d, 1000, 2000), np.zeros((), d.np)], {"dimensions": (0, 1), "body": _odds(d)}


def op_identity(op: Any, dtype: DType) -> Any:
    return np.asarray(op.identity_for(dtype)).astype(dtype.np)


def _window(rng: Any) -> Iterator[Sample]:
    def attrs(rank: int, **given: Any) -> dict[str, Any]:
        plain = {"window_strides": (1,) * rank, "base_dilations": (1,) * rank, "window_dilations": (1,) * rank,
                 "padding_low": (0,) * rank, "padding_high": (0,) * rank}
        return {**plain, **given}

    for d in (F32, BF16, I8):
        for op in (add, maximum):
            x, init, body = _of(rng, d, 1200, 1200), op_identity(op, d), _body(d, op)
            yield [x, init], attrs(2, window_dimensions=(9, 9), body=body)
            yield [x, init], attrs(2, window_dimensions=(2, 2), window_strides=(2, 2), padding_low=(1, 1), body=body)
            yield [x, init], attrs(2, window_dimensions=(1, 1200), padding_low=(0, 1199), body=body)
            yield [x, init], attrs(2, window_dimensions=(1150, 900), body=body, window_strides=(10, 10))
        yield [_of(rng, d, 1200, 1200), np.zeros((), d.np)], attrs(2, window_dimensions=(3, 3), body=_odds(d))


def _select_and_scatter(rng: Any) -> Iterator[Sample]:
    for d in (F32, I8):
        t = scalar(d)
        ge = Builder().function("ge", (("a", t), ("b", t)), lambda x, y: [Builder()(compare, x, y, direction="GE")], public=False)
        for scatter in (_body(d), _odds(d)):
            yield [_of(rng, d, 1200, 1200), _of(rng, d, 600, 600), np.zeros((), d.np)], {
                "window_dimensions": (2, 2), "window_strides": (2, 2), "padding_low": (0, 0), "padding_high": (0, 0),
                "select": ge, "scatter": scatter}


def _gather(rng: Any) -> Iterator[Sample]:
    names = ("offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims", "start_index_map",
             "index_vector_dim", "slice_sizes")
    for d in (F32, I8):
        x = _of(rng, d, 1000, 16)
        for indices in (rng.integers(0, 1000, (400_000,)).astype("i4"), np.broadcast_to(np.uint8(3), (400_000,))):
            yield [x, indices], dict(zip(names, ((1,), (0,), (), (), (0,), 1, (1, 16)), strict=True))
            yield [x, indices], dict(zip(names, ((0,), (0,), (), (), (0,), 1, (1, 16)), strict=True))
        pairs = rng.integers(0, 16, (400_000, 2))
        yield [x, pairs], dict(zip(names, ((1, 2), (), (), (), (0, 1), 1, (3, 4)), strict=True))
        yield [x, pairs], dict(zip(names, ((), (0, 1), (), (), (0, 1), 1, (1, 1)), strict=True))
    big = _of(rng, F32, 2000, 1000)
    yield [big, rng.integers(0, 9, (2000, 300, 1))], dict(zip(names, ((), (1,), (0,), (0,), (1,), 2, (1, 1)), strict=True))


def _scatter(rng: Any) -> Iterator[Sample]:
    names = ("update_window_dims", "inserted_window_dims", "input_batching_dims", "scatter_indices_batching_dims",
             "scatter_dims_to_operand_dims", "index_vector_dim", "update_computation")
    for d in (F32, I8):
        x, u, i = _of(rng, d, 1000, 8), _of(rng, d, 300_000, 8), rng.integers(0, 1100, (300_000, 1)).astype("i4")
        for body in (_body(d), _replace(d), _body(d, maximum), _odds(d)):
            yield [x, i, u], dict(zip(names, ((1,), (0,), (), (), (0,), 1, body), strict=True))
        yield [x, i, _of(rng, d, 8, 300_000)], dict(zip(names, ((0,), (0,), (), (), (0,), 1, _body(d)), strict=True))
        wide = [np.zeros(10, d.np), np.broadcast_to(np.int32(3), (3_000_000, 1)), np.broadcast_to(np.ones((), d.np), (3_000_000,))]
        yield wide, dict(zip(names, ((), (0,), (), (), (0,), 1, _body(d)), strict=True))
        one = [_of(rng, d, 2000, 2000), np.array([3]), _of(rng, d, 1000, 2000)]
        yield one, dict(zip(names, ((0, 1), (), (), (), (0,), 0, _replace(d)), strict=True))


def _convolution(rng: Any) -> Iterator[Sample]:
    for d in (F32, F16, I8):
        yield [_of(rng, d, 4, 16, 150, 150), _of(rng, d, 16, 16, 5, 5)], conv_attrs(2)
        yield [_of(rng, d, 4, 16, 150, 150), _of(rng, d, 16, 8, 3, 3)], conv_attrs(2, feature_group_count=2, padding_low=(2, 2))
        yield [_of(rng, d, 4, 16, 150, 150), _of(rng, d, 16, 1, 3, 3)], conv_attrs(2, feature_group_count=16)
        yield [_of(rng, d, 400, 512), _of(rng, d, 512, 512)], conv_attrs(0)
    yield [_of(rng, F32, 2, 8, 150, 150), _of(rng, F32, 8, 8, 3, 3)], conv_attrs(2, lhs_dilation=(2, 2), rhs_dilation=(2, 1))


def _dot(rng: Any) -> Iterator[Sample]:
    def attrs(lb: Any, rb: Any, lc: Any, rc: Any) -> dict[str, Any]:
        return {"lhs_batching_dimensions": lb, "rhs_batching_dimensions": rb, "lhs_contracting_dimensions": lc,
                "rhs_contracting_dimensions": rc}

    for d in (F32, BF16, I8, I32):
        yield [_of(rng, d, 1000, 700), _of(rng, d, 700, 1000)], attrs((), (), (1,), (0,))
        yield [_of(rng, d, 1500, 500), _of(rng, d, 1500, 500)], attrs((), (), (0,), (0,))
        yield [_of(rng, d, 20, 30, 5, 400), _of(rng, d, 30, 20, 400, 5)], attrs((0, 1), (1, 0), (3,), (2,))
        yield [_of(rng, d, 200, 30, 40), _of(rng, d, 40, 200, 30)], attrs((), (), (0, 2), (1, 0))
    wide = [np.broadcast_to(np.float32(2), (1, 3_000_000)), np.broadcast_to(np.float32(1), (3_000_000, 1))]
    yield wide, attrs((), (), (1,), (0,))
    complexes = [(_of(rng, F32, *shape) + 1j).astype("c8") for shape in ((700, 20), (20, 900))]
    yield complexes, attrs((), (), (1,), (0,))


def _sort(rng: Any) -> Iterator[Sample]:
    for d in (F32, I8, F16, BF16, I32, F64):
        for direction in ("LT", "GT"):
            yield [_of(rng, d, N)], {"dimension": 0, "is_stable": True, "comparator": _less(d, direction)}
        x = np.where(np.arange(N) % 2, _of(rng, d, N), np.zeros((), d.np))
        yield [x], {"dimension": 0, "is_stable": True, "comparator": _less(d)}
        yield [x.reshape(1000, -1)], {"dimension": 0, "is_stable": True, "comparator": _less(d)}
        yield [x, np.arange(N, dtype="i4")], {"dimension": 0, "is_stable": True, "comparator": _less(d, extra=True)}
    yield [_of(rng, F32, 2000, 100)], {"dimension": 1, "is_stable": True, "comparator": _odd_order(F32)}


def _norm(vectors: int, gradient: bool = False) -> Callable[[Any], Iterator[Sample]]:
    def made(rng: Any) -> Iterator[Sample]:
        for d in (F32, BF16, F64):
            more = [_of(rng, d, 30, 40, 1000)] if gradient else []
            given = [_of(rng, d, 40) for _ in range(vectors)]
            yield [_of(rng, d, 30, 40, 1000), *given, *more], {"epsilon": 1e-3, "feature_index": 1}

    return made


def _linalg(rng: Any, n: int = 400) -> Any:
    m = rng.standard_normal((4, n, n))
    return m @ np.swapaxes(m, -1, -2) + n * np.eye(n)


LARGE: dict[str, Callable[[Any], Any]] = {
    "reduce": _reduce, "reduce_window": _window, "select_and_scatter": _select_and_scatter, "gather": _gather, "scatter": _scatter,
    "convolution": _convolution, "dot_general": _dot, "sort": _sort,
    "bitcast_convert": lambda rng: [((_of(rng, a, N, *([] if a.bits > b.bits else [b.bits // a.bits])),), {"dtype": b})
                                    for a, b in ((F32, U8), (U8, F32), (F32, I32))],
    "get_dimension_size": lambda rng: [((_of(rng, F32, N),), {"dimension": 0})],
    "concatenate": lambda rng: [((_of(rng, d, N), _of(rng, d, N)), {"dimension": 0}) for d in (F32, I8)],
    "pad": lambda rng: [((_of(rng, d, 1000, 1000), np.zeros((), d.np)), {
        "edge_padding_low": (5, -2), "edge_padding_high": (1, 1), "interior_padding": (1, 0)}) for d in (F32, I8)],
    "torch_index_select": lambda rng: [((_of(rng, d, 100, 8), rng.integers(0, 100, 500_000).astype("i4")), {"dim": k})
                                       for d in (F32, I8) for k in (0, 1)],
    "index_add": lambda rng: [((_of(rng, d, 1000, 8), rng.integers(0, 1000, 300_000).astype("i4"), _of(rng, d, 300_000, 8)),
                               {"dim": 0}) for d in (F32, I8)],
    "dynamic_update_slice": lambda rng: [((_of(rng, d, N), _of(rng, d, 1000), np.int32(3)), {}) for d in (F32, I8)],
    "cholesky": lambda rng: [((_linalg(rng).astype(t),), {"lower": low}) for t in ("f4", "f8") for low in (True, False)],
    "triangular_solve": lambda rng: [((_linalg(rng).astype(t), rng.standard_normal((4, 400, 400)).astype(t)), {
        "left_side": left, "lower": True, "unit_diagonal": unit, "transpose_a": "TRANSPOSE"})
        for t in ("f4", "f8") for left in (True, False) for unit in (True, False)],
    "fft": lambda rng: [((_of(rng, F32, 500, 4000).astype(t),), {"fft_type": kind, "fft_length": n}) for t, kind, n in (
        ("c8", "FFT", (500, 4000)), ("c8", "IFFT", (4000,)), ("f4", "RFFT", (500, 4000)), ("f8", "RFFT", (4000,)),
        ("c8", "IRFFT", (500, 7998)), ("c8", "IRFFT", (7998,)))],
    "top_k": lambda rng: [((_of(rng, d, 20, N // 20),), {"k": 100}) for d in (F32, I8, BF16)],
    "batch_norm_training": _norm(2), "batch_norm_inference": _norm(4), "batch_norm_grad": _norm(3, gradient=True),
    "rng_uniform": lambda rng: [((np.float64(0), np.float64(1), np.int64(7)), {"shape": (N,), "dtype": d}) for d in (F32, F64)],
    "rng_normal": lambda rng: [((np.float64(0), np.float64(1), np.int64(7)), {"shape": (N,), "dtype": d}) for d in (F32, F64)],
    "rng_bit_generator": lambda rng: [((np.array([7, 9], np.uint64),), {"rng_algorithm": a, "shape": (N,), "dtype": d})
                                      for a in ("THREE_FRY", "PHILOX") for d in (U32, I8, F64)],
    "map": lambda rng: [((_of(rng, F32, N), _of(rng, F32, N)), {"computation": _odds(F32)})],
    "reverse": lambda rng: [((_of(rng, F32, 1000, 2000),), {"dimensions": (1,)})],
    "reshape": lambda rng: [((_of(rng, F32, 1000, 2000),), {"shape": (2000, 1000)})],
    "transpose": lambda rng: [((_of(rng, F32, 1000, 2000),), {"permutation": (1, 0)})],
}
"""Samples of megabytes for operations that are not elementwise."""


# --- in a process of its own ------------------------------------------------------------------------------------------

SOME = ("divide", "popcnt", "erf", "remainder", "digamma")
"""Elementwise operations that are enough where not all are wanted: those whose formulas make much on their way."""

FEW = ("divide", "reduce", "gather", "sort")
"""Operations of which one sample is enough where time is short."""

SELECTIONS: dict[str, Callable[[Any], slice]] = {
    "few": lambda op: slice(1 if op.name in FEW else 0),
    "some": lambda op: slice(0, 0 if op.elementwise and op.name not in SOME else None, 1 if op.elementwise else 4),
    "whole": lambda op: slice(None),
}
"""Which samples of an operation are tried."""


def grown(module: Module, engine: str, args: Any) -> tuple[int, int]:
    """What compiling and running a program took, once and again; and the least bound under which it would have been compiled."""
    made: list[Any] = []
    if engine == "native":
        # LLVM takes some 50 MB to generate the code of a kernel, whatever the sizes.
        dx.compile(module, engine=engine, optimize=False)

    def call() -> None:
        f = made[0] if made else dx.compile(module, engine=engine, optimize=False)
        made[:] = [f]
        f(*args)

    took = max(growth(call), growth(call))
    return took, made[0].plan.peak_bytes


def measured(engine: str, selection: str) -> Iterator[tuple[str, int, int]]:
    """An operation and its operands in words, what it took, and what was planned."""
    np.matmul(np.ones((300, 300)), np.ones((300, 300)))  # a library of products takes its memory once, and so does a compiler
    grown(Module((one_op(OPS["divide"], [np.ones((4000,), "f4")] * 2, {}),), "law"), engine, [np.ones((4000,), "f4")] * 2)
    for op in LAWFUL:
        tried = SELECTIONS[selection](op)
        for k, (arrays, attrs) in itertools.islice(enumerate(large(op)), tried.start, tried.stop, tried.step):
            args = [np.array(a, order="C") for a in arrays]
            if op.elementwise and k == 0:  # what its formula imports and tabulates, once
                grown(Module((one_op(op, [a[:8] for a in arrays], attrs),), "law"), engine, [a[:8] for a in args])
            took, planned = grown(Module((one_op(op, arrays, attrs),), "law"), engine, args)
            yield f"{op.name}, sample {k}: {', '.join(str(type_of_array(a)) for a in args)}", took, planned


def measured_apart(engine: str, selection: str) -> list[tuple[str, int, int]]:
    """That, by a process whose allocator gives back what is freed."""
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.support.resident", engine, selection]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [tuple(row) for row in json.loads(done.stdout)]


if __name__ == "__main__":
    json.dump(list(measured(*sys.argv[1:])), sys.stdout)
