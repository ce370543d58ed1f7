"""Which functions of a module are written as literals: those that exist for one closure, and are called else only from within."""

from __future__ import annotations

from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.structure import CALL, PARTIAL, callee_of
from deepx_graph.text.relay.words import variables
from deepx_graph.types import FunctionType

Sites = dict[str, list[tuple[Function, Node]]]


def literals(module: Module) -> frozenset[str]:
    """The names of the functions that stand where their closure is made."""
    sites: Sites = {f.name: [] for f in module.functions}
    for f in module.functions:
        for node in f.nodes:
            if (node.op is CALL or node.op is PARTIAL) and callee_of(node) in sites:
                sites[callee_of(node)].append((f, node))
    found: dict[str, str] = {}
    changed = True
    while changed:
        changed = False
        for f in module.functions:
            if f.name not in found and not f.public and f.name != module.entry_name:
                owner = _owner(f, sites[f.name], found)
                if owner is not None and _is_closed(f, module[owner]) and not _around(owner, f.name, found):
                    found[f.name] = owner
                    changed = True
    return frozenset(found)


def _owner(function: Function, sites: list[tuple[Function, Node]], found: dict[str, str]) -> str | None:
    """The function that makes the one closure, if all other uses are inside with the same captured values."""
    outside = [(f, n) for f, n in sites if f is not function and not _around(f.name, function.name, found)]
    if len(outside) != 1 or outside[0][1].op is not PARTIAL:
        return None
    count = len(outside[0][1].inputs)
    for f, n in sites:
        if f is function and n.inputs[:count] != function.params[:count]:
            return None
        if n.op is PARTIAL and n is not outside[0][1] and len(n.inputs) != count:
            return None
    return outside[0][0].name


def _around(name: str, outer: str, found: dict[str, str]) -> bool:
    """Whether `outer` stands around `name`, or is it."""
    at: str | None = name
    while at is not None:
        if at == outer:
            return True
        at = found.get(at)
    return False


def _is_closed(function: Function, owner: Function) -> bool:
    """Whether the function is generic in nothing but what its owner is generic in."""
    return set(variables(function.type)) <= set(variables(owner.type) + _inner(owner))


def _inner(owner: Function) -> list[str]:
    return [v for n in owner.nodes if isinstance(n.type, FunctionType) for v in variables(n.type)] if variables(owner.type) else []
