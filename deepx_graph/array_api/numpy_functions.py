"""Functions of numpy applied to our arrays: each is the function of the standard that has its name, or another by a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deepx_graph.array_api import creation, elementwise, linalg, manipulation, ordering, reductions
from deepx_graph.array_api.array import Array, as_array
from deepx_graph.array_api.indexing import take, take_along_axis
from deepx_graph.errors import Diagnostic, UsageError

MODULES = (elementwise, manipulation, reductions, creation, ordering, linalg)

RENAMED = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctan2": "atan2", "arctanh": "atanh", "left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift",
    "invert": "bitwise_invert", "power": "pow", "float_power": "pow", "true_divide": "divide", "mod": "remainder", "rint": "round",
    "conjugate": "conj", "fmax": "maximum", "fmin": "minimum", "concatenate": "concat", "transpose": "permute_dims",
    "amax": "max", "amin": "min", "cumsum": "cumulative_sum", "cumprod": "cumulative_prod", "expand_dims": "expand_dims",
    "norm": "vector_norm", "dot": "matmul", "around": "round", "swapaxes": "", "ravel": "",
}  # fmt: skip
"""Names of numpy that the standard has another name for."""

_IGNORED = {"out": None, "where": True, "casting": "same_kind", "order": "K", "subok": True, "dtype": None, "like": None}


def _transposed(x: Any, axes: Sequence[int] | None = None) -> Array:
    x = as_array(x)
    return manipulation.permute_dims(x, tuple(range(x.ndim))[::-1] if axes is None else axes)


def _swapped(x: Any, axis1: int, axis2: int) -> Array:
    x = as_array(x)
    order = list(range(x.ndim))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return manipulation.permute_dims(x, order)


def _flat(x: Any) -> Array:
    return manipulation.reshape(x, (-1,))


def _summed(x: Any, axis: Any = None, ddof: float = 0, **options: Any) -> dict[str, Any]:
    return {"axis": axis, "correction": ddof, **options}


OWN: Mapping[str, Any] = {
    "transpose": _transposed, "swapaxes": _swapped, "ravel": _flat, "take": take, "take_along_axis": take_along_axis,
    "std": lambda x, *args, **kw: reductions.std(x, **_summed(x, *args, **kw)),
    "var": lambda x, *args, **kw: reductions.var(x, **_summed(x, *args, **kw)),
    "squeeze": lambda x, axis=None: manipulation.squeeze(
        x, tuple(k for k, d in enumerate(as_array(x).shape) if d == 1) if axis is None else axis),
    "dot": lambda a, b: linalg.matmul(a, b) if as_array(a).ndim and as_array(b).ndim else elementwise.multiply(a, b),
}  # fmt: skip
"""Functions whose arguments are others than in the standard."""


def _find(name: str) -> Any:
    if name in OWN:
        return OWN[name]
    wanted = RENAMED.get(name, name)
    found = next((getattr(m, wanted) for m in MODULES if hasattr(m, wanted)), None)
    if found is None or wanted.startswith("_"):
        raise UsageError(Diagnostic(f"numpy.{name} of an array of this library is not known", expected="a function that dx.xp has"))
    return found


def call_ufunc(ufunc: Any, method: str, inputs: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """A universal function of numpy on our arrays; `reduce` of sums, products and extremes too. Raises UsageError for others."""
    reductions_of = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}
    if method == "reduce" and ufunc.__name__ in reductions_of:
        return call_function(getattr(reductions, reductions_of[ufunc.__name__]), inputs, {"axis": 0, **options})
    if method != "__call__":
        raise UsageError(f"numpy.{ufunc.__name__}.{method} of an array of this library is not known")
    return _find(ufunc.__name__)(*inputs, **_used(ufunc.__name__, options))


def call_function(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A function of numpy on our arrays; an axis may be given by position. Raises UsageError for one that is not known."""
    name = function.__name__
    found, options = _find(name), _used(name, kwargs)
    by_position = {"sum", "prod", "mean", "max", "min", "amax", "amin", "all", "any", "argmax", "argmin", "concatenate", "stack",
                   "cumsum", "cumprod", "sort", "argsort", "flip", "roll", "repeat", "norm", "count_nonzero"}  # fmt: skip
    least = 2 if name in ("roll", "repeat") else 1
    if name in by_position and len(args) > least:
        args, options = args[:least], {"axis": args[least], **options}
    return found(*args, **options)


def _used(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options without those that have their usual value. Raises UsageError for `out` and masks."""
    kept = {n: v for n, v in options.items() if n not in _IGNORED or (v is not _IGNORED[n] and n not in ("casting", "order"))}
    for n in ("out", "where", "like"):
        if n in kept:
            raise UsageError(f"numpy.{name} of an array of this library has no option '{n}'")
    return kept


setattr(Array, "__array_ufunc__", lambda self, ufunc, method, *inputs, **options: call_ufunc(ufunc, method, inputs, options))  # noqa: B010
setattr(Array, "__array_function__", lambda self, function, types, args, kwargs: call_function(function, args, kwargs))  # noqa: B010
