"""A whole Relay text as a tree: definitions of functions and types in any order, or one expression alone."""

from __future__ import annotations

from deepx_graph.errors import Diagnostic, ParseError, Source, Span
from deepx_graph.text.common.cursor import Token
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.relay.reader.metadata import Metadata
from deepx_graph.text.relay.reader.parser import RelayParser, parser
from deepx_graph.text.relay.reader.scanner import scan
from deepx_graph.text.relay.syntax import Constructed, Definition, Fn, Program, TypeDefinition


def parse(source: Source, options: ReadOptions) -> Program:
    """The tree of the text. Raises ParseError, LimitError."""
    tokens = scan(source)
    metadata = Metadata(source, tokens.metadata, options.max_rank)
    p = parser(tokens, metadata, options.max_depth, options.max_rank, options.max_nodes)
    program = Program([], [])
    while p.peek("def") or p.peek("type") or p.peek("extern"):
        if p.accept("def"):
            program.definitions.append(_definition(p))
        else:
            program.types.append(_type(p))
    if p.next.kind != "end" and not program.definitions and not program.types:
        start = p.next.start
        body = p.block()
        program.expression = Fn(start, body.end, p.free, body, None)
    if p.next.kind != "end":
        p.mismatch("def, type, or the end of the text")
    if program.expression is None and not program.definitions and not program.types:
        p.fail("the text defines nothing", expected="def @main(...) { ... }, or an expression")
    _check_names(source, program)
    program.warnings += p.warnings.values()
    return program


def _definition(p: RelayParser) -> Definition:
    name = p.expect_kind("globl", "the name of a function, like @main")
    return Definition(name.text[1:], name.start, name.end, p.function(name.start))


def _type(p: RelayParser) -> TypeDefinition:
    extern = p.accept("extern")
    p.expect("type")
    name = p.expect_kind("word", "the name of a type")
    params = p.type_params()
    p.variables += params
    constructors: list[Constructed] = []
    if p.accept("{"):
        constructors = p.items("}", lambda: _constructor(p))
    elif extern:
        p.accept(";")
    else:
        p.mismatch("'{' and the constructors")
    p.variables.clear()
    return TypeDefinition(name.text, name.start, name.end, params, constructors, extern)


def _constructor(p: RelayParser) -> Constructed:
    name: Token = p.expect_kind("word", "the name of a constructor")
    fields = p.items(")", p.type) if p.accept("(") else []
    return Constructed(name.text, name.start, name.end, fields)


def _check_names(source: Source, program: Program) -> None:
    """Raises ParseError where two functions, or two types or constructors, have one name."""
    functions = [("function @", d.name, d.start, d.end) for d in program.definitions]
    types = [("type or constructor ", t.name, t.start, t.end) for t in program.types]
    types += [("type or constructor ", c.name, c.start, c.end) for t in program.types for c in t.constructors]
    for group in (functions, types):
        met: dict[str, int] = {}
        for what, name, start, end in group:
            if name in met:
                line = source.position(met[name])[0]
                raise ParseError(Diagnostic(f"a second {what}{name}", Span(source, start, end), hint=f"first in line {line}"))
            met[name] = start
