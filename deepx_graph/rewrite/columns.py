"""Rows of a few numbers, such as points in space, of which columns are read: columns are computed, and rows never made.

What is next to each other in memory is what one vector holds. Rows of three numbers fill no vector, and a column of them is read
with gaps. So an elementwise value all of whose readers take single columns, or reduce the rows, is computed column by column (an
array of structures becomes a structure of arrays), in one kernel for what such readers ask of a kernel. Each element is computed as
before, and no more of them; what takes little is done again for columns where the kernel needs it for rows, too. A row is reduced
in order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.rebuild import alone, on_demand, rebuild, replaced, with_inputs
from deepx_graph.ir.structure import CONSTANT, PARAM, PROJ, index_of, value_of
from deepx_graph.literal import Literal
from deepx_graph.loops.lower import CHEAP, element_cost
from deepx_graph.loops.scalar import NotExpressible
from deepx_graph.ops.contract.reduce import broadcast_in_dim, reduce
from deepx_graph.ops.data.fusion import fused, fused_body, part_of
from deepx_graph.ops.tensor.layout import reshape
from deepx_graph.ops.tensor.shape import slice_
from deepx_graph.types import F32, F64, TensorType, as_tensor, is_static

Shape = tuple[int, ...]
Part = tuple[Node, int]
"""A column of a value of rows; of another value all of it, and the number is 0."""

MOST_COLUMNS = 4
"""Of a row: a longer one fills a vector."""

LEAST_ROWS = 1 << 10
"""For fewer rows a kernel more takes as long."""

MOST_WORK = 2.0 * CHEAP
"""What an element may take, in additions: functions of more are vectors where what they read lies side by side, and it may be
computed for rows, too."""

MOST_ROUNDS = 4
"""How often kernels are looked for that columns are read of once their readers take columns."""


@dataclass
class _Kernel:
    """A kernel to be computed by columns: its body, the shape of the rows, the slices that read each result of rows, and which
    results stay as they are."""

    body: Function
    rows: Shape
    slices: dict[int, list[Node]] = field(default_factory=dict)
    kept: list[int] = field(default_factory=list)

    @property
    def others(self) -> list[int]:
        """The results of reduced rows."""
        return [k for k in range(len(self.body.results)) if k not in self.slices and k not in self.kept]


def with_columns(function: Function) -> Function:
    """The function with such values computed by columns; itself where there are none."""
    for _ in range(MOST_ROUNDS):
        found = {n: kernel for n in function.nodes if (kernel := _kernel_of(function, n)) is not None}
        if not found:
            break
        function = _with_kernels(function, found)
    return function


def _with_kernels(function: Function, found: dict[Node, _Kernel]) -> Function:
    made: dict[Node, dict[int, Node]] = {}
    """The new results of each kernel that are not read by columns, by their numbers."""
    new: dict[Node, Node] = {}

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        if node in found:
            made[node] = _split(Builder(origin=node.origin), found[node], inputs, new)
            return made[node].get(0) or inputs[0]
        if node.op is PROJ and node.inputs[0] in found:
            return made[node.inputs[0]].get(index_of(node)) or inputs[0]
        return with_inputs(node, inputs)

    return replaced(function, rebuild(function.nodes, new, step))


# --- where it is done


def _kernel_of(function: Function, node: Node) -> _Kernel | None:
    """How a kernel is computed by columns; None where it is not."""
    if fused_body(node) is None and node.op is not reduce and not node.op.elementwise:
        return None
    items = {0: [node]} if isinstance(node.type, TensorType) else _items(function, node)
    read = {k: [u for i in found for u in function.users[i]] for k, found in items.items()}
    taken = {k: users for k, users in read.items()
             if users and all(map(_is_column, users)) and not any(i in function.results for i in items[k])}
    if not taken and node.op.elementwise:
        return None
    body = fused_body(node) or alone(node)
    rows = as_tensor(body.results[next(iter(taken))].type).shape if taken else _reduced(body)
    if rows is None:
        return None
    kernel = _Kernel(body, rows, taken, [k for k, r in enumerate(body.results) if k not in taken and not _is_of_rows(r, rows)])
    wanted = [body.results[k] for k in (*taken, *kernel.others)]
    work = [_work(r, rows) for r in wanted]
    is_cheap = all(w is not None and w <= MOST_WORK for w in work)
    return kernel if wanted and is_cheap and not (kernel.kept and kernel.others) else None


def _items(function: Function, node: Node) -> dict[int, list[Node]]:
    """The nodes that take each result of a node with several."""
    found: dict[int, list[Node]] = {}
    for user in function.users[node]:
        if user.op is PROJ:
            found.setdefault(index_of(user), []).append(user)
    return found


def _is_column(node: Node) -> bool:
    """Whether a node takes one column of rows."""
    if node.op is not slice_ or not is_static(node.inputs[0].type):
        return False
    shape = as_tensor(node.inputs[0].type).shape
    return _are_short(shape) and as_tensor(node.type).shape == (*shape[:-1], 1)


def _are_short(shape: Shape) -> bool:
    return len(shape) > 1 and 1 < shape[-1] <= MOST_COLUMNS and math.prod(shape[:-1]) >= LEAST_ROWS


def _reduced(body: Function) -> Shape | None:
    """The shape of the rows that a body reduces; None where there are none."""
    shapes = {as_tensor(n.inputs[0].type).shape for n in body.nodes if n.op is reduce and is_static(n.inputs[0].type)}
    return next(iter(shapes)) if len(shapes) == 1 and _are_short(next(iter(shapes))) else None


def _is_of_rows(result: Node, rows: Shape) -> bool:
    """Whether a result has one element for each row."""
    return isinstance(result.type, TensorType) and result.type.dims == rows[:-1]


def _work(result: Node, rows: Shape) -> float | None:
    """What an element of a result of a body takes, in additions; None where it is not computed row by row."""
    total = 0.0
    for node in Function("", (), (result,)).nodes:
        if node.op in (PARAM, CONSTANT):
            continue
        if not _is_by_rows(node, rows):
            return None
        try:
            total += element_cost(node).work if node.op.elementwise else 0.0
        except NotExpressible:
            return None
    return total


def _is_by_rows(node: Node, rows: Shape) -> bool:
    """Whether a node of a body is computed row by row of elements, or reduces rows."""
    if not isinstance(node.type, TensorType) or node.type.dims not in (rows, rows[:-1], ()):
        return False
    operand = node.inputs[0].type
    if not isinstance(operand, TensorType):
        return False
    if node.op is broadcast_in_dim:
        of_row = operand.dims == rows[:-1] and node.attr("broadcast_dimensions") == tuple(range(len(rows) - 1))
        return not operand.dims or (node.type.dims == rows and of_row)
    if node.op is reduce:
        return (operand.dims == rows and len(node.inputs) == 2 and node.attr("dimensions") == (len(rows) - 1,)
                and node.attr("body").reducer is not None and (operand.dtype in (F32, F64) or operand.dtype.is_integer))
    return node.op.elementwise and all(isinstance(i.type, TensorType) and i.type.dims in (node.type.dims, ()) for i in node.inputs)


# --- how it is done


def _split(b: Builder, kernel: _Kernel, operands: Sequence[Node], new: dict[Node, Node]) -> dict[int, Node]:
    """The results that are not read by columns, by their numbers; `new` learns what has become of each slice."""
    given = dict(zip(kernel.body.params, operands, strict=True))
    taken = [(s, kernel.body.results[k], s.attr("start_indices")[-1]) for k, slices in kernel.slices.items() for s in slices]
    wanted = [*((r, j) for _, r, j in taken), *((kernel.body.results[k], 0) for k in kernel.others)]
    columns = _by_columns(b, given, kernel.rows, wanted)
    for (node, _, _), column in zip(taken, columns, strict=False):
        new[node] = b(reshape, column, shape=as_tensor(node.type).shape)
    return dict(zip(kernel.others, columns[len(taken) :], strict=True)) | _kept(b, kernel, given)


def _kept(b: Builder, kernel: _Kernel, given: dict[Node, Node]) -> dict[int, Node]:
    """The results that stay as they are."""
    part, used = part_of(kernel.body, kernel.kept)
    taken = {p: given[kernel.body.params[k]] for p, k in zip(part.params, used, strict=True)}
    return dict(zip(kernel.kept, fused(b, taken, part.results), strict=True))


def _by_columns(b: Builder, given: dict[Node, Node], rows: Shape, wanted: Sequence[Part]) -> list[Node]:
    """Parts of values that are computed of parameters, which stand for the given ones."""
    inside, params = Builder(peephole=True), dict[Node, Node]()

    def needs(part: Part) -> list[Part]:
        node, column = part
        if node.op is reduce:
            return [(node.inputs[1], 0), *((node.inputs[0], k) for k in range(rows[-1]))]
        return [(i, column if as_tensor(i.type).shape == rows else 0) for i in node.inputs]

    def make(part: Part, operands: tuple[Node, ...]) -> Node:
        node, column = part
        source, are_rows = given.get(node, node), as_tensor(node.type).shape == rows
        if source.op is CONSTANT:
            return inside.literal(Literal(value_of(source).array[..., column]) if are_rows else value_of(source))
        if node.op is PARAM:
            found = _column(b, source, column) if are_rows else source
            param = inside.param(len(params), found.type)
            params[param] = found
            return param
        if node.op is reduce:
            total = operands[0]
            for x in operands[1:]:
                total = inside(node.attr("body").results[0].op, total, x)
            return total
        if node.op is not broadcast_in_dim:
            return inside(node.op, *operands, **node.named_attrs)
        is_number = not as_tensor(operands[0].type).shape
        return inside(broadcast_in_dim, operands[0], shape=rows[:-1], broadcast_dimensions=()) if is_number else operands[0]

    return fused(b, params, on_demand(wanted, {}, needs, make))


def _column(b: Builder, x: Node, column: int) -> Node:
    """A column of an array of rows, as an array of one axis less."""
    shape = as_tensor(x.type).shape
    start, limit = (*(0 for _ in shape[:-1]), column), (*shape[:-1], column + 1)
    taken = b(slice_, x, start_indices=start, limit_indices=limit, strides=tuple(1 for _ in shape))
    return b(reshape, taken, shape=shape[:-1])
