"""Operators of a model taken together: two of them by one that means the same, never more of them nor larger constants.

Normalisation, sums and padding go into the convolution or product beside them; reshapings in a row are one, and transpositions;
what is computed twice is computed once. A result of floats may change by rounding, and in the sign of a zero.
"""

from __future__ import annotations

from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.rebuild import rebuilt, with_inputs
from deepx_graph.ir.structure import CONSTANT
from deepx_graph.text.onnx.merges import linear, shapes, values
from deepx_graph.text.onnx.merges.operator import Merge, Uses, operator
from deepx_graph.text.onnx.rules.elementwise import ELEMENTWISE

MERGES: dict[str, tuple[Merge, ...]] = {
    "BatchNormalization": (linear.batch_norm,), "Add": (values.neutral, linear.added),
    "Sub": (values.neutral, linear.into_conv), "Mul": (values.neutral, linear.into_conv),
    "Div": (values.neutral, linear.into_conv), "Pow": (values.neutral,), "Conv": (linear.padded,),
    "Gemm": (linear.of_zeros, linear.transposed_factor), **dict.fromkeys(shapes.VIEWS, (shapes.view,)),
    "Transpose": (shapes.transposed,),
    "Concat": (shapes.concatenated,), "ConcatFromSequence": (shapes.concatenated_items,), "SequenceAt": (shapes.item,),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), (values.without_states,)),
}  # fmt: skip
"""What is tried for each operator, in order."""

for _name in ELEMENTWISE:
    MERGES[_name] = (*MERGES.get(_name, ()), shapes.spread_by_itself, shapes.turned_later)


def merged(module: Module) -> Module:
    """The module with kept operators taken together until nothing changes."""
    while True:
        after = module.with_functions([_merged(f) for f in module.functions])
        if after is module:
            return module
        module = after


def _merged(function: Function) -> Function:
    counts: dict[Node, int] = {}
    for n in function.nodes:
        for x in n.inputs:
            counts[x] = counts.get(x, 0) + 1
    for r in function.results:
        counts[r] = counts.get(r, 0) + 1
    uses, found = Uses(dict(counts)), values.shortest_named(n for n in function.nodes if n.op is CONSTANT)

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        again = with_inputs(node, inputs)
        key = values.key_of(again)
        made = found.get(key)
        if made is None:
            if again is not node:
                uses.counts[again] = counts.get(node, 0)
            made = _simpler(uses, again) or again
            if key is not None:
                found[key] = made
        if made is not node:
            uses.counts[made] = uses.counts.get(made, 0) + counts.get(node, 0)
        return made

    return rebuilt(function, step)


def _simpler(uses: Uses, node: Node) -> Node | None:
    """What the first merge makes of a node that applies to it."""
    kept = operator(node)
    if kept is None:
        return None
    return next((made for merge in MERGES.get(kept.name, ()) if (made := merge(uses, kept)) is not None), None)
