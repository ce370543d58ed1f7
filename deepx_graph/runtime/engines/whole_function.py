"""A function as one node, which an engine may run as one kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from deepx_graph.ir import Builder, Function
from deepx_graph.ops.data.fusion import fusion
from deepx_graph.rewrite.control.clusters import CLUSTER
from deepx_graph.rewrite.control.outline import MOST_NODES
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.types import TensorType

PROGRAM = "program"
"""The name of a body that holds a whole function."""


def is_program(body: Function) -> bool:
    """Whether the body holds operations that are kernels of their own: a whole function, or a cluster of one."""
    return body.name in (PROGRAM, CLUSTER)


def is_whole(body: Function) -> bool:
    """Whether `as_kernel` made the body."""
    return body.name == PROGRAM


def is_too_large(function: Function) -> bool:
    """Whether a function has more nodes than one kernel is tried for."""
    return len(function.nodes) > MOST_NODES


def as_kernel(function: Function, build: Callable[[Function], object]) -> Function:
    """The function as one node that holds it all. Raises Declined, as `build` does, where there is no kernel for that."""
    if is_too_large(function):
        raise Declined(f"more than {MOST_NODES} nodes")
    if not all(isinstance(n.type, TensorType) for n in (*function.params, *function.results)):
        raise Declined("inputs or outputs that are no tensors")
    body = Function(PROGRAM, function.params, function.results, public=False)
    build(body)
    b = Builder()
    kernel = b(fusion, *function.params, body=body)
    results = (kernel,) if len(function.results) == 1 else tuple(b.proj(kernel, k) for k in range(len(function.results)))
    return replace(function, results=results)
