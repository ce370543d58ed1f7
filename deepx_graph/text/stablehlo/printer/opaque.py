"""Operations that this package does not know, printed as their text has them, on other value names.

The text is read once more for its syntax; only names of values change in it. A text that is cut, is of another language, or uses
values from outside in its regions cannot be printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from deepx_graph.errors import DeepxGraphError, Source
from deepx_graph.text.stablehlo.reader.parser import MlirParser
from deepx_graph.text.stablehlo.syntax import Operation
from deepx_graph.text.xla.mlir_text import NoText

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|(%[\w$.\-]+)(#\d+)?')
_LOCATION = re.compile(r"\s*\bloc\((?:#\w+|unknown|\"[^\"]*\"(?::\d+:\d+)?)\)")
MAX_TEXT = 1_000_000


def respell(name: str, text: str, operands: Sequence[str], claim: Callable[[str], str]) -> tuple[str, int]:
    """The operation without its results, on these operands, and how many results it names. Raises NoText."""
    op = _parsed(name, text)
    if len(op.operands) != len(operands):
        raise NoText(f"StableHLO cannot express '{name}': its text has {len(op.operands)} operands")
    names = {old: new for (old, _), new in zip(op.operands, operands, strict=True)}
    inner: dict[str, str] = {}
    for name in _defined(op):
        inner.setdefault(name, "")
    for name in inner:
        inner[name] = claim(name[1:])
    if op.results:
        text = text[text.index("=") + 1 :]

    def renamed(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        if match[0] in names:
            return names[match[0]]
        if match[1] not in inner:
            raise NoText(f"StableHLO cannot express '{name}': its region uses '{match[1]}' from outside")
        return inner[match[1]] + (match[2] or "")

    return _TOKEN.sub(renamed, _LOCATION.sub("", text)).strip(), len(op.results)


def _parsed(name: str, text: str) -> Operation:
    refusal = NoText(f"StableHLO cannot express '{name}': its text is not an operation of MLIR, or not all of it is kept")
    try:
        parser = MlirParser(Source("opaque", text), MAX_TEXT)
        op = parser.operation()
    except DeepxGraphError:
        raise refusal from None
    if text[op.end :].strip() or "." not in op.name or op.name != name.split(" ")[0]:
        raise refusal
    return op


def _defined(op: Operation) -> list[str]:
    """The names of values that the regions of an operation define."""
    found: list[str] = []
    work = [op]
    while work:
        for region in work.pop().regions:
            for block in region:
                found += [arg.name for arg in block.args]
                for inner in block.operations:
                    found += [r.partition("#")[0] for r in inner.results]
                    work.append(inner)
    return found
