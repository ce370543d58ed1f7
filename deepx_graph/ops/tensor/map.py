"""`map`: any function of scalars applied to every element. One of elementwise ops alone is applied to whole arrays instead."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from deepx_graph.errors import InferError, an
from deepx_graph.ir import Attr, Builder, Function, Node, Op, Operand
from deepx_graph.ir.constraint import TENSOR, same_shape, some
from deepx_graph.ir.factor_rule import POINTWISE
from deepx_graph.ir.op import Cotangents
from deepx_graph.ir.rebuild import inlined, made_by
from deepx_graph.literal import Array
from deepx_graph.ops.helpers import loops_in
from deepx_graph.ops.interpret import combine
from deepx_graph.ops.math.elementwise import add, compare
from deepx_graph.ops.vjp.accumulate import carries, pullback
from deepx_graph.types import ANY, F32, Dims, TensorType, Type, as_tensor, merge_dims, nbytes, scalar, tensor


def _type(types: Sequence[Type], computation: Function) -> Type:
    inputs = [as_tensor(t, k) for k, t in enumerate(types)]
    if len(computation.params) != len(inputs) or len(computation.results) != 1:
        raise InferError(f"the computation takes {len(computation.params)} and gives {len(computation.results)} values",
                         expected=f"{len(inputs)} and 1")
    dims: Dims | None = None
    for k, (given, param) in enumerate(zip(inputs, computation.params, strict=True)):
        wanted = as_tensor(param.type)
        if wanted.rank not in (0, None) or given.dtype not in (wanted.dtype, ANY):
            raise InferError(f"parameter {k} of the computation is {an(wanted)}", operand=k, expected=str(scalar(given.dtype)))
        dims = merge_dims(dims, given.dims)
    result: TensorType = as_tensor(computation.results[0].type)
    return tensor(result.dtype, dims)


def _eval(xs: Sequence[Array], computation: Function) -> Any:
    (result,) = combine(computation, xs, ())
    return result.astype(as_tensor(computation.results[0].type).dtype.np)


def _sample(rng: Any) -> Sequence[tuple[Sequence[Any], dict[str, Any]]]:
    """The larger of two, by a branch: no elementwise op."""
    def larger(x: Node, y: Node) -> Sequence[Node]:
        b = Builder()
        return b.branch(b(compare, x, y, direction="GT"), [b(add, x, b.like(0, x))], [y])

    body = Builder().function("larger", [("x", scalar(F32)), ("y", scalar(F32))], larger, public=False)
    return [([rng.random((2, 3)).astype("f4"), rng.random((2, 3)).astype("f4")], {"computation": body})]


@lru_cache(maxsize=256)
def _derivative(computation: Function, k: int) -> Function | None:
    """The cotangent of operand `k`, as a function of the operands and the result's cotangent; None where it is zero."""
    b = Builder()
    types = (*computation.type.params, computation.type.results[0])
    params = tuple(b.param(n, t, f"x{n}") for n, t in enumerate(types))
    (found,) = pullback(b, inlined(computation, params[:-1], made_by(b)), params[-1:], params[k : k + 1])
    return None if found is None else Function(f"{computation.name}_by_{k}", params, (found,), public=False)


def _vjp(b: Builder, node: Node, g: Node) -> Cotangents:
    """By each operand a map of the computation's own gradient. Raises VerifyError where the computation has branches or loops."""
    rules = [_derivative(node.attr("computation"), k) if carries(x.type) else None for k, x in enumerate(node.inputs)]
    return [None if rule is None else b(map_, *node.inputs, g, computation=rule) for rule in rules]


map_: Op = Op(
    "map", "A function of scalars applied to every element.", operands=(Operand("inputs", variadic=True, type=TENSOR),),
    attrs=(Attr("computation", "function"),), constraints=(some("inputs"), same_shape("inputs")), sharding=POINTWISE,
    algebraic=True, infer=_type, eval=_eval,
    element=loops_in("layout", "map_element"),
    scratch=lambda types, result, computation: 2 * nbytes(result),
    vjp=_vjp,
    samples=_sample, source="StableHLO map",
)  # fmt: skip
