"""Custom calls to LAPACK that say what one of our operations says: cholesky and triangular solves, as JAX lowers them for CPU."""

from __future__ import annotations

from collections.abc import Sequence

from deepx_graph import ops
from deepx_graph.ir import Builder, Node
from deepx_graph.ops.host.lapack import options, routine_of
from deepx_graph.types import I32, TensorType, as_tensor

_TRANSPOSES = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}


def as_operations(b: Builder, target: str, config: str, inputs: Sequence[Node]) -> list[Node] | None:
    """The results of the call; None for another target. A factor that there is none of is NaN, and `info` is 0 nevertheless."""
    routine, given = routine_of(target), options(config)
    if routine == "potrf" and len(inputs) == 1:
        factor = b(ops.cholesky, inputs[0], lower=given.get("uplo") == "L")
        return [factor, b.splat(0, TensorType(I32, as_tensor(inputs[0].type).shape[:-2]))]
    if routine == "trsm" and len(inputs) == 2 and given.get("trans_x") in _TRANSPOSES:
        return [b(ops.triangular_solve, *inputs, left_side=given.get("side") == "L", lower=given.get("uplo") == "L",
                  unit_diagonal=given.get("diag") == "U", transpose_a=_TRANSPOSES[given["trans_x"]])]
    return None
