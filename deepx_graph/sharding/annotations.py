"""The plan that a text states: shardings that JAX and XLA write into programs, as notes of the values.

`sdy.sharding` on arguments, results and operations, `sdy.sharding_constraint`, the meshes of the text; `mhlo.sharding` and HLO's
`sharding=`, which name tiles of one axis.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from deepx_graph.errors import Diagnostic, UsageError
from deepx_graph.ir import Module, Node
from deepx_graph.ir.node import Notes
from deepx_graph.sharding.mesh import Mesh, TensorSharding
from deepx_graph.sharding.notation import read_annotation, read_mesh, read_tiles
from deepx_graph.sharding.plan import Plan
from deepx_graph.types import TensorType

_MESH = re.compile(r'sdy\.mesh\s+@"?([\w$.\-]+)"?\s*=\s*(<[^>]*>)')
_SDY = re.compile(r"#sdy\.sharding(?:_per_value)?(?=<)")
_STATED = ("sdy.sharding", "constraint", "sharding")


def stated_plan(module: Module) -> Plan | None:
    """The plan for the entry; None where the text states nothing. Raises UsageError for shardings over meshes that differ."""
    meshes = dict(_meshes(module))
    function = module.entry
    values: dict[Node, tuple[Mesh, TensorSharding]] = {}
    for node in function.nodes:
        for mesh, sharding in _stated(node.origin.notes, node, meshes)[:1]:
            values[node] = mesh, sharding
    results = {}
    for k, notes in enumerate(function.result_notes):
        for found in _stated(notes, function.results[k], meshes)[:1]:
            results[k] = found
    every = [*values.values(), *results.values()]
    if not every:
        return None
    mesh = every[0][0]
    if any(m.axes != mesh.axes or m.devices != mesh.devices for m, _ in every):
        raise UsageError("the shardings of the text are over meshes that differ, which one plan cannot say")
    return Plan(mesh, function, {n: s for n, (_, s) in values.items()}, {k: s for k, (_, s) in results.items()})


def _meshes(module: Module) -> Iterator[tuple[str, Mesh]]:
    for _, text in module.notes:
        for name, form in _MESH.findall(text):
            yield name, read_mesh(form, name)


def _stated(notes: Notes, node: Node, meshes: dict[str, Mesh]) -> Sequence[tuple[Mesh, TensorSharding]]:
    """What the notes of a value say of it; a note is taken that fits its rank."""
    if not isinstance(node.type, TensorType) or node.type.dims is None:
        return []
    found: list[tuple[Mesh, TensorSharding]] = []
    for name, text in notes:
        if name not in _STATED:
            continue
        if text.startswith("#sdy"):
            found = read_annotation(_SDY.sub("", text), meshes)
        elif text.lstrip().startswith("{"):
            tiles = read_tiles(text, len(node.type.dims))
            found = [tiles] if tiles else []
    return [(m, s) for m, s in found if len(s.dims) == len(node.type.dims)]


def needed_plan(module: Module) -> Plan:
    """As `stated_plan`. Raises UsageError where the text states none."""
    plan = stated_plan(module)
    if plan is None:
        message = "the program states no sharding, and no plan is given"
        raise UsageError(Diagnostic(message, hint="give a plan, or shardings of the inputs"))
    return plan


