"""The plan that a text states: shardings that JAX and XLA write into programs, as notes of the values.

`sdy.sharding` on arguments, results and operations, `sdy.sharding_constraint`, the meshes of the text, or that of what is done by
hand; `mhlo.sharding` and HLO's `sharding=`, which name tiles of one axis.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from deepx_graph import ops
from deepx_graph.errors import Diagnostic, UsageError
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.node import Notes, Origin
from deepx_graph.ir.structure import PHI, PROJ, index_of
from deepx_graph.sharding.mesh import Mesh, TensorSharding
from deepx_graph.sharding.notation import read_annotation, read_mesh, read_tiles
from deepx_graph.sharding.plan import Plan
from deepx_graph.sharding.rules import is_border
from deepx_graph.sharding.values import CARRIERS
from deepx_graph.types import TensorType

_MESH = re.compile(r'sdy\.mesh\s+@"?([\w$.\-]+)"?\s*=\s*(<[^>]*>)')
CONSTRAINT = "constraint"
"""The note of a value with how the value that it is the same as lies."""

ASKED, MOVED, BORDER = "sharding_constraint", "reshard", "named_computation"
"""The roles of the identities that have it: what may say how the value is made, too; what moves it, and nothing is propagated over;
what goes into a computation with a name, and comes out of it.
"""

SOURCE = "sharding_source"
"""The note of a value with Shardy's name for what states its sharding, where that is no constraint."""

_STATED = ("sdy.sharding", CONSTRAINT, "sharding")

Stated = tuple[Mesh, TensorSharding]


def stated_plan(module: Module) -> Plan | None:
    """The plan for the entry; None where the text states nothing. Raises UsageError as `_meshes_of` does, and for a device that
    there is not."""
    meshes = dict(_meshes(module))
    function = module.entry
    every_value = function.with_beside
    values: dict[Node, Stated] = {}
    for node in every_value.nodes:
        if (found := stated_sharding(node.origin.notes, node, meshes)):
            values[node] = found
    results = {}
    for k, notes in enumerate(function.result_notes):
        if (found := stated_sharding(notes, function.results[k], meshes)):
            results[k] = found
    devices = {n: mesh.single for n, (mesh, _) in values.items() if mesh.single is not None}
    values = {n: s for n, s in values.items() if n not in devices}
    results = {k: s for k, s in results.items() if s[0].single is None}
    every = [*values.items(), *((function.results[k], s) for k, s in results.items())]
    if not every:
        return None
    values |= _applied(every_value, values)
    over = _meshes_of(every)
    mesh, *others = over
    if wrong := next((n for n, d in devices.items() if d >= mesh.count), None):
        raise UsageError(Diagnostic(f"a value of device {devices[wrong]} beside a mesh of {mesh.count}", wrong.span))
    return Plan(mesh, function, {n: _named(over, s) for n, s in values.items()},
                {k: _named(over, s) for k, s in results.items()}, devices=devices, others=tuple(others))


def _meshes_of(stated: Sequence[tuple[Node, Stated]]) -> list[Mesh]:
    """The meshes of the shardings of values, each once, with parts of axes as these have them, and of a name of its own. What lies
    over no axes may lie over any: beside one other mesh it does over that.

    Raises UsageError for the first value along parts of an axis that no order of its factors has beside those before.
    """
    found: list[Mesh] = []
    over_axes = [(node, s) for node, s in stated if s[0].axes]
    is_one = over_axes and all(s[0].is_like(over_axes[0][1][0]) for _, s in over_axes)
    rest = [] if is_one else [(node, s) for node, s in stated if not s[0].axes]
    for node, (mesh, sharding) in (*over_axes, *rest):
        k = next((k for k, m in enumerate(found) if m.is_like(mesh)), len(found))
        if k == len(found):
            found.append(replace(mesh, name=_unused(mesh.name, [m.name for m in found])))
        try:
            found[k] = found[k].with_parts(sharding.every_axis)
        except UsageError as e:
            raise UsageError(Diagnostic(e.diagnostics[0].message, node.span)) from None
    return found


def _unused(name: str, others: Collection[str]) -> str:
    return next(n for n in itertools.chain((name,), (f"{name}_{k}" for k in itertools.count(1))) if n not in others)


def _named(meshes: Sequence[Mesh], stated: Stated) -> TensorSharding:
    """A sharding that names its mesh, where that is not the first."""
    mesh, sharding = stated
    return replace(sharding, mesh=next((m.name for m in meshes[1:] if m.is_like(mesh)), ""))


def _applied(function: Function, stated: Mapping[Node, Stated]) -> dict[Node, Stated]:
    """The values of which nothing is stated but one closed constraint on them: they lie so from the beginning, as in Shardy."""
    found: dict[Node, Stated] = {}
    for node in function.nodes:
        if node in stated or node.op in CARRIERS:
            continue
        asked = {stated[u] for u in function.users[node] if u in stated and _asks(u)}
        if len(asked) == 1:
            (one,) = asked
            if not any(d.open for d in one[1].dims):
                found[node] = one
    return found


def _asks(node: Node) -> bool:
    """Whether a value is its operand as that is asked to lie: by a constraint, or where it goes into a computation by hand."""
    return node.named_attrs.get("role") == ASKED or (is_border(node) and not node.attrs)


def _meshes(module: Module) -> Iterator[tuple[str, Mesh]]:
    for _, text in module.notes:
        for name, form in _MESH.findall(text):
            yield name, read_mesh(form, name)


def stated_sharding(notes: Notes, node: Node, meshes: dict[str, Mesh]) -> Stated | None:
    """What the notes of a value say of it: the last note that fits its rank. Of several results each has its own."""
    if not isinstance(node.type, TensorType) or node.type.dims is None:
        return None
    rank, found = len(node.type.dims), None
    for name, text in notes:
        if name not in _STATED:
            continue
        if text.startswith("#sdy"):
            each = read_annotation(text, meshes)
            k = index_of(node) if node.op is PROJ and len(each) > 1 else 0
            said = each[k] if k < len(each) else None
        else:
            said = read_tiles(_item_of(text, node), rank) if text.lstrip().startswith("{") else None
        if said is not None and (len(said[1].dims) == rank or said[0].single is not None):
            found = said
    return found


def stated_at_borders(plan: Plan) -> dict[Node, TensorSharding]:
    """How values lie where they go into computations by hand, and come out. Raises UsageError where these are over a mesh that the
    plan has not."""
    found: dict[Node, TensorSharding] = {}
    meshes = [plan.mesh, *plan.others]
    for node in plan.function.with_beside.nodes:
        if is_border(node) and (said := stated_sharding(node.origin.notes, node, {})) is not None:
            if not any(said[0].is_like(mesh) for mesh in meshes):
                raise UsageError(Diagnostic("a computation by hand over another mesh than that of the plan", node.span))
            found[node] = _named(meshes, said)
    return found


def _item_of(text: str, node: Node) -> str:
    """The sharding of one of several results or variables of a loop, `{{replicated}, {devices=[2]<=[2]}}`; any other as it is."""
    items = re.findall(r"\{[^{}]*\}", text) if text.replace(" ", "").startswith("{{") else []
    return items[index_of(node)] if node.op in (PROJ, PHI) and index_of(node) < len(items) else text


def at_border(x: Node, notes: Notes) -> Node:
    """A value where it goes into a function, or comes out of it, as the notes say of it there; itself where they say nothing."""
    said = [(CONSTRAINT, text) for name, text in notes if name == "sdy.sharding"]
    return Node(ops.identity, (x,), (BORDER,), x.type, Origin("", x.origin.spans, (), tuple(said))) if said else x


def needed_plan(module: Module) -> Plan:
    """As `stated_plan`. Raises UsageError where the text states none."""
    plan = stated_plan(module)
    if plan is None:
        message = "the program states no sharding, and no plan is given"
        raise UsageError(Diagnostic(message, hint="give a plan, or shardings of the inputs"))
    return plan


