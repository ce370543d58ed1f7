"""Loop programs as text, to be looked at."""

from __future__ import annotations

from collections.abc import Iterator

from deepx_graph.loops.program import (
    Buffer,
    Combine,
    Conditional,
    Copy,
    For,
    Get,
    Let,
    Load,
    LoopProgram,
    Set,
    Statement,
    Store,
    While,
)


def show(program: LoopProgram) -> str:
    """The program: its buffers, then its statements."""
    lines = [f"{b.role} {b.name}: {_type(b)}" for b in (*program.arguments, *program.results, *program.constants, *program.scratch)]
    return "\n".join([*lines, *_block(program.body, "")]) + "\n"


def _type(b: Buffer) -> str:
    return f"{b.dtype}[{','.join(map(str, b.shape))}]"


def _block(body: list[Statement], indent: str) -> Iterator[str]:
    for s in body:
        yield from (indent + line for line in _lines(s))


def _lines(s: Statement) -> Iterator[str]:
    match s:
        case Let(target, primitive, args):
            kind = f" to {target.dtype}" if primitive in ("cast", "bitcast") else ""
            yield f"{target} = {primitive}({', '.join(map(str, args))}){kind}"
        case Load(target, buffer, index):
            yield f"{target} = {buffer}[{', '.join(map(str, index))}]"
        case Store(buffer, index, value):
            yield f"{buffer}[{', '.join(map(str, index))}] = {value}"
        case Copy(target, source):
            yield f"{target} = copy of {source}"
        case Get(target, cell):
            yield f"{target} = {cell}"
        case Set(cell, value):
            yield f"{cell} = {value}"
        case Combine(cell, primitive, value):
            yield f"{cell} = {primitive}({cell}, {value})  in any order"
        case For(axis, low, high, body, parallel):
            yield f"{'parallel' if parallel else 'for'} {axis} in {low} .. {high}:"
            yield from _block(body, "  ")
        case While(test, condition, body):
            yield "while:"
            yield from _block(test, "    ")
            yield f"  {condition}:"
            yield from _block(body, "    ")
        case Conditional(condition, then, otherwise):
            yield f"if {condition}:"
            yield from _block(then, "  ")
            if otherwise:
                yield "else:"
                yield from _block(otherwise, "  ")
