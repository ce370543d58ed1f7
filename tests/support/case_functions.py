"""Functions by cases, each with a formula that is undefined outside its case."""

from __future__ import annotations

import numpy as np

from deepx_graph.errors import InferError
from deepx_graph.ir import Op
from deepx_graph.ops import (
    OPS,
)
from deepx_graph.types import BOOL, F64, tensor

AWKWARD = np.array([0.0, -0.0, -1.0, 1.0, -2.5, 1e308, -1e308, np.inf, -np.inf, np.nan])
"""Where one function or another has no finite slope."""

V, P = tensor(F64, AWKWARD.shape), tensor(BOOL, AWKWARD.shape)


def smooth_of(op: Op) -> bool:
    """An elementwise function of real numbers to real numbers with a gradient."""
    count = len(op.operands)
    if not op.elementwise or op.vjp is None or op.no_gradient_by or op.attrs or count > 2:
        return False
    try:
        return op.infer([V] * count) == V
    except InferError:
        return False

FUNCTIONS = [op for op in OPS.values() if smooth_of(op)]
