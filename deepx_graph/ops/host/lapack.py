"""What the custom calls of JAX on CPU to LAPACK give: factorisations, decompositions and solves of matrices, by numpy and scipy.

Targets are `lapack_<s|d|c|z><routine>_ffi`; leading axes are batches. Options are characters, given as their code in the
configuration. The results are LAPACK's: of a routine that fails, `info` says so and the rest is NaN. cholesky (`potrf`) and
triangular solves (`trsm`) are not here: the readers make the operations of those names of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import RunError
from deepx_graph.literal import Array
from deepx_graph.types import TensorType, Type

Options = dict[str, str]
Routine = Callable[..., Sequence[Any]]
"""`routine(matrix, ..., options, types)`: the results for one matrix."""

_TARGET = re.compile(r"lapack_[sdcz](\w+)_ffi")


def routine_of(target: str) -> str:
    """`getrf` of `lapack_sgetrf_ffi`; nothing for another target."""
    match = _TARGET.fullmatch(target)
    return match[1] if match else ""


def options(config: str) -> Options:
    """`{side = 76 : ui8}` as {"side": "L"}."""
    return {name: chr(int(code)) for name, code in re.findall(r"\b(\w+)\s*=\s*(\d{1,3})\b", config)}


def _lapack(name: str, *matrices: Array) -> Callable[..., Any]:
    from scipy.linalg import get_lapack_funcs

    return get_lapack_funcs(name, matrices)  # type: ignore[no-any-return]


def _getrf(a: Array, given: Options, types: Sequence[Any]) -> Sequence[Any]:
    lu, pivots, info = _lapack("getrf", a)(a)
    return lu, pivots + 1, info


def _geqrf(a: Array, given: Options, types: Sequence[Any]) -> Sequence[Any]:
    qr, tau, _, _ = _lapack("geqrf", a)(a)
    return qr, tau


def _orgqr(a: Array, tau: Array, given: Options, types: Sequence[Any]) -> Sequence[Any]:
    q, _, _ = _lapack("ungqr" if a.dtype.kind == "c" else "orgqr", a)(a, tau)
    return (q,)


def _gesdd(a: Array, given: Options, types: Sequence[Any]) -> Sequence[Any]:
    if given.get("mode") == "N":
        u, vt = (np.zeros(t.shape[-2:], a.dtype) for t in types[2:4])
        return a, np.linalg.svd(a, compute_uv=False), u, vt, 0
    u, s, vt = np.linalg.svd(a, full_matrices=given.get("mode") == "A")
    return a, s, u, vt, 0


def _syevd(a: Array, given: Options, types: Sequence[Any]) -> Sequence[Any]:
    values, vectors = np.linalg.eigh(a, "L" if given.get("uplo") == "L" else "U")
    return vectors if given.get("mode") == "V" else a, values, 0


def _geev(a: Array, given: Options, types: Sequence[Any]) -> Sequence[Any]:
    from scipy.linalg import eig

    values, left, right = eig(a, left=True, right=True)
    parts = (values,) if a.dtype.kind == "c" else (values.real, values.imag)
    return *parts, left, right, 0


def _gehrd(a: Array, given: Options, types: Sequence[Any]) -> Sequence[Any]:
    low, high = (ord(given[name]) - 1 if name in given else default for name, default in (("low", 0), ("high", len(a) - 1)))
    return _lapack("gehrd", a)(a, lo=low, hi=high)  # type: ignore[no-any-return]


def _gees(a: Array, given: Options, types: Sequence[Any]) -> Sequence[Any]:
    """Without an order of the eigenvalues."""
    triangle, count, *values, vectors, _, info = _lapack("gees", a)(lambda *_: False, a, compute_v=given.get("mode") == "V")
    vectors = vectors if given.get("mode") == "V" else np.zeros_like(a)
    return triangle, vectors, *values, count, info


def _sytrd(a: Array, given: Options, types: Sequence[Any]) -> Sequence[Any]:
    return _lapack("hetrd" if a.dtype.kind == "c" else "sytrd", a)(a, lower=given.get("uplo") == "L")  # type: ignore[no-any-return]


def _gtsv(lower: Array, diagonal: Array, upper: Array, b: Array, given: Options, types: Sequence[Any]) -> Sequence[Any]:
    """The first of `lower` and the last of `upper` stand outside the matrix where they are as long as the diagonal."""
    more = len(lower) - len(diagonal) + 1
    _, d, _, x, info = _lapack("gtsv", diagonal, b)(lower[more:], diagonal, upper[: len(upper) - more], b)
    return lower, d, upper, x, info


_ROUTINES: dict[str, tuple[Routine, Sequence[int]]] = {
    "getrf": (_getrf, (2,)), "geqrf": (_geqrf, (2,)), "orgqr": (_orgqr, (2, 1)), "ungqr": (_orgqr, (2, 1)),
    "gesdd": (_gesdd, (2,)), "syevd": (_syevd, (2,)), "heevd": (_syevd, (2,)), "geev": (_geev, (2,)),
    "gtsv": (_gtsv, (1, 1, 1, 2)), "gehrd": (_gehrd, (2,)), "gees": (_gees, (2,)), "sytrd": (_sytrd, (2,)), "hetrd": (_sytrd, (2,)),
}  # fmt: skip
"""By routine: what it computes, and the ranks of its operands without batches."""


def known(target: str) -> bool:
    """Whether a target is one of LAPACK's routines that run here."""
    return routine_of(target) in _ROUTINES


def run(target: str, arrays: Sequence[Array], config: str, types: Sequence[Type]) -> Sequence[Array]:
    """The results of a known target, of the types that the program states.

    Raises RunError where operands or stated results are not such as the routine has.
    """
    routine, ranks = _ROUTINES[routine_of(target)]
    if len(arrays) != len(ranks) or any(a.ndim < rank for a, rank in zip(arrays, ranks, strict=True)):
        raise RunError(f"'{target}' takes operands of {', '.join(map(str, ranks))} axes, and those of batches before them")
    batch = arrays[0].shape[: arrays[0].ndim - ranks[0]]
    if any(a.shape[: a.ndim - rank] != batch for a, rank in zip(arrays, ranks, strict=True)):
        raise RunError(f"the operands of '{target}' are of different batches")
    given, wanted = options(config), [t for t in types if isinstance(t, TensorType)]
    found = [np.empty(t.shape, t.dtype.np) for t in wanted]
    for at in np.ndindex(batch):
        parts = list(_one(routine, [a[at] for a in arrays], given, wanted))
        stated = [w.shape[len(batch) :] for w in found]
        if len(parts) != len(stated) or any(np.ndim(p) and np.shape(p) != s for p, s in zip(parts, stated, strict=True)):
            raise RunError(f"the results of '{target}' are not of the shapes that the program states")
        for whole, part in zip(found, parts, strict=True):
            whole[at] = part
    return found


def _one(routine: Routine, matrices: Sequence[Array], given: Options, types: Sequence[TensorType]) -> Iterable[Any]:
    """The results for one matrix; NaN and an `info` of 1 where the routine finds none."""
    try:
        return routine(*matrices, given, types)
    except np.linalg.LinAlgError:
        return [np.nan if t.dtype.is_float or t.dtype.kind == "complex" else 1 for t in types]
