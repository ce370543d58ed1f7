"""Printing Relay: any module as text that TVM reads, and that this package reads back as the same module.

What Relay cannot express is a Diagnostic at the node; all of them are reported together, one for each function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from deepx_graph.errors import Diagnostic, VerifyError
from deepx_graph.ir import Data, Function, Module, Node
from deepx_graph.ir.structure import CALL, PARTIAL, callee_of
from deepx_graph.rewrite.legalise import legalise
from deepx_graph.text.relay.printer.function import Names, Shared, Writer
from deepx_graph.text.relay.printer.loops import without_loops
from deepx_graph.text.relay.printer.ops import TARGET, writing
from deepx_graph.text.relay.reader.lower import EXPRESSION
from deepx_graph.text.relay.reader.metadata import section
from deepx_graph.text.relay.words import result_text, type_text, unused, variables
from deepx_graph.types import FunctionType, StateType

_ILLEGAL = re.compile(r"[^\w.]", re.ASCII)
HEADER = '#[version = "0.0.5"]'
Sites = dict[str, list[tuple[Function, Node]]]


def write(module: Module) -> str:
    """The text of the module. Raises VerifyError with what Relay cannot express, naming the nodes."""
    module = without_loops(legalise(module, TARGET))
    inside = literals(module)
    written = [f for f in module.functions if f.name not in inside and (f.params or f.results or not module.datas)]
    names = global_names([f.name for f in written], _main(module, written))
    shared = Shared({f.name: f for f in module.functions}, names, inside, {d.name: d for d in module.datas})
    parts: list[str] = ["\n".join(_data(d)) for d in module.datas]
    problems: list[Diagnostic] = []
    is_expression = [f.name for f in written] == [EXPRESSION]
    for f in written:
        try:
            parts.append("\n".join(_expression(shared, f) if is_expression else _definition(shared, f)))
        except VerifyError as e:
            problems += e.diagnostics
    if problems:
        raise VerifyError(*problems)
    text = f"{HEADER}\n" + "\n\n".join(parts) + "\n"
    return f"{text}\n{section(list(shared.constants))}\n" if shared.constants else text


def global_names(wishes: list[str], main: str) -> dict[str, str]:
    """Legal and distinct names of functions, without `@`. The one of the name `main` is `@main`, and no other."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for wish in sorted(wishes, key=lambda wish: wish != main):
        name = "main" if wish == main else _ILLEGAL.sub("_", wish)
        if not name or not (name[0].isalpha() or name[0] == "_"):
            name = f"f{name}"
        found[wish] = unused(name, taken, "_")
    return found


def _main(module: Module, written: Sequence[Function]) -> str:
    """The function that is `@main`: the entry, as TVM wants it; none in a library of Relay, whose first function stands for it."""
    is_library = module.format == "relay" and written[:1] == [module.entry] and "main" not in module
    return "" if is_library else module.entry_name


def _data(data: Data) -> Iterator[str]:
    params = f"[{', '.join(data.params)}]" if data.params else ""
    if data.extern and not data.constructors:
        yield f"extern type {data.name}{params}"
        return
    yield f"{'extern ' if data.extern else ''}type {data.name}{params} {{"
    for c in data.constructors:
        fields = ", ".join(map(type_text, c.fields))
        yield f"  {c.name}({fields})," if fields else f"  {c.name},"
    yield "}"


def _definition(shared: Shared, function: Function) -> Iterator[str]:
    """`def @name[A](%x: T, attribute=value) -> T { ... }`"""
    writer = Writer(shared, function, Names(), {}, {})
    heads = [*writer.params(function.params), *(f"{k}={v}" for k, v in function.attributes)]
    generic = variables(function.type)
    results = [r for r in function.results if not isinstance(r.type, StateType)]
    for r in results:
        with writing(r):
            type_text(r.type)
    result = result_text([r.type for r in results])
    arrow = "" if "_" in result else f" -> {result}"
    params = f"[{', '.join(generic)}]" if generic else ""
    yield f"def @{shared.names[function.name]}{params}({', '.join(heads)}){arrow} {{"
    yield from writer.body("  ")
    yield "}"


def _expression(shared: Shared, function: Function) -> Iterator[str]:
    """What was read from an expression alone: its free variables, and the expression."""
    writer = Writer(shared, function, Names(), {}, {})
    yield from (f"free_var {head};" for head in writer.params(function.params))
    yield from writer.body("")


# --- functions that are written as literals -----------------------------------------------------------------------


def literals(module: Module) -> frozenset[str]:
    """The names of the functions that stand where their closure is made: called else only from within."""
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
