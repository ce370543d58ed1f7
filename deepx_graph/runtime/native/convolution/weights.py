"""Packing the weights of a convolution into panels as wide as a tile has features, in the order in which its sums read them."""

from __future__ import annotations

from deepx_graph.runtime.native.convolution.plan import DirectPlan, Lanes
from deepx_graph.runtime.native.dispatch import TableSlot
from deepx_graph.runtime.native.gemm.elements import PanelElements
from deepx_graph.runtime.native.gemm.panels import Panels
from deepx_graph.runtime.native.gemm.plan import ONE, GemmAxis, joined
from deepx_graph.runtime.native.llvm.builder import IRBuilder, digit, each_share, least, part_of_range

PACKED_SHARE = 1 << 15
"""Weights of a share of packing, at least: some microseconds."""


def pack_shares(plan: DirectPlan) -> int:
    """How many shares packing has: parts of the sums of panels."""
    return plan.groups * plan.panels * _parts(plan)


def _parts(plan: DirectPlan) -> int:
    return max(1, min(_runs(plan)[0].size, plan.panel_size // PACKED_SHARE))


def _runs(plan: DirectPlan) -> list[GemmAxis]:
    """The axes of a sum in the order of packing; neighbours that are one run made one."""
    return joined([GemmAxis(term.size, (term.w, 0, 0)) for term in plan.terms]) or [ONE]


def packing(plan: DirectPlan, weights: TableSlot, packed: TableSlot, declarations: dict[str, None]) -> list[str]:
    """The function `pack(table, counter, scratch)`, whose shares are parts of the outermost run of a panel, and what it calls; that
    adds to the declarations."""
    p, runs, parts, t = plan.problem, _runs(plan), _parts(plan), IRBuilder(plan.width)
    group_step, step = (0, p.w[0]) if plan.method.lanes is Lanes.GROUPS else p.w[:2]
    source, target = (slot.address(t) for slot in (weights, packed))

    def share(number: str) -> None:
        part, number = digit(t, number, parts)
        panel, group = digit(t, number, plan.panels)
        low, count = part_of_range(t, part, parts, runs[0].size)
        first = t.let(f"mul i64 {panel}, {plan.panel}")
        given = t.moved(source, p.dtype, (group, group_step), (first, step), (low, runs[0].steps[0]))
        into = t.moved(target, p.dtype, (number, plan.panel_size), (low, plan.panel_size // runs[0].size))
        features = least(t, t.let(f"sub i64 {plan.features}, {first}"), str(plan.panel))
        counts = "".join(f", i64 {n}" for n in (count, *(run.size for run in runs[1:])))
        t.line(f"call void @panel(ptr {into}, ptr {given}, i64 {features}, i64 0, i64 0{counts})")

    each_share(t, pack_shares(plan), share)
    panels = Panels(PanelElements(p.dtype), plan.panel, step, tuple(run.steps[0] for run in runs))
    return [t.function("void @pack(ptr %table, ptr %counter, ptr %scratch) nounwind"),
            panels.function("panel", plan.width, declarations)]
