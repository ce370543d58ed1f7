"""Loop programs: buffers and loop nests over scalars, between a function of the graph and the code that runs it.

An operation says in its declaration what one element of its result is (`Op.element`), or how its results are filled
(`Op.loops`). `lower` composes these into a program, passes improve it, `interpret` is its meaning, and back ends write it as code.
The form is that of Halide's and TVM's loop nests and of MLIR's `linalg` on `scf`: structured statements, subscripts affine in the
axes.
"""

from __future__ import annotations

from deepx_graph.loops.builder import LoopBuilder
from deepx_graph.loops.elements import call
from deepx_graph.loops.fold import accumulate, fold
from deepx_graph.loops.program import Buffer, LoopProgram
from deepx_graph.loops.scalar import Affine, NotExpressible, Scalar, ScalarConst, ScalarVar
from deepx_graph.loops.tensor import LazyTensor

__all__ = [
           "Affine",
           "Buffer",
           "LazyTensor",
           "LoopBuilder",
           "LoopProgram",
           "NotExpressible",
           "Scalar",
           "ScalarConst",
           "ScalarVar",
           "accumulate",
           "call",
           "fold",
]
