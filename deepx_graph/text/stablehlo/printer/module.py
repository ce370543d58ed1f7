"""Printing StableHLO: any module as MLIR text, in the generic form of operations, which MLIR and this package's reader accept.

Loops become `while`, branches `if` and `case`, calls `func.call`, bodies of operations regions. Values keep their names where these
are legal; results have none, and the entry is `main`. What StableHLO cannot express is a Diagnostic at the node.
"""

from __future__ import annotations

import re

from deepx_graph.errors import Diagnostic, VerifyError
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.node import Notes
from deepx_graph.rewrite.legalise import ConversionTarget, Legaliser
from deepx_graph.text.stablehlo.literals import type_text
from deepx_graph.text.stablehlo.notes import LINE, LocationTable, notes_text
from deepx_graph.text.stablehlo.printer.by_hand import written_inside
from deepx_graph.text.stablehlo.printer.function import MlirWriter
from deepx_graph.text.stablehlo.printer.legal import TARGET, flattened
from deepx_graph.text.stablehlo.printer.names import hides_state
from deepx_graph.text.stablehlo.printer.ops import has_tokens
from deepx_graph.text.stablehlo.syntax import VJP
from deepx_graph.text.xla.mlir_text import NoText

_BARE = re.compile(r"[A-Za-z_][\w$.]*", re.ASCII)
_UNQUOTABLE = re.compile(r'["\\]|[^ -~]')


def write(module: Module, target: ConversionTarget = TARGET) -> str:
    """The module's text. Raises VerifyError with every node that the target cannot express."""
    checking = set() if has_tokens(module) else {f.name for f in module.functions if hides_state(f)}
    symbols = _symbols(module)
    locations = LocationTable()
    lines = [_module_head(module), *(f"  {text}" for name, text in module.notes if name == LINE)]
    problems: list[Diagnostic] = []
    legaliser = Legaliser(target)
    legal: dict[str, Function] = {}
    for f in module.functions:
        try:
            legal[f.name] = legaliser.function(flattened(f))
        except VerifyError as e:
            problems += e.diagnostics
            legal[f.name] = f.with_(results=f.params)  # whose types may be another problem
    devices = {name: legal[name] for name in written_inside(module.with_functions(legal.values())) & checking}
    for f in module.functions:
        if f.name in devices:
            continue
        w = MlirWriter(legal[f.name], symbols, checking, locations, starts=f is module.entry and not checking, devices=devices)
        lines.append(_head(w, f, symbols[f.name], f.public or f is module.entry))
        w.body("return")
        lines += [*w.lines, "  }"]
        problems += w.problems
    if problems:
        raise VerifyError(*dict.fromkeys(problems))
    return "\n".join([*lines, "}", *locations.lines(), ""])


def _module_head(module: Module) -> str:
    name = f" @{_symbol(module.name)}" if module.name else ""
    notes = notes_text(module.notes)
    return f"module{name} {f'attributes {{{notes}}} ' if notes else ''}{{"


def _head(w: MlirWriter, function: Function, symbol: str, public: bool) -> str:
    try:
        said = dict(enumerate(w.function.result_notes))
        results = ", ".join(_result(r, said.get(k, ())) for k, r in enumerate(w.function.results) if r in w.given((r,)))
    except NoText as e:
        w.problems.append(e.diagnostic(function.span))
        results = ""
    vjp = f" attributes {{{VJP} = @{w.symbols[function.vjp]}}}" if function.vjp is not None and function.vjp in w.symbols else ""
    return f"  func.func {'' if public else 'private '}@{symbol}({w.declared()}) -> ({results}){vjp} {{"


def _result(result: Node, notes: Notes) -> str:
    said = notes_text(notes)
    return type_text(result.type) + (f" {{{said}}}" if said else "")


def _symbols(module: Module) -> dict[str, str]:
    """The functions' names in the text, quoted where they must be. The entry is `main`, as XLA and other tools want it."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for f in sorted(module.functions, key=lambda f: f is not module.entry):
        wish = "main" if f is module.entry else _UNQUOTABLE.sub("_", f.name) or "_"
        name, number = wish, 0
        while name in taken:
            name, number = f"{wish}_{number}", number + 1
        taken.add(name)
        found[f.name] = _symbol(name)
    return found


def _symbol(name: str) -> str:
    """A name as it stands after `@`."""
    return name if _BARE.fullmatch(name) else f'"{_UNQUOTABLE.sub("_", name)}"'
