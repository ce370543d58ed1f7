"""Where nodes will run, as far as fusion must know: two nodes of one place may share a kernel.

Places are the blocks of global code motion (`ir/placement.py`), which the scheduler uses too. Nodes fused within one place leave
everything where it was, so no work enters a loop and no untaken branch runs.
"""

from __future__ import annotations

from deepx_graph.ir import Function, Node
from deepx_graph.ir.liveness import liveness
from deepx_graph.ir.placement import Draft, Placement

_WORDS = {"branch": "a branch of", "header": "the test of", "body": "the body of", "once": "the first turn of"}


def places(function: Function) -> dict[Node, Draft]:
    """The place of every node that is needed and not known from the start, as parameters, constants and loop variables are."""
    return {node: block for block in Placement(function, liveness(function)).blocks for node in block.nodes}


def describe_place(place: Draft) -> str:
    """A place in words: `in the body of loop_end #12`."""
    if place.owner is None:
        return "at the top level"
    owner = place.owner
    at = f" at {owner.span}" if owner.span else ""
    return f"in {_WORDS[place.kind]} {owner.op.name} {owner.name or '#' + str(owner.serial)}{at}"
