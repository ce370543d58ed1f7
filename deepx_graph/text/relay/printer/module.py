"""Printing Relay: any module as text that TVM reads, and that this package reads back as the same module.

What Relay cannot express is a Diagnostic at the node; all of them are reported together, one for each function.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from deepx_graph.errors import Diagnostic, VerifyError
from deepx_graph.ir import Data, Function, Module
from deepx_graph.rewrite.legalise import legalise
from deepx_graph.text.relay.printer.function import Shared, Writer
from deepx_graph.text.relay.printer.literals import literals
from deepx_graph.text.relay.printer.loops import without_loops
from deepx_graph.text.relay.printer.names import Names, global_names
from deepx_graph.text.relay.printer.ops import TARGET, writing
from deepx_graph.text.relay.reader.lower import EXPRESSION
from deepx_graph.text.relay.reader.metadata import section
from deepx_graph.text.relay.words import result_text, type_text, variables
from deepx_graph.types import StateType

HEADER = '#[version = "0.0.5"]'


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
