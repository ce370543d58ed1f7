"""Functions of as many parameters as there are arrays for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deepx_graph.ir import Builder, Function, Node
from deepx_graph.types import type_of_array

Array = np.ndarray[Any, Any]


def function_of(make: Callable[..., Node | Sequence[Node]], *arrays: Array) -> Function:
    b = Builder()
    params = [b.param(k, type_of_array(a)) for k, a in enumerate(arrays)]
    made = make(b, *params)
    return Function("f", tuple(params), (made,) if isinstance(made, Node) else tuple(made))
