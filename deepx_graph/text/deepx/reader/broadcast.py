"""How the operands of one instruction are brought together: scalars in the dtype of the tensors, tensors of one shape.

A number becomes a rank-0 constant, converted straight from its text. Tensors must have one shape; only with
`options.broadcast` are they stretched, each by an explicit broadcast. What an operand of unknown type must be is learned here
from those beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deepx_graph.errors import InferError, an
from deepx_graph.ir import Node
from deepx_graph.ops import broadcast_in_dim, convert
from deepx_graph.text.deepx.reader.instr import Arg, cast
from deepx_graph.text.deepx.reader.line import Line, Scalar
from deepx_graph.types import ANY, Dims, DType, TensorType, merge_dims, scalar, tensor


def type_of(node: Node) -> TensorType:
    """The type of a tensor-typed node."""
    assert isinstance(node.type, TensorType)
    return node.type


def _joint_shape(a: Dims, b: Dims) -> Dims | None:
    """The shape that both broadcast to by numpy's rule; None when they do not."""
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    padded = (1,) * (len(longer) - len(shorter)) + shorter
    pairs = list(zip(longer, padded, strict=True))
    if any(x != y and 1 not in (x, y) for x, y in pairs):
        return None
    return tuple(y if x == 1 else x for x, y in pairs)


def number(line: Line, s: Scalar, dtype: DType) -> Node:
    """A scalar operand as a rank-0 node of that dtype."""
    if s.node is not None:
        assert isinstance(s.node.type, TensorType)
        return s.node if s.node.type.dtype is dtype else line.b(convert, s.node, dtype=dtype)
    try:
        value = cast(s.value, dtype)
    except InferError as e:
        line.fail(e.message, s.arg, expected=e.expected)
    if dtype.np is None:
        line.fail("the element type beside this number is not known", s.arg,
                  hint="write the tensor with its type, as in tensor<float32>:x or op@float32")
    with np.errstate(over="ignore"):
        return line.b.splat(value, scalar(dtype))


def splat(line: Line, s: Scalar, type: TensorType) -> Node:
    """A scalar operand, which is a number, as every element of a tensor; costs no memory."""
    with np.errstate(over="ignore"):
        return line.b.splat(cast(s.value, type.dtype), type)


def of_rank(line: Line, k: int, node: Node, rank: int) -> Node:
    """Operand k with its dims named by symbols where not even its rank was known."""
    if type_of(node).dims is not None:
        return node
    name = line.inputs[k].text
    return _refined(line, line.inputs[k], node, type_of(node).with_dims(f"?{name}.{axis}" for axis in range(rank)))


def numbers(line: Line, operands: Sequence[Node | Scalar], args: Sequence[Arg] = (), *, to_target: bool = True) -> list[Node]:
    """Operands of an elementwise op: scalars in the dtype of the tensors, tensors of one dtype and shape.

    `args` are the operands as written where they are not those of the line. With `to_target` the result has the dtype of the
    target, which then tells that of unknown operands.
    """
    args = args or line.inputs
    tensors = [o.type for o in operands if isinstance(o, Node)]
    dtype = next((t.dtype for t in tensors if isinstance(t, TensorType) and t.dtype.np is not None), None)
    if not tensors:
        line.fail("no operand is a tensor", args[0] if args else None, expected=line.rule.signature)
    if dtype is None:
        dtype = line.target.dtype if line.target is not None and to_target else ANY
    nodes = [o if isinstance(o, Node) else number(line, o, dtype) for o in operands]
    return nodes if len(tensors) == 1 and line.target is None else _agreeing(line, nodes, operands, args, dtype)


def _agreeing(line: Line, nodes: list[Node], operands: Sequence[Node | Scalar], args: Sequence[Arg],
              dtype: DType) -> list[Node]:
    tensors = [k for k, o in enumerate(operands) if isinstance(o, Node)]
    types = {k: type_of(nodes[k]) for k in tensors}
    first, other = types[tensors[0]], args[tensors[0]].text
    dims: Dims | None = None
    for k in tensors:
        if types[k].dtype is not first.dtype and types[k].dtype.np is not None and first.dtype.np is not None:
            line.fail(f"element types differ: '{args[k].text}' is {an(types[k])} and '{other}' {an(first)}",
                      args[k], expected=str(first.dtype))
        try:
            dims = merge_dims(dims, types[k].dims)
        except InferError:
            if line.options.broadcast:
                return _broadcast(line, nodes, args, tensors)
            line.fail(f"shapes differ: '{args[k].text}' is {an(types[k])} and '{other}' {an(first)}",
                      args[k], expected=f"[{','.join(map(str, dims or ()))}]",
                      hint="--broadcast lets shapes differ as in numpy")
    dims = line.target.dims if dims is None and line.target is not None else dims
    for k in tensors:
        if types[k].dims is None or types[k].dtype.np is None:
            beside = None if line.options.broadcast else dims
            known = tensor(dtype, beside if types[k].dims is None else types[k].dims)
            nodes[k] = _refined(line, args[k], nodes[k], known)
    return nodes


def _refined(line: Line, arg: Arg, node: Node, type: TensorType) -> Node:
    slot = line.env.tensors.get(arg.text)
    return node if slot is None or slot.node is not node else line.env.refine(arg, type)


def _broadcast(line: Line, nodes: list[Node], args: Sequence[Arg], tensors: Sequence[int]) -> list[Node]:
    """All tensors in their common shape by numpy's rule, each broadcast explicitly."""
    shape: Dims = ()
    for k in tensors:
        joint = _joint_shape(shape, type_of(nodes[k]).dims or ())
        if joint is None:
            line.fail(f"'{args[k].text}' is {an(nodes[k].type)} and does not broadcast", args[k],
                      expected=f"a shape that fits [{','.join(map(str, shape))}]")
        shape = joint
    return [stretch(line, n, shape) if k in tensors else n for k, n in enumerate(nodes)]


def stretch(line: Line, node: Node, shape: Dims) -> Node:
    """The node broadcast to a shape, its axes being the last ones."""
    dims = type_of(node).dims
    if dims is None or dims == shape:
        return node
    axes = tuple(range(len(shape) - len(dims), len(shape)))
    return line.b(broadcast_in_dim, node, shape=shape, broadcast_dimensions=axes)
