"""Making and taking apart complex numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deepx_graph.ir import Op
from deepx_graph.ir.constraint import dtypes
from deepx_graph.literal import Array
from deepx_graph.ops.helpers import joint_type, pair, unary
from deepx_graph.ops.math.elementwise import negate
from deepx_graph.types import ANY, C64, C128, F32, F64, TensorType, Type, as_tensor

_PART = {C64: F32, C128: F64}
_WHOLE = {F32: C64, F64: C128}
_PARTS = dtypes(*_WHOLE)


def _complex_type(types: Sequence[Type]) -> Type:
    part = joint_type(types)
    return part.with_dtype(_WHOLE.get(part.dtype, ANY))


def _part_type(types: Sequence[Type]) -> Type:
    whole = as_tensor(types[0], 0)
    return whole.with_dtype(_PART.get(whole.dtype, whole.dtype))


def _complex(xs: Sequence[Array]) -> Array:
    real, imag = np.broadcast_arrays(*xs)
    out = np.empty(real.shape, np.complex64 if real.dtype.itemsize == 4 else np.complex128)
    out.real, out.imag = real, imag
    return out


def is_complex(type: Type) -> bool:
    """A tensor of complex numbers."""
    return isinstance(type, TensorType) and type.dtype.kind == "complex"


complex_: Op = Op(
    "complex", "The complex number of a real and an imaginary part.", operands=pair(_PARTS),
    infer=_complex_type, eval=_complex, elementwise=True, source="StableHLO complex",
    vjp=lambda b, node, g: (b(real, g), b(negate, b(imag, g))),
)  # fmt: skip
real: Op = unary("real", "The real part.", lambda xs: xs[0].real.copy(),
                 infer=_part_type, vjp=lambda b, x, y, g: b(complex_, g, b.like(0, g)) if is_complex(x.type) else g)
imag: Op = unary(
    "imag", "The imaginary part; 0 for a real number.",
    lambda xs: xs[0].imag.copy(),
    infer=_part_type,
    vjp=lambda b, x, y, g: b(complex_, b.like(0, g), b(negate, g)) if is_complex(x.type) else b.like(0, g),
)  # fmt: skip
