"""`jvp`: a module that computes how a module's outputs change along a direction of its inputs; and Hessian-vector products.

The new entry takes the inputs of the old one, then a tangent `t_<input>` for each floating or complex input, or those in
`wrt`, and gives a tangent `t_<output>` for each floating or complex output. It needs no memory that grows with the length of a
loop. Effects contribute nothing; loads are kept, with what comes before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from deepx_graph.errors import Diagnostic, VerifyError
from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ops.vjp.accumulate import zeros
from deepx_graph.passes.autodiff.calls import Derivatives
from deepx_graph.passes.autodiff.forward import Forward, Tangent, tangent_types
from deepx_graph.passes.autodiff.grad import grad
from deepx_graph.passes.autodiff.prepare import (
    closed,
    input_name,
    straightened,
    unused_name,
    wanted_inputs,
    with_entry,
    with_plain_entry,
)
from deepx_graph.rewrite.base import Pass
from deepx_graph.types import FunctionType, TupleType, is_state


@dataclass(frozen=True)
class Jvp(Pass):
    """Replaces the program by the one that computes its outputs' tangents from its inputs and theirs.

    `wrt` names the inputs that move, in order; all floating and complex ones when it is empty.
    """

    name: ClassVar[str] = "jvp"
    wrt: tuple[str, ...] = ()

    def run(self, module: Module) -> Module:
        """The module of tangents; raises as `jvp` does."""
        return jvp(module, self.wrt or None)


def jvp(module: Module, wrt: Sequence[str] | None = None) -> Module:
    """The module whose entry maps inputs and tangents of inputs to tangents of outputs.

    Raises UsageError for a name in `wrt` that is no input, and VerifyError for an operation on the way that has no gradient.
    """
    module = straightened(module)
    entry = Derivatives(module).prepared(module.entry)
    inputs = wanted_inputs(entry, wrt)
    plain = [p for p in entry.params if not is_state(p.type)]
    for p in plain:
        if isinstance(p.type, FunctionType):
            raise VerifyError(Diagnostic("forward mode of a program that takes a function is not supported", p.span))
    b = Builder(peephole=True)
    taken = {p.name for p in entry.params}
    tangents = {p: b.param(len(plain) + k, p.type, unused_name(f"t_{input_name(entry, p)}", taken)) for k, p in enumerate(inputs)}
    forward = Forward(replace(module, functions=tuple(entry if f is module.entry else f for f in module.functions)))
    results = forward.run(b, entry, {p: (p, tangents.get(p)) for p in entry.params})
    leaves = [leaf for k, (value, t) in enumerate(results) for leaf in _leaves(b, value, t, entry.result_name(k))]
    function = closed(entry, [*plain, *tangents.values()], [t for t, _ in leaves], tuple(f"t_{name}" for _, name in leaves))
    more = forward.finish()
    return with_entry(replace(module, functions=(*module.functions, *more)), entry, function, "jvp")


def hvp(module: Module, wrt: Sequence[str] | None = None) -> Module:
    """How the gradient of a program changes along a direction: forward mode over reverse mode.

    The new entry takes the inputs, one cotangent `ct_<output>` for each floating or complex output, then a tangent `t_<input>` for
    each input in `wrt` (all floating and complex ones when None); it gives `t_grad_<input>` for those. Raises as `grad` does.
    """
    module = with_plain_entry(module)
    names = [input_name(module.entry, p) for p in wanted_inputs(module.entry, wrt)]
    return jvp(grad(module, names), names)


def _leaves(b: Builder, value: Node, tangent: Tangent, name: str) -> list[tuple[Node, str]]:
    """The tangents of a result's tensors, zeros included, with the tensors' names."""
    if isinstance(value.type, TupleType):
        parts = tangent or (None,) * len(value.type.items)
        return [leaf for k, t in enumerate(parts) for leaf in _leaves(b, b.proj(value, k), t, f"{name}_{k}")]
    if not tangent_types(value.type):
        return []
    return [(zeros(b, value.type, value) if tangent is None else tangent, name)]
