"""`internalize`: of all functions only the entry, and those asked for, stay public; the others may then change and vanish.

What is public keeps its parameters, so a function that takes closures, data or references stays as it is although nobody calls it
any more. Source: the internalize pass of LLVM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from deepx_graph.ir import Module
from deepx_graph.rewrite.base import Pass


@dataclass(frozen=True)
class Internalize(Pass):
    """Makes every function but the entry, and those named in `keep`, private."""

    name: ClassVar[str] = "internalize"
    keep: tuple[str, ...] = ()

    def run(self, module: Module) -> Module:
        kept = {module.entry_name, *self.keep}
        return module.with_functions(f.with_(public=False) if f.public and f.name not in kept else f for f in module.functions)
