"""`dx.xp`: the functions of the Python array API standard 2024.12, which evaluate and which trace.

    x = dx.xp.asarray([1.0, 2.0])
    print(dx.xp.sum(x * x))            # Array(5., f64)
    m = dx.trace(f, x)                 # the program that f is, for arrays of this shape and dtype

Source: https://data-apis.org/array-api/2024.12/.
"""

import math as _math

from deepx_graph.array_api import fft, linalg, numpy_functions
from deepx_graph.array_api.array import Array
from deepx_graph.array_api.creation import (
    arange,
    asarray,
    astype,
    can_cast,
    empty,
    empty_like,
    eye,
    finfo,
    from_dlpack,
    full,
    full_like,
    iinfo,
    isdtype,
    linspace,
    meshgrid,
    ones,
    ones_like,
    result_type,
    tril,
    triu,
    zeros,
    zeros_like,
)
from deepx_graph.array_api.dtypes import (
    bfloat16,
    bool_,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from deepx_graph.array_api.elementwise import (
    abs,
    acos,
    acosh,
    add,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    ceil,
    clip,
    conj,
    copysign,
    cos,
    cosh,
    divide,
    equal,
    exp,
    expm1,
    floor,
    floor_divide,
    greater,
    greater_equal,
    hypot,
    imag,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    negative,
    nextafter,
    not_equal,
    positive,
    pow,
    real,
    reciprocal,
    remainder,
    round,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    trunc,
    where,
)
from deepx_graph.array_api.indexing import take, take_along_axis
from deepx_graph.array_api.info import __array_namespace_info__
from deepx_graph.array_api.linalg import matmul, tensordot, vecdot
from deepx_graph.array_api.manipulation import (
    broadcast_arrays,
    broadcast_to,
    concat,
    expand_dims,
    flip,
    matrix_transpose,
    moveaxis,
    permute_dims,
    repeat,
    reshape,
    roll,
    squeeze,
    stack,
    tile,
    unstack,
)
from deepx_graph.array_api.ordering import (
    argsort,
    nonzero,
    searchsorted,
    sort,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)
from deepx_graph.array_api.reductions import (
    all,
    any,
    argmax,
    argmin,
    count_nonzero,
    cumulative_prod,
    cumulative_sum,
    diff,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)

__array_api_version__ = "2024.12"

bool = bool_
e, inf, nan, pi, newaxis = _math.e, _math.inf, _math.nan, _math.pi, None

__all__ = [name for name in dir() if not name.startswith("_") and name not in (
    "array", "creation", "dtypes", "elementwise", "indexing", "info", "manipulation", "numpy_functions", "ordering", "reductions")]
