"""Which values have names in the text, and what these are: legal, each given once; none for the state that only orders checks."""

from __future__ import annotations

import re
from collections.abc import Set

from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CALL, LOOP_BEGIN, LOOP_END, PHI, PROJ, REGION, callee_of, index_of, signature_of
from deepx_graph.types import StateType

_LEGAL = re.compile(r"[A-Za-z_$.\-][\w$.\-]*", re.ASCII)


def is_legal(name: str) -> bool:
    """Whether `%name` is the name of a value in MLIR, and no bare number."""
    return _LEGAL.fullmatch(name) is not None


class ValueNames:
    """Value names that are not taken twice."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}
        self._count = 0

    def claim(self, wish: str) -> str:
        """`%wish`, or with a number after it; a bare number for a wish that is no name."""
        if not is_legal(wish):
            self._count += 1
            return f"%{self._count - 1}"
        name = wish
        while name in self._taken:
            number = self._next.get(wish, 0)
            self._next[wish] = number + 1
            name = f"{wish}_{number}"
        self._taken.add(name)
        return f"%{name}"


def hides_state(function: Function) -> bool:
    """Whether the last parameter is the state of a program with effects, and the last result too."""
    if not function.params or not function.results:
        return False
    return isinstance(function.params[-1].type, StateType) and isinstance(function.results[-1].type, StateType)


def hidden_states(function: Function, checking: Set[str]) -> set[Node]:
    """The states that come from the hidden parameter, if `checking` names the function; tokens are other states, and are shown."""
    if function.name not in checking:
        return set()
    found = {function.params[-1]}
    for node in function.nodes:
        if isinstance(node.type, StateType) and node.inputs and _is_hidden(node, found, checking):
            found.add(node)
    return found


def _is_hidden(node: Node, found: Set[Node], checking: Set[str]) -> bool:
    whole = node.inputs[0]
    if node.op is not PHI and node.op is not PROJ:
        return whole in found
    at = index_of(node)
    if whole.op is CALL:
        return callee_of(whole) in checking and at == len(signature_of(whole).results) - 1
    if whole.op is REGION:
        return whole.inputs[1 + at] in found
    if whole.op is LOOP_BEGIN:
        return whole.inputs[at] in found
    if whole.op is LOOP_END:
        return whole.inputs[0].inputs[at] in found
    return bool(whole.inputs) and whole.inputs[0] in found
