"""A small matrix product as one machine function that reads its operands as they lie: nothing is packed, and one thread does it.

Sums are carried in registers: across the result where an operand lies along it, else along the terms, else element by element.
Their order depends on shapes alone. For what is called from machine code; larger products are those of `kernel`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from deepx_graph.ir import Node
from deepx_graph.ops.linear import dot_general
from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.native import cache as codes
from deepx_graph.runtime.native.kernel import MachineCode, Workspace
from deepx_graph.runtime.native.products.small_emit import LEFT, RIGHT, Plan, function_text, planned
from deepx_graph.runtime.native.sweeps.layout import Layout
from deepx_graph.runtime.native.target import this_machine
from deepx_graph.runtime.native.text import F4, F8
from deepx_graph.runtime.segments import Form
from deepx_graph.types import TensorType

MOST_WORK = 1 << 19
"""Multiplications of a product that is done here."""

_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def build(node: Node) -> SmallProduct | None:
    """The kernel of a product of floats; None where it is too large, or of another type."""
    types = [t for t in (*(i.type for i in node.inputs), node.type) if isinstance(t, TensorType) and t.is_static]
    if node.op is not dot_general or len(types) != 3 or len({t.dtype.np for t in types}) != 1 or types[2].dtype.np not in (F4, F8):
        return None
    plan = planned(types[2].dtype.np, types[0].shape, types[1].shape, *node.attrs)
    return None if not 0 < plan.work <= MOST_WORK else _kernel(plan, types[2].shape, this_machine().register_bytes)


@lru_cache(maxsize=64)
def _kernel(plan: Plan, shape: tuple[int, ...], register_bytes: int) -> SmallProduct:
    return SmallProduct(plan, shape, register_bytes)


class SmallProduct(MachineCode):
    """The compiled function."""

    way = "machine code"

    def __init__(self, plan: Plan, shape: tuple[int, ...], register_bytes: int) -> None:
        self.params = (LEFT, RIGHT)
        self.results = (Form(plan.dtype, shape),)
        self.in_place = (frozenset[int](),)
        self.constants: tuple[Array, ...] = ()
        self.own_bytes = ()
        self.layout = Layout({}, {}, {}, 0, 0, 3, 3)
        self.threads = 1
        self.nanoseconds = plan.nanoseconds(register_bytes // plan.dtype.itemsize)
        address = codes.functions(function_text(plan, register_bytes), ["product"], self)["product"]
        self.calls = ((address, 0),)
        self._call = _CALL(address)

    def reads_plainly(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """It reads both operands as they lie."""
        return True

    def __call__(self, args: Sequence[Any], out: Sequence[Any] | None = None) -> list[Array]:
        """The product of two arrays; in the array of `out`, where one is given."""
        left, right = (np.asarray(a, order="C") for a in args)
        made = np.empty(self.results[0].shape, self.results[0].dtype)
        workspace = Workspace(self)
        workspace.fill([left, right, made])
        self._call(workspace.address, None)
        if out is None or out[0] is None:
            return [made]
        np.copyto(out[0], made)
        return [out[0]]
