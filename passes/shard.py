"""`shard`: from a program on whole tensors to that of one device, under the shardings that its text states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from deepx_graph.ir import Module
from deepx_graph.rewrite.base import Pass
from deepx_graph.sharding.annotations import needed_plan
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.propagate import propagate


@dataclass(frozen=True)
class Shard(Pass):
    """The program that every device of a mesh runs on its parts: shardings that the text states, propagated, with collectives."""

    name: ClassVar[str] = "shard"

    def run(self, module: Module) -> Module:
        """Raises UsageError where the text states no sharding, and for what has no parts."""
        return partition(module, propagate(needed_plan(module))).module
