"""What gradients do not go through yet is refused, rather than taken for constant: fields of data, and what references hold."""

from __future__ import annotations

from collections.abc import Iterator

from deepx_graph.errors import Diagnostic, VerifyError
from deepx_graph.ir import Module, Node
from deepx_graph.ir.structure import PROJ
from deepx_graph.ops import carries, field, ref_read
from deepx_graph.passes.promote import Promote
from deepx_graph.passes.simplify import Simplify


def without_data(module: Module) -> Module:
    """The module, its references made values and data taken apart, where that can be.

    Raises VerifyError when a derivative would have to pass through a field or a reference.
    """
    if any(_blocked(module)):
        module = Simplify().run(Promote().run(module))
    found = [
        Diagnostic(f"no derivative passes through {what} yet", node.span, expected="tensors, tuples and functions on the way",
                   notes=(f"{node.op.name} : {node.type}",))
        for node, what in _blocked(module)
    ]  # fmt: skip
    if found:
        raise VerifyError(*found)
    return module


def _blocked(module: Module) -> Iterator[tuple[Node, str]]:
    for f in module.functions:
        for node in f.nodes:
            if node.op is field and carries(node.type):
                yield node, "the fields of data"
            elif node.op is PROJ and node.inputs[0].op is ref_read and node.attrs[0] == 0 and carries(node.type):
                yield node.inputs[0], "what references hold"
