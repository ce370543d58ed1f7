"""Operations that touch the outside world. Each takes the state first and gives it back, so their order is an edge.

At run time the state is a `Host`, which does the reading, writing and printing within its bounds.
"""

from __future__ import annotations

from deepx_graph.ir import Attr, Node, Op, Operand, Result, examples
from deepx_graph.ir.constraint import STATE_VALUE, TENSOR
from deepx_graph.ops.host.host import acting
from deepx_graph.types import STATE, TupleType, as_tensor

_STATE = Operand("state", "what happened before", type=STATE_VALUE)
_AFTER = Result("after", "the state after it", type=STATE_VALUE)


print_: Op = Op(
    "print", "Write a tensor to standard output.", operands=(_STATE, Operand("operand", type=TENSOR)), results=(_AFTER,),
    attrs=(Attr("format", "str", "", "a printf format for one element; empty: %d or %.4f"),),
    infer=lambda types, *_: STATE, eval=acting(lambda world, x, format: world.print(x, format)),
    vjp=lambda b, node, g: (g, None), foldable=False, example=examples.PRINT, source="deepx print",
)  # fmt: skip
save: Op = Op(
    "save", "Write a tensor to a file under the data root.", operands=(_STATE, Operand("operand", type=TENSOR)), results=(_AFTER,),
    attrs=(Attr("path", "str"),), infer=lambda types, *_: STATE, eval=acting(lambda world, x, path: world.save(x, path)),
    vjp=lambda b, node, g: (g, None), foldable=False,
    example=examples.SAVE, source="deepx save",
)  # fmt: skip
load: Op = Op(
    "load", "A tensor from a file under the data root, and the state after reading it.", operands=(_STATE,),
    results=(Result(), _AFTER),
    attrs=(Attr("path", "str"), Attr("type", "type", summary="what the file holds")),
    infer=lambda types, path, type: TupleType((as_tensor(type), STATE)),
    eval=lambda xs, path, type: (xs[0].load(path, type), xs[0]),
    vjp=lambda b, node, g: (g[1],), foldable=False, example=examples.LOAD, source="deepx load",
)  # fmt: skip


def loaded_path(node: Node) -> str | None:
    """The file that a node reads; None for other nodes."""
    path: str | None = node.attr("path") if node.op is load else None
    return path
