"""`shard`: from a program on whole tensors to that of one device, under shardings that text or plan state, or chosen ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from deepx_graph.errors import Diagnostic, UsageError
from deepx_graph.files import read_text
from deepx_graph.ir import Module
from deepx_graph.planning.automatic import SECONDS
from deepx_graph.planning.cluster import preset
from deepx_graph.planning.search import IN_STAGES
from deepx_graph.rewrite.base import Pass
from deepx_graph.sharding.annotations import needed_plan
from deepx_graph.sharding.by_hand.opened import opened
from deepx_graph.sharding.notation import mesh_from_option
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.plan import read_plan
from deepx_graph.sharding.propagate import propagate


@dataclass(frozen=True)
class Shard(Pass):
    """The program that every device of a mesh runs on its parts: shardings that the text states, or the file of a `plan`,
    propagated, with collectives.

    With `auto` they are chosen for a `mesh` of axes and sizes, such as data:4,model:2, by what a step is predicted to take on a
    `cluster`, so that a device needs at most `memory` bytes, such as 16G; the search ends after so many `seconds`. It makes one
    program: `simulate --devices` finds how many stages are best, `run --stages` runs them.
    """

    name: ClassVar[str] = "shard"
    auto: bool = False
    mesh: tuple[str, ...] = ()
    memory: str = ""
    cluster: str = "h100"
    seconds: int = int(SECONDS)
    plan: str = ""

    def __post_init__(self) -> None:
        """Raises UsageError for options that do not go together, or say nothing."""
        if self.auto != bool(self.mesh):
            raise UsageError(Diagnostic("shard chooses shardings for a mesh", expected="shard{auto mesh=data:4,model:2}",
                                        hint=IN_STAGES))
        if self.auto and self.plan:
            raise UsageError(Diagnostic("shard chooses shardings, or takes those of a plan", expected="shard{plan=m.plan}"))
        if self.auto:
            mesh_from_option(",".join(self.mesh))
            preset(self.cluster)
            bytes_of(self.memory)

    def run(self, module: Module) -> Module:
        """Raises UsageError where nothing states a sharding, and for what has no parts; ParseError for a plan that does not fit."""
        split = opened(module)
        if not self.auto:
            given = read_plan(read_text(self.plan), split.entry, self.plan) if self.plan else needed_plan(split)
            return partition(split, propagate(given)).module
        from deepx_graph.passes.chosen_plan import chosen_plan  # runs passes, which know this one

        mesh, memory = mesh_from_option(",".join(self.mesh)), bytes_of(self.memory)
        found = chosen_plan(split, mesh, preset(self.cluster), memory, self.seconds)
        return partition(split, found.plan).module


def bytes_of(text: str) -> float | None:
    """A number of bytes as `16G`; None for nothing. Raises UsageError."""
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}.get(text[-1:].upper(), 1)
    digits = text[:-1] if factor > 1 else text
    if not text:
        return None
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 18 or int(digits) == 0:
        raise UsageError(Diagnostic(f"'{text}' is no number of bytes", expected="16G"))
    return float(int(digits) * factor)
