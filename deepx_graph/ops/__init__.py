"""The operations, one declaration each, by family; and the table of them all.

An op is declared once, `name: Op = ...` in a module of `_DECLARED`, and is an attribute of this package by that name:
`ops.add`, or `from deepx_graph.ops import add`. Readers map foreign names to ops; passes, engines and pictures read their fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from deepx_graph.errors import UsageError, suggest
from deepx_graph.ir.op import Op, declared
from deepx_graph.ops.contract.linear import matmul as matmul
from deepx_graph.ops.contract.reduce import reduction as reduction

if TYPE_CHECKING:  # the names that `_family` binds when the program runs
    from deepx_graph.ops.contract.convolution import *
    from deepx_graph.ops.contract.linalg import *
    from deepx_graph.ops.contract.linear import *
    from deepx_graph.ops.contract.norm import *
    from deepx_graph.ops.contract.reduce import *
    from deepx_graph.ops.contract.window import *
    from deepx_graph.ops.data.adt import *
    from deepx_graph.ops.data.deferred import *
    from deepx_graph.ops.data.fusion import *
    from deepx_graph.ops.data.opaque import *
    from deepx_graph.ops.data.tape import *
    from deepx_graph.ops.host.check import *
    from deepx_graph.ops.host.collective import *
    from deepx_graph.ops.host.custom_calls import *
    from deepx_graph.ops.host.effects import *
    from deepx_graph.ops.host.feeds import *
    from deepx_graph.ops.host.ref import *
    from deepx_graph.ops.math.bit_generator import *
    from deepx_graph.ops.math.bits import *
    from deepx_graph.ops.math.elementwise import *
    from deepx_graph.ops.math.random import *
    from deepx_graph.ops.math.special import *
    from deepx_graph.ops.tensor.index import *
    from deepx_graph.ops.tensor.index_select import *
    from deepx_graph.ops.tensor.layout import *
    from deepx_graph.ops.tensor.map import *
    from deepx_graph.ops.tensor.parallel import *
    from deepx_graph.ops.tensor.shape import *
    from deepx_graph.ops.tensor.sort import *
    from deepx_graph.ops.tensor.strings import *

_DECLARED = {
    "structure": ["ir.structure"], "elementwise": ["ops.math.elementwise"], "bits": ["ops.math.bits"],
    "layout": ["ops.tensor.layout"], "shape": ["ops.tensor.shape"],
    "index": ["ops.tensor.index", "ops.tensor.index_select"], "window": ["ops.contract.window", "ops.contract.convolution"],
    "reduce": ["ops.contract.reduce"], "linear": ["ops.contract.linear"], "linalg": ["ops.contract.linalg"],
    "sort": ["ops.tensor.sort"], "special": ["ops.math.special"], "norm": ["ops.contract.norm"],
    "opaque": ["ops.data.opaque", "ops.data.deferred"],
    "check": ["ops.host.check"], "random": ["ops.math.random"], "bit_generator": ["ops.math.bit_generator"],
    "adt": ["ops.data.adt"], "effects": ["ops.host.effects"], "ref": ["ops.host.ref"], "fusion": ["ops.data.fusion"],
    "tape": ["ops.data.tape"], "collective": ["ops.host.collective"], "feeds": ["ops.host.feeds"],
    "parallel": ["ops.tensor.parallel"], "custom": ["ops.host.custom_calls"], "map": ["ops.tensor.map"],
    "strings": ["ops.tensor.strings"],
}  # fmt: skip
"""Where each family is declared."""


def _family(modules: Sequence[str]) -> tuple[Op, ...]:
    """The ops of a family, which become attributes of this package."""
    found: dict[str, Op] = {}
    for module in modules:
        found |= declared(vars(import_module(f"deepx_graph.{module}")))
    globals().update(found)
    return tuple(found.values())


FAMILIES: dict[str, tuple[Op, ...]] = {family: _family(modules) for family, modules in _DECLARED.items()}
"""Every op, by its family."""

OPS: dict[str, Op] = {op.name: op for family in FAMILIES.values() for op in family}
"""Every op by name."""

FAMILY_OF: dict[Op, str] = {op: family for family, members in FAMILIES.items() for op in members}
"""The family of each op."""

if len(OPS) != len(FAMILY_OF):
    raise ValueError("two ops have one name")


def op_named(name: str) -> Op:
    """The op of that name. Raises UsageError, with the nearest name, when there is none."""
    if name not in OPS:
        hint = suggest(name, OPS)
        raise UsageError(f"no operation '{name}'" + (f"; {hint}" if hint else ""))
    return OPS[name]
