"""Kernels for engines of tests: evals that put their results where they are told to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph.ir import Node
from deepx_graph.runtime.engines.base import KernelFn, by_eval


def filling(node: Node) -> KernelFn:
    """The eval of a node, its results in `out` where that is given."""
    evaluate = by_eval(node)

    def run(values: Sequence[Any], out: Sequence[Any] | None) -> Any:
        found = evaluate(values, None)
        if out is None:
            return found
        for array, made in zip(out, found if isinstance(found, tuple) else (found,), strict=True):
            np.copyto(array, made)
        return tuple(out) if isinstance(found, tuple) else out[0]

    return run
