"""deepx ops that compute a value, as our operations: one small function, or maker of one, for each family.

Each takes the line and its operands (see the roles in `line`) and returns the node that is written to the result. All rules are
those of the documents, with numpy's meaning; none of the executor's faults is repeated (scalars keep their precision, `S - t` is
what it says, sums start from zero).

Operands are brought together first. A number becomes a rank-0 constant, converted straight from its text. Tensors must have one
shape; only with `options.broadcast` are they stretched, each by an explicit broadcast. What an operand of unknown type must be is
learned from those beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import InferError, an
from deepx_graph.ir import Node, Op
from deepx_graph.ops import (
    abs_,
    add,
    broadcast_in_dim,
    compare,
    concatenate,
    convert,
    iota,
    matmul,
    module_seed,
    multiply,
    reduction,
    reshape,
    rng_uniform,
    select,
    subtract,
    torch_index_select,
    transpose,
)
from deepx_graph.text.deepx.reader.instr import Arg, cast
from deepx_graph.text.deepx.reader.line import Line, Scalar
from deepx_graph.types import (
    ANY,
    BF16,
    F16,
    F32,
    F64,
    I64,
    Dim,
    Dims,
    DType,
    TensorType,
    as_tensor,
    merge_dims,
    mul_dims,
    scalar,
    tensor,
)

Make = Callable[..., Node | None]
Operand = Node | Scalar


# --- operands brought together ------------------------------------------------------------------------------------


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
        return s.node if as_tensor(s.node.type).dtype is dtype else line.b(convert, s.node, dtype=dtype)
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
    if as_tensor(node.type).dims is not None:
        return node
    name = line.inputs[k].text
    return _refined(line, line.inputs[k], node, as_tensor(node.type).with_dims(f"?{name}.{axis}" for axis in range(rank)))


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
    types = {k: as_tensor(nodes[k].type) for k in tensors}
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
        joint = _joint_shape(shape, as_tensor(nodes[k].type).dims or ())
        if joint is None:
            line.fail(f"'{args[k].text}' is {an(nodes[k].type)} and does not broadcast", args[k],
                      expected=f"a shape that fits [{','.join(map(str, shape))}]")
        shape = joint
    return [stretch(line, n, shape) if k in tensors else n for k, n in enumerate(nodes)]


def stretch(line: Line, node: Node, shape: Dims) -> Node:
    """The node broadcast to a shape, its axes being the last ones."""
    dims = as_tensor(node.type).dims
    if dims is None or dims == shape:
        return node
    axes = tuple(range(len(shape) - len(dims), len(shape)))
    return line.b(broadcast_in_dim, node, shape=shape, broadcast_dimensions=axes)


# --- elementwise --------------------------------------------------------------------------------------------------


def elementwise(op: Op, *, swapped: bool = False) -> Make:
    """The op on its operands, which must agree; `swapped` exchanges the two."""

    def make(line: Line, *operands: Operand) -> Node:
        nodes = numbers(line, operands)
        return line.b(op, *(reversed(nodes) if swapped else nodes))

    return make


def comparison(direction: str) -> Make:
    """Element by element, giving bool."""
    return lambda line, *operands: line.b(compare, *numbers(line, operands, to_target=False), direction=direction)


def nearly(direction: str) -> Make:
    """|a - b| <= epsilon, or > epsilon, where an epsilon other than 0 is given; else exactly equal, or not."""

    def make(line: Line, x: Operand, y: Operand, epsilon: Scalar | None) -> Node:
        left, right = numbers(line, (x, y), to_target=False)
        if epsilon is None or (epsilon.node is None and epsilon.value == 0):
            return line.b(compare, left, right, direction="EQ" if direction == "LE" else "NE")
        dtype = as_tensor(left.type).dtype
        if not dtype.is_float:  # a fraction means nothing to integers, and their difference could wrap
            left, right, dtype = line.b(convert, left, dtype=F64), line.b(convert, right, dtype=F64), F64
        distance = line.b(abs_, line.b(subtract, left, right))
        return line.b(compare, distance, number(line, epsilon, dtype), direction=direction)

    return make


def switch(line: Line, choices: Sequence[Node], cases: Node) -> Node:
    """out[i] = choices[cases[i]][i]; a bool takes the second where true. Integers out of range take the last."""
    nodes = numbers(line, choices, line.listed)
    kind = as_tensor(cases.type).dtype.kind
    if kind == "bool":
        if len(nodes) != 2:
            line.fail(f"a bool selects from 2 tensors and there are {len(nodes)}", line.inputs[0], expected="[tensor tensor]")
        return line.b(select, cases, nodes[1], nodes[0])
    if kind not in ("int", "uint"):
        line.fail(f"'{line.inputs[-1].text}' is {an(cases.type)}", line.inputs[-1], expected="a bool or int32 tensor")
    result = nodes[-1]
    for k in range(len(nodes) - 2, -1, -1):
        result = line.b(select, line.b(compare, cases, line.b.like(k, cases), direction="EQ"), nodes[k], result)
    return result


def to_dtype(line: Line, x: Node) -> Node:
    """The values in the element type of the target."""
    target = line.target
    if target is None or target.dtype.np is None:
        line.fail(f"the element type of '{line.outputs[0].text}' is not known", line.outputs[0], expected="tensor<float32>:name")
    return _shaped_like_target(line, line.b(convert, x, dtype=target.dtype))


def copy(line: Line, x: Node) -> Node:
    """The elements in row-major order, in the shape of the target."""
    return _shaped_like_target(line, x)


def _shaped_like_target(line: Line, x: Node) -> Node:
    dims = None if line.target is None else line.target.dims
    old = as_tensor(x.type).dims
    if dims is None or old is None or old == dims or mul_dims(old) != mul_dims(dims):
        return x
    return line.b(reshape, x, shape=dims)


# --- filled tensors -----------------------------------------------------------------------------------------------


def constant(line: Line, value: Scalar) -> Node | None:
    """Every element the same. In a function, a name that nobody created becomes an argument instead: it has no shape."""
    if line.target is None and line.env.is_closed:
        line.env.bind_number(line.outputs[0], value.value, value.node)
        return None
    type = line.known_target()
    if value.node is None and type.is_static:
        number(line, value, type.dtype)  # says where a number does not fit
        return splat(line, value, type)
    return stretch(line, number(line, value, type.dtype), type.dims or ())


def arange(line: Line, start: Scalar, step: Scalar) -> Node:
    """start + i * step over the whole tensor, row-major."""
    type = line.known_target()
    assert type.dims is not None
    dtype = F32 if type.dtype in (F16, BF16) else type.dtype
    steps = line.b(iota, dtype=dtype, shape=(mul_dims(type.dims),), iota_dimension=0)
    values = line.b(add, number(line, start, dtype), line.b(multiply, steps, number(line, step, dtype)))
    values = values if dtype is type.dtype else line.b(convert, values, dtype=type.dtype)
    return values if len(type.dims) == 1 else line.b(reshape, values, shape=type.dims)


def random(op: Op) -> Make:
    """A draw for each element; without a seed, or with seed 0, from the seed of the run."""

    def make(line: Line, low: Scalar, high: Scalar, seed: Scalar | None) -> Node:
        type = line.known_target()
        dtype = type.dtype if type.dtype.is_float and type.dtype.bits >= 32 else F64
        bounds = [number(line, s, dtype) for s in (low, high)]
        return line.b(op, *bounds, draw_seed(line, seed), shape=type.dims, dtype=type.dtype)

    return make


def draw_seed(line: Line, seed: Scalar | None) -> Node:
    """The seed operand of a draw."""
    if seed is not None and seed.node is None and seed.value == 0:
        seed = None
    if seed is not None:
        return number(line, seed, I64)
    return line.b(module_seed, index=next(line.env.draws))


def dropout(line: Line, probability: Scalar, seed: Scalar | None) -> Node:
    """In place: 0 where a draw from [0, 1) is below the probability; what stays is not scaled."""
    out = line.outputs[0]
    kept = line.env.read(out)
    type = line.known_target()
    zero, one = line.b.splat(0, scalar(F32)), line.b.splat(1, scalar(F32))
    draw = line.b(rng_uniform, zero, one, draw_seed(line, seed), shape=type.dims, dtype=F32)
    dropped = line.b(compare, draw, number(line, probability, F32), direction="LT")
    return line.b(select, dropped, line.b.like(0, kept), kept)


# --- shapes -------------------------------------------------------------------------------------------------------


def _dims(line: Line, node: Node, arg: int = 0) -> Dims:
    """The dims of an operand. Raises VerifyError when the rank is not known."""
    found = as_tensor(node.type).dims
    if found is None:
        line.fail(f"the rank of '{line.inputs[arg].text}' is not known", line.inputs[arg],
                  hint="it is a parameter, or a file that is not under the data root: use it beside a tensor of known shape first")
    return found


def _axes(line: Line, given: Sequence[Dim], rank: int) -> tuple[int, ...]:
    """Axes, negative ones counted from the end. Raises VerifyError for one out of range."""
    for axis in given:
        if isinstance(axis, str) or not -rank <= axis < rank:
            line.fail(f"axis {axis} of a tensor of rank {rank}", line.inputs[1], expected=f"{-rank} to {rank - 1}")
    return tuple(int(a) % rank for a in given)


def to_shape(line: Line, x: Node, shape: Sequence[Dim]) -> Node:
    """The same elements in another shape."""
    if len(shape) > line.options.max_rank or any(isinstance(d, int) and d < 0 for d in shape):
        line.fail(f"shape [{' '.join(map(str, shape))}]", line.inputs[1],
                  expected=f"at most {line.options.max_rank} dimensions, none negative")
    return line.b(reshape, x, shape=tuple(shape))


def permute(line: Line, x: Node, order: Sequence[Dim]) -> Node:
    """Axes in another order."""
    return line.b(transpose, x, permutation=_axes(line, order, len(order)))


def join(line: Line, parts: Sequence[Node], axis: int) -> Node:
    """Tensors one after the other along an axis."""
    known = next((d for d in (as_tensor(p.type).dims for p in parts) if d is not None), None)
    if known is None:
        return line.b(concatenate, *parts, dimension=axis)
    if not -len(known) <= axis < len(known):
        line.fail(f"axis {axis} of tensors of rank {len(known)}", line.inputs[-1], expected=f"{-len(known)} to {len(known) - 1}")
    return line.b(concatenate, *parts, dimension=axis % len(known))


def expand(line: Line, x: Node, shape: Sequence[Dim]) -> Node:
    """Repeated to a larger shape, aligned on the right; -1 keeps the size."""
    old = _dims(line, x)
    lead = len(shape) - len(old)
    if lead < 0:
        line.fail(f"{x.type} does not broadcast to {len(shape)} dimensions", line.inputs[1], expected=f"at least {len(old)}")
    new = tuple(old[k - lead] if d == -1 and k >= lead else d for k, d in enumerate(shape))
    if any(isinstance(d, int) and d < 0 for d in new):
        line.fail(f"shape [{' '.join(map(str, shape))}]", line.inputs[1], expected="no negative size, -1 to keep one")
    return stretch(line, x, new) if new != old else x


def take(line: Line, x: Node, index: Node, axis: int) -> Node:
    """numpy's take along an axis; a negative axis counts from the end."""
    if as_tensor(index.type).dtype.kind not in ("int", "uint", "any"):
        line.fail(f"'{line.inputs[1].text}' is {an(index.type)}", line.inputs[1], expected="a tensor of integers")
    if axis < 0:
        axis += len(_dims(line, x))
    rank = as_tensor(x.type).rank
    if axis < 0 or (rank is not None and axis >= rank):
        line.fail(f"axis {line.inputs[2].text} of {x.type}", line.inputs[2])
    return line.b(torch_index_select, x, index, dim=axis)


def repeat(line: Line, x: Node, times: Sequence[Dim]) -> Node:
    """Each element so many times in a row along each axis: numpy's repeat, one count per axis."""
    x = of_rank(line, 0, x, len(times))
    old = _dims(line, x)
    if len(times) != len(old) or any(isinstance(r, str) or r < 0 for r in times):
        line.fail(f"{len(times)} repeats for {x.type}", line.inputs[1], expected=f"{len(old)} counts, none negative")
    spread: list[Dim] = [d for pair in zip(old, times, strict=True) for d in pair]
    wide = line.b(broadcast_in_dim, x, shape=tuple(spread), broadcast_dimensions=tuple(range(0, 2 * len(old), 2)))
    return line.b(reshape, wide, shape=tuple(mul_dims(pair) for pair in zip(old, times, strict=True)))


def product(line: Line, x: Node, y: Node) -> Node:
    """The matrix product, leading axes being batches. An operand of unknown rank gets that of the other, or of the target."""
    ranks = [as_tensor(x.type).rank, as_tensor(y.type).rank, None if line.target is None else line.target.rank]
    rank = next((r for r in ranks if r is not None), None)
    if rank is None:
        _dims(line, x)
    for k, node in enumerate((x, y)):
        found = as_tensor(node.type).rank
        if found is not None and (found != rank or found < 2):
            line.fail(f"matmul of {x.type} and {y.type}", line.inputs[k], expected="two tensors of one rank, 2 or more")
    assert rank is not None
    x, y = (of_rank(line, k, n, rank) for k, n in enumerate((x, y)))
    try:
        return matmul(line.b, x, y)
    except InferError as e:
        line.fail(e.message, line.inputs[0])


def reducing(op: Op) -> Make:
    """Along some axes, all when none are given; `keepdims` leaves them with size 1."""

    def make(line: Line, x: Node, dims: Sequence[Dim] | None, keepdims: bool | None) -> Node:
        rank = _reduced_rank(line, dims, keepdims)
        x = x if rank is None else of_rank(line, 0, x, rank)
        shape = _dims(line, x)
        axes = tuple(sorted(set(_axes(line, dims or (), len(shape))))) or tuple(range(len(shape)))
        total = reduction(line.b, op, x, axes)
        if not keepdims:
            return total
        return line.b(reshape, total, shape=tuple(1 if k in axes else d for k, d in enumerate(shape)))

    return make


def _reduced_rank(line: Line, dims: Sequence[Dim] | None, keepdims: bool | None) -> int | None:
    """The rank of what is reduced into the target, where that follows from the rank of the target."""
    target = line.target
    rank = None if target is None else target.rank
    if target is None or rank is None or keepdims:
        return rank
    axes = [d for d in dims or () if isinstance(d, int)]
    size = target.dims[0] if target.dims else 0
    if (rank == 1 and (size == 1 or isinstance(size, str))) or any(d < 0 for d in axes):
        return None  # a target of one element may stand for rank 0, and an axis may be named twice
    return rank + len(set(axes)) if axes else None


def default_dtype(line: Line, stated: DType | None) -> DType:
    """The element type of a tensor being made; float32, with a warning, where the text does not say."""
    found: Any = stated or line.instr.dtype
    if found is not None and found.np is not None:
        return found  # type: ignore[no-any-return]
    out = line.outputs[0] if line.outputs else line.instr.op
    line.env.problems.warn(f"'{out.text}' has no element type: float32 is taken", out.start, out.end,
                           expected="op@T or tensor<T>:name")
    return F32


def zeros(line: Line, type: TensorType) -> Node:
    """A tensor of zeros; costs no memory where the shape is known."""
    if type.is_static:
        return line.b.splat(0, type)
    return stretch(line, line.b.splat(0, scalar(type.dtype)), type.dims or ())
