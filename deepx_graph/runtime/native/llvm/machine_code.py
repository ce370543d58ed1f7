"""Machine functions of IR: linked already, stored by an earlier process, or compiled now."""

from __future__ import annotations

from collections.abc import Sequence

from deepx_graph.runtime.native.llvm import store
from deepx_graph.runtime.native.llvm.linking import linker
from deepx_graph.runtime.native.llvm.target import this_machine


def functions(ir: str, names: Sequence[str], owner: object = None) -> dict[str, int]:
    """The addresses of the functions that some IR defines; they are good as long as `owner` is there, without one for ever.

    Raises as `Target.compile` does.
    """
    machine = this_machine()
    digest = machine.digest(ir)
    found = linker().known(digest, owner)
    if found is not None:
        return found
    stored = store.load(digest)
    if stored is not None:
        try:
            return linker().link(digest, stored, names, owner)
        except RuntimeError:  # no object code, or not of these functions
            pass
    code = machine.compile(ir)
    store.save(digest, code)
    return linker().link(digest, code, names, owner)
