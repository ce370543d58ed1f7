"""Our operations in StableHLO's terms: the rows of the dialect's table, and what MLIR says in a way of its own.

A rule gives the operation's name, its attributes as text and the functions that become its regions; operands, types and
results are the writer's business. What StableHLO does not have is not in the table, and legalised before (`legal.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from deepx_graph import ops
from deepx_graph.ir import Node, Op
from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.ops.host import custom_calls
from deepx_graph.text.stablehlo.printer.devices import DEVICES
from deepx_graph.text.stablehlo.printer.values import dense_text, type_text
from deepx_graph.text.xla.mlir_text import string_text, word_text
from deepx_graph.text.xla.rows import GenericForm
from deepx_graph.text.xla.table import TABLE

Rule = Callable[[Node], GenericForm]


def _constant(n: Node) -> GenericForm:
    return GenericForm("stablehlo.constant", f"value = {dense_text(value_of(n))} : {type_text(n.type)}")


def _identity(n: Node) -> GenericForm:
    """StableHLO has the barrier alone; what else it is for is said beside it."""
    role = n.attr("role")
    if role in custom_calls.UNCHANGED:
        return GenericForm("stablehlo.custom_call", f"call_target_name = {string_text(role)}")
    if role == "sharding_constraint" and (said := dict(n.origin.notes).get("constraint")):
        return GenericForm("sdy.sharding_constraint", f"sharding = {said}")
    is_barrier = role == "optimization_barrier"
    return GenericForm("stablehlo.optimization_barrier", notes="" if is_barrier else f"role = {string_text(role)}")


def _distribution(word: str) -> Rule:
    form = GenericForm("stablehlo.rng", f"rng_distribution = {word_text('rng_distribution', word)}")
    return lambda n: form


FORMS: dict[Op, Rule] = {
    **{row.op: row.form for row in TABLE},
    CONSTANT: _constant,
    ops.identity: _identity,
    ops.rng_uniform: _distribution("UNIFORM"),
    ops.rng_normal: _distribution("NORMAL"),
    **DEVICES,
}
"""Every operation that StableHLO, CHLO or the check dialect has, with how it is written."""
