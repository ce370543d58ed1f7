"""The functions of the array API that take arrays, by name, those of its extensions too."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import deepx_graph as dx

OF_NO_ARRAYS = {"arange", "empty", "eye", "full", "linspace", "ones", "zeros", "asarray", "from_dlpack", "can_cast", "finfo",
                "iinfo", "isdtype", "result_type", "fftfreq", "rfftfreq", "empty_like", "full_like",
                "astype", "broadcast_to", "reshape",
                "permute_dims", "moveaxis", "tile", "roll", "broadcast_shapes"}
"""What makes arrays, asks about dtypes, or is given a shape, an order or a dtype."""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"{prefix}{name}": value
    for prefix, space in (("", dx.xp), ("linalg.", dx.xp.linalg), ("fft.", dx.xp.fft))
    for name, value in sorted(vars(space).items())
    if inspect.isfunction(value) and not name.startswith("_") and name not in OF_NO_ARRAYS
    and (not prefix or value.__module__ == space.__name__)
}  # fmt: skip
