"""Two nodes that should compute the same: whether they do, by samples over their cut, and where that does not decide in a run.

A rewrite may use what is known of an operand, so where values differ the cut is moved down, and at last the program's own values
decide (`WholeProgram.difference`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from deepx_graph.ir import Module, Node
from deepx_graph.ir.structure import CONSTANT
from deepx_graph.validation.cones import Cut
from deepx_graph.validation.discrepancy import Discrepancy
from deepx_graph.validation.whole import WholeProgram

STEPS = (0, 1, 2)
"""By how many nodes a cut is moved down, each time that values differ, before it is moved as far as it goes."""

MOST_KNOWN = 1 << 15

KNOWN: dict[Any, None] = {}
"""Cuts whose two nodes were found to be alike, by their keys and the samples: programs repeat themselves."""


class PairDifference(NamedTuple):
    """How two nodes differ, over which cut, and with which values of its leaves."""

    cut: Cut
    how: Discrepancy
    filling: Mapping[Node, Any]


def compare_pair(cut: Cut, module: Module, whole: WholeProgram, first: int = 0) -> PairDifference | None:
    """How the two nodes of a cut in a module differ. `first` numbers the samples: others see other values.

    Raises NoValueError where there is nothing to compare.
    """
    for steps in STEPS if cut.after.op is not CONSTANT else STEPS[:1]:
        for _ in range(steps):
            cut = cut.lower()
        key = cut.key, first
        if key in KNOWN:
            return None
        if _sampled(cut, first) is None:
            if len(KNOWN) < MOST_KNOWN:
                KNOWN[key] = None
            return None
    cut = cut.bottom()
    found = _sampled(cut, first)
    if found is not None and (not cut.free or cut.leaves_of_functions(module)):
        found = whole.difference(module, cut)
    return None if found is None else PairDifference(cut, *found)


def _sampled(cut: Cut, first: int) -> tuple[Discrepancy, Mapping[Node, Any]] | None:
    for filling in cut.fillings(first):
        found = cut.difference(filling)
        if found is not None:
            return found, filling
    return None
