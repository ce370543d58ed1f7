"""What gathers, scatters and our own indexed operations look like in HLO: what `printer_ops` refers to for them."""

from __future__ import annotations

from deepx_graph import ops
from deepx_graph.ir import Builder, Function, Node
from deepx_graph.text.hlo.printer.body import Writer
from deepx_graph.text.hlo.printer.values import listed, present
from deepx_graph.types import DType, as_tensor, scalar


def _given(node: Node, *names: str) -> list[str]:
    """Lists under our own names, empty ones left out."""
    return [listed(n, node.attr(n)) for n in names if node.attr(n)]


_GATHER = ("operand_batching_dims", "start_indices_batching_dims")
_SCATTER = ("input_batching_dims", "scatter_indices_batching_dims")


def gather(w: Writer, node: Node) -> str:
    """Slices at indices."""
    a = node.attr
    return w.apply(node, "gather", present(
        listed("offset_dims", a("offset_dims")), listed("collapsed_slice_dims", a("collapsed_slice_dims")),
        listed("start_index_map", a("start_index_map")), *_given(node, *_GATHER), f"index_vector_dim={a('index_vector_dim')}",
        listed("slice_sizes", a("slice_sizes"))))  # fmt: skip


def scatter(w: Writer, node: Node) -> str:
    """Updates at indices."""
    a = node.attr
    return w.apply(node, "scatter", present(
        listed("update_window_dims", a("update_window_dims")), listed("inserted_window_dims", a("inserted_window_dims")),
        listed("scatter_dims_to_operand_dims", a("scatter_dims_to_operand_dims")), *_given(node, *_SCATTER),
        f"index_vector_dim={a('index_vector_dim')}", f"to_apply={w.body(a('update_computation'), node)}"))  # fmt: skip


def _window_dims(node: Node, dim: int) -> tuple[tuple[int, ...], int]:
    """Where the dimensions of a slice stand in a result with index dimensions at `dim`, and the rank of the index."""
    rank, of_index = as_tensor(node.inputs[0].type).rank or 0, as_tensor(node.inputs[1].type).rank or 0
    return (*range(dim), *range(dim + of_index, rank - 1 + of_index)), of_index


def index_select(w: Writer, node: Node) -> str:
    """Slices along one dimension, as a gather."""
    dim: int = node.attr("dim")
    offsets, of_index = _window_dims(node, dim)
    sizes = tuple(1 if k == dim else d for k, d in enumerate(as_tensor(node.inputs[0].type).shape))
    return w.apply(node, "gather", present(
        listed("offset_dims", offsets), listed("collapsed_slice_dims", (dim,)), listed("start_index_map", (dim,)),
        f"index_vector_dim={of_index}", listed("slice_sizes", sizes)))  # fmt: skip


def index_add(w: Writer, node: Node) -> str:
    """A scatter drops what falls outside, `index_add` clamps it."""
    dim: int = node.attr("dim")
    operand, index = as_tensor(node.inputs[0].type), as_tensor(node.inputs[1].type)
    offsets, of_index = _window_dims(node, dim)
    x, i, updates = map(w.value, node.inputs)
    bounds = [w.number(v, index.dtype, index.dims) for v in (0, max(operand.shape[dim] - 1, 0))]
    clamped = w.step("clamp", index, bounds[0], i, bounds[1])
    return w.write(node, "scatter", [x, clamped, updates], present(
        listed("update_window_dims", offsets), listed("inserted_window_dims", (dim,)),
        listed("scatter_dims_to_operand_dims", (dim,)), f"index_vector_dim={of_index}",
        f"to_apply={w.body(_sum(operand.dtype), node)}"))  # fmt: skip


def _sum(dtype: DType) -> Function:
    b = Builder()
    return b.function("sum", [("x", scalar(dtype)), ("y", scalar(dtype))], lambda x, y: [b(ops.add, x, y)])
