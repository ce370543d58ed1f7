"""`fusion`: a group of operations that one kernel runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deepx_graph.errors import InferError, an
from deepx_graph.ir import Attr, Builder, Function, Node, Op, Operand, Result, examples
from deepx_graph.ir.constraint import VALUE
from deepx_graph.ir.evaluation import in_blocks, scratch_of
from deepx_graph.ir.node import Origin
from deepx_graph.ir.rebuild import inlined, made_by, rebuild
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.ops.contract.reduce import broadcast_in_dim
from deepx_graph.ops.interpret import evaluate
from deepx_graph.ops.vjp.accumulate import through
from deepx_graph.types import TensorType, TupleType, Type, as_tensor, compatible, nbytes


def _fusion_type(types: Sequence[Type], body: Function) -> Type:
    if len(types) != len(body.params):
        raise InferError(f"{len(types)} operands for {len(body.params)} parameters of the body")
    for k, (given, param) in enumerate(zip(types, body.params, strict=True)):
        if not compatible(given, param.type):
            raise InferError(f"operand {k} is {an(given)}", operand=k, expected=str(param.type))
    return _result_type(body)


def _result_type(body: Function) -> Type:
    results = body.type.results
    return results[0] if len(results) == 1 else TupleType(results)


def _fusion_eval(xs: Sequence[Any], body: Function) -> Any:
    dtypes = [as_tensor(r.type).dtype.np for r in body.results]
    results = in_blocks(lambda parts: evaluate(body, parts), xs, dtypes) if is_pointwise(body) else evaluate(body, xs)
    return results[0] if len(results) == 1 else tuple(results)


def _fusion_scratch(types: Sequence[Type], result: Type, body: Function) -> int:
    """All values of the body that are no views, and the most that one of them takes; a body of elementwise ops goes by blocks."""
    if is_pointwise(body):
        return 0
    made = [n for n in body.nodes if n.inputs and not n.op.view and n not in body.results]
    return sum(nbytes(n.type) for n in made) + max(map(scratch_of, body.nodes), default=0)


def fused_body(node: Node) -> Function | None:
    """The body of a fusion; None for other operations."""
    body: Function | None = node.attr("body") if node.op is fusion else None
    return body


def fusion_of(body: Function, inputs: Sequence[Node], origin: Origin) -> Node:
    """A fusion of a body over inputs of the types of its parameters."""
    return Node(fusion, tuple(inputs), (body,), _result_type(body), origin)


def part_of(body: Function, numbers: Sequence[int]) -> tuple[Function, list[int]]:
    """The body for some of its results, and the numbers of the parameters that it takes for these."""
    results = tuple(body.results[k] for k in numbers)
    nodes = Function("part", (), results).nodes
    used = [k for k, p in enumerate(body.params) if p in nodes]
    params = {p: Node(PARAM, (), (k, p.type), p.type, p.origin) for k, p in enumerate(body.params[k] for k in used)}
    made = rebuild(nodes, dict(params))
    return Function("fusion", tuple(params.values()), tuple(made[r] for r in results), public=False), used


def fused(b: Builder, given: Mapping[Node, Node], results: Sequence[Node]) -> list[Node]:
    """Values made of parameters, numbered in their order, which stand for given ones: these, constants, and the results of one
    fusion for all that has to be computed."""
    made = [r for r in dict.fromkeys(results) if r not in given and r.op is not CONSTANT]
    items: tuple[Node, ...] = ()
    if made:
        node = b(fusion, *given.values(), body=Function("fusion", tuple(given), tuple(made), public=False))
        items = (node,) if len(made) == 1 else b.items(node)
    found = dict(zip(made, items, strict=True))
    return [found.get(r) or given.get(r, r) for r in results]


def is_pointwise(body: Function) -> bool:
    """Whether element i of the one result depends on element i of the operands alone."""
    return len(body.results) == 1 and all(n.op.elementwise or not n.inputs for n in body.nodes)


def mapped(b: Builder, body: Function, inputs: Sequence[Node], type: TensorType) -> Node | None:
    """A body on scalars applied to whole tensors, with a result of `type`; None when one of its ops is not elementwise."""
    results = mapped_all(b, body, inputs, [type])
    return results[0] if results else None


def mapped_all(b: Builder, body: Function, inputs: Sequence[Node], types: Sequence[TensorType]) -> list[Node] | None:
    """As `mapped`, for a body with a result of each of the types."""
    if len(body.params) != len(inputs) or any(n.inputs and not n.op.elementwise for n in body.nodes):
        return None

    def widened(node: Node, operands: tuple[Node, ...]) -> Node:
        return b(node.op, *operands, **node.named_attrs)

    results = inlined(body, inputs, widened)
    return [r if r.type == t else b(broadcast_in_dim, r, shape=t.dims, broadcast_dimensions=())
            for r, t in zip(results, types, strict=True)]  # fmt: skip


fusion: Op = Op(
    "fusion", "The results of the body, computed by one kernel.", operands=(Operand("inputs", variadic=True),),
    attrs=(Attr("body", "function"),), infer=_fusion_type, eval=_fusion_eval, scratch=_fusion_scratch,
    vjp=lambda b, node, g: through(b, node, inlined(node.attr("body"), node.inputs, made_by(b)), g), foldable=False,
    example=examples.FUSED, results=(Result("results", variadic=True, type=VALUE),), source="XLA fusion",
)  # fmt: skip


def kernel_body(node: Node) -> Function | None:
    """The function that a kernel runs; None for a node that is none."""
    body: Function | None = node.attr("body") if node.op is fusion else None
    return body
