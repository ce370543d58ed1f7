"""What gathers and scatters look like in HLO: what `ops.py` refers to for them."""

from __future__ import annotations

from deepx_graph.ir import Node
from deepx_graph.text.hlo.printer.body import Writer
from deepx_graph.text.hlo.printer.values import listed, present


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
