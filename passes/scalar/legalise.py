"""Legalisation as a pass: what a printer does to a program before it writes it, to be looked at step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from deepx_graph.errors import Diagnostic, UsageError, suggest
from deepx_graph.ir import Module
from deepx_graph.rewrite.base import Pass, RewriteControl
from deepx_graph.rewrite.legalise import legalise
from deepx_graph.rewrite.targets import TARGETS


@dataclass(frozen=True)
class Legalise(Pass):
    """Decomposes what a language lacks into operations that it has."""

    name: ClassVar[str] = "legalise"

    target: str = "hlo"

    def run_under(self, module: Module, control: RewriteControl) -> Module:
        """Raises UsageError for a target that is none."""
        if self.target not in TARGETS:
            raise UsageError(Diagnostic(f"legalise: no target '{self.target}'", expected=" | ".join(TARGETS),
                                        hint=suggest(self.target, TARGETS)))
        return legalise(module, TARGETS[self.target](), lambda before, after: control.permit("decompose", before, after))
