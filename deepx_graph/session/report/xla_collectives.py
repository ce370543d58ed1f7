"""Why XLA's partitioner made each collective: its module before and after `spmd-partitioning`, from a folder that it dumped.

Instructions of both are matched by what the user's program calls them (`op_name`, which XLA copies). The reasons are those of our
own partitioner, by the rule of the operation and by how XLA says that its operands and its result lie; which factors XLA has split
is read off the result. What to give instead is what our own partitioner says of the same program: it exchanges no more than XLA's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from deepx_graph.errors import DeepxGraphError, ParseError, UsageError
from deepx_graph.ir import Module, Node
from deepx_graph.ir.factor_rule import FactorRule
from deepx_graph.ir.structure import PROJ
from deepx_graph.session.dumps import DumpedModule, dumped_modules
from deepx_graph.session.programs import load, optimise
from deepx_graph.session.report.collectives import ITSELF, NOTHING_LESS, CollectiveRow, OtherPlans
from deepx_graph.sharding.annotations import needed_plan
from deepx_graph.sharding.notation import read_tiles
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.plan import Plan
from deepx_graph.sharding.propagate import propagate
from deepx_graph.sharding.reasons import CollectiveCause, MeetingReason, of_operand
from deepx_graph.sharding.reshard import PERMUTE, REDUCE, SCATTER, TensorLayout
from deepx_graph.sharding.rules import factor_rule, layout_of, project
from deepx_graph.text import ReadOptions
from deepx_graph.types import TensorType, TupleType, nbytes

PASS = "spmd-partitioning"


class DumpedProgram:
    """A program before XLA partitioned it, and what our own partitioner says of it."""

    def __init__(self, module: Module) -> None:
        self.module = module

    @cached_property
    def others(self) -> OtherPlans:
        """Raises UsageError where it cannot be partitioned."""
        given = _given(self.module)
        return OtherPlans(self.module, given, partition(self.module, propagate(given)))


@dataclass(frozen=True)
class DumpedCollective:
    """A collective of XLA's, with the program before it was partitioned, and the instruction there that it is for."""

    row: CollectiveRow
    program: DumpedProgram
    source: Node | None

    def instead(self) -> list[str]:
        """Changes of how inputs and results lie under which devices exchange less, or why there is none."""
        if self.source is None or self.row.reason is MeetingReason.WRITTEN:
            return [ITSELF if self.source else NOTHING_LESS]
        causes = [CollectiveCause(self.source, self.row.reason, i, self.source, before, after)
                  for i, before, after in _operands(self.source) if before.dims != after.dims]
        try:
            return self.program.others.instead(*causes) if causes else [NOTHING_LESS]
        except DeepxGraphError as e:
            return [f"instead: not known, {e.diagnostics[0].message}"]


def dumped_collectives(folder: Path, options: ReadOptions | None = None) -> list[DumpedCollective]:
    """The collectives of all modules of a folder. Raises UsageError where no module has been partitioned there."""
    modules = [m for m in dumped_modules(folder) if _pair(m) is not None]
    if not modules:
        hint = "XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_pass_re=spmd.*|shardy.*' dumps both sides of that pass"
        raise UsageError(f"no module of {folder} has a stage after {PASS}: {hint}")
    rows = []
    for module in modules:
        pair = _pair(module)
        assert pair is not None
        before, after = (optimise(load(path, None, options).module, "inline").module for path in pair)
        rows += list(_rows(before, after))
    return rows


def _pair(module: DumpedModule) -> tuple[Path, Path] | None:
    """The stages before and after partitioning."""
    for earlier, stage in pairwise(module.stages):
        if stage.title.endswith(PASS):
            return earlier.path, stage.path
    return None


def _rows(before: Module, after: Module) -> Iterator[DumpedCollective]:
    program = DumpedProgram(before)
    sources = {key: n for n in before.entry.nodes if n.inputs and _label(n) for key in (_label(n), _key(n))}
    for node in after.entry.nodes:
        if node.op.exchange is None or not node.inputs:
            continue
        source = sources.get(_key(node)) or sources.get(_label(node))
        kind = node.op.name
        groups = node.named_attrs.get("replica_groups") or ()
        members = len(groups[0]) if groups else len({d for p in node.named_attrs.get("source_target_pairs") or () for d in p})
        place = node.span.place if node.span else None
        yield DumpedCollective(CollectiveRow(
            node.name or kind, kind, _bytes(node), _shown(groups), members, f"'{_label(node)}'" if _label(node) else "a value",
            f"'{source.name}' ({source.op.name})" if source else "", str(place) if place else "",
            _reason(kind, source), "; ".join(_stated(i) for i in source.inputs) if source else "",
            _stated(source) if source else "", ()), program, source)


def _label(node: Node) -> str:
    return next((s.place.label for s in node.origin.spans if s.place is not None and s.place.label), "")


def _key(node: Node) -> str:
    """What tells an instruction from others that are called the same: its line."""
    return f"{_label(node)} {node.span.place if node.span else ''}"


def _bytes(node: Node) -> int:
    items = node.type.items if isinstance(node.type, TupleType) else (node.type,)
    return sum(nbytes(t) for t in items if isinstance(t, TensorType))


def _shown(groups: tuple[tuple[int, ...], ...]) -> str:
    return f"groups as {list(groups[0])}" if groups else "pairs"


def _stated(node: Node) -> str:
    return dict(node.origin.notes).get("sharding", "{replicated}")


def _layout(node: Node) -> TensorLayout | None:
    """How XLA says that a value lies, over a mesh of one axis; None for what is no tensor, or is said in another way."""
    if not isinstance(node.type, TensorType) or node.type.dims is None:
        return None
    try:
        found = read_tiles(_stated(node), len(node.type.dims)) if "devices" in _stated(node) else None
    except ParseError:
        return None
    if found is None:
        return TensorLayout.whole(len(node.type.dims))
    mesh, sharding = found
    mesh = mesh.with_parts(sharding.every_axis)
    return TensorLayout(tuple(mesh.atoms(axes) for axes in sharding.axes))


def _operands(source: Node) -> Iterator[tuple[Node, TensorLayout, TensorLayout]]:
    """Each operand that is split, with how it lies, and how it has to for the result to lie as XLA says."""
    rule, result = factor_rule(source), _layout(source)
    axes = project(rule.results[0], result.dims, rule.sizes) if rule is not None and result is not None else {}
    for k, i in enumerate(source.inputs):
        before = _layout(i)
        if before is not None and any(before.dims):
            after = TensorLayout.whole(len(before.dims)) if rule is None else layout_of(rule.operands[k], axes, rule.sizes)
            yield i, before, after


def _given(program: Module) -> Plan:
    """How XLA says that inputs and results lie, without what it has propagated to other values."""
    function = program.entry
    plan = needed_plan(program)
    return Plan(plan.mesh, function, {p: s for p, s in plan.values.items() if p in function.params},
                {k: plan.values[r] for k, r in enumerate(function.results) if r in plan.values})


def _reason(kind: str, source: Node | None) -> MeetingReason:
    """One of the closed list, by the operation in the program before."""
    if source is not None and (source.inputs[0] if source.op is PROJ else source).op.exchange is not None:
        return MeetingReason.WRITTEN
    rule = None if source is None else factor_rule(source)
    if source is None or rule is None:
        return MeetingReason.RESULT if source is None else MeetingReason.WHOLE
    if kind in (REDUCE, SCATTER) and rule.reduction:
        return MeetingReason.REDUCTION
    if kind == PERMUTE and rule.permuted:
        return MeetingReason.NEIGHBOURS
    if _splits_whole(source, rule):
        return MeetingReason.WHOLE
    return _of_operands(source, rule)


def _splits_whole(source: Node, rule: FactorRule) -> bool:
    """Whether an operand is split along a factor that has to be whole."""
    whole = rule.replicated | rule.whole
    for i, mapped in zip(source.inputs, rule.operands, strict=True):
        layout = _layout(i)
        if layout and any(axes and whole.intersection(factors) for axes, factors in zip(layout.dims, mapped, strict=True)):
            return True
    return False


def _of_operands(source: Node, rule: FactorRule) -> MeetingReason:
    result = _layout(source)
    axes = project(rule.results[0], result.dims, rule.sizes) if result is not None else {}
    for k, i in enumerate(source.inputs):
        layout = _layout(i)
        if layout is None or not any(layout.dims):
            continue
        reason = of_operand(source, rule, k, axes, layout)
        if reason is not MeetingReason.RESULT:
            return reason
    return MeetingReason.RESULT
