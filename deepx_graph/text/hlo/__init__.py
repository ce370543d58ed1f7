"""XLA HLO text: written as XLA's parser takes it; read as any printer of XLA's writes it, long or short, layouts or none."""

from __future__ import annotations

import re

from deepx_graph.errors import Source
from deepx_graph.ir import Module
from deepx_graph.text.common.options import ReadOptions, ReadResult

__all__ = ["beginning", "detect", "is_protobuf", "read", "write"]

_COMPUTATION = re.compile(r"^[^\S\n]*(ENTRY\s+)?%?[\w.\-]+[^\S\n]*(\([^)\n]*\)\s*->\s*[^{\n]+)?\{\s*$", re.MULTILINE)
"""On one line: what looked for the brace further down would take the square of a text's length."""

_INSTRUCTION = re.compile(r"^\s*(ROOT\s+)?%?[\w.\-]+\s*=\s*\(?\s*[a-z]\w*\[[\d,<=\s?]*\]", re.MULTILINE)

_ENTRY = re.compile(r"^ENTRY\b[^\n]*\{[^\S\n]*\n", re.MULTILINE)
_LAST = re.compile(r"\s*(ROOT\b|\}\s*$)")
_CALLED = re.compile(r"(?:to_apply|calls|condition|body|[a-z]+_computations?)=\{?((?:%?[\w.\-]+(?:,\s*(?=%))?)+)")
LINE = 400
"""Letters of a line, on average, that are looked at."""


def is_protobuf(head: bytes) -> bool:
    """Whether a file that begins like this is an HLO module as a protocol buffer, or a dump or snapshot with one."""
    from deepx_graph.text.hlo.proto.level import level

    return level(head) is not None


def detect(text: str) -> float:
    """How likely the text is HLO: 0 to 1."""
    from deepx_graph.text.hlo.proto.level import text_kind

    if re.search(r"^\s*HloModule\s", text, re.MULTILINE) or text_kind(text):
        return 1.0
    return 0.7 if _COMPUTATION.search(text) and _INSTRUCTION.search(text) else 0.0


def read(source: Source, options: ReadOptions) -> ReadResult:
    """The program. Raises ParseError or VerifyError with spans, LimitError where a bound is exceeded."""
    from deepx_graph.text.hlo.reader.lower import HloLowering, parsed

    program, recorded = parsed(source, options)
    lowering = HloLowering(program)
    return ReadResult(lowering.module(), tuple(lowering.warnings), recorded)


def beginning(text: str, instructions: int) -> str | None:
    """A program of the entry's first lines and of what they call, to be seen while a large one is read; None for a small one."""
    entry = _ENTRY.search(text)
    if entry is None:
        return None
    lines = text[entry.end() : entry.end() + instructions * LINE].split("\n")[:instructions]
    if len(lines) < instructions or any(_LAST.match(line) for line in lines):
        return None
    called = _called(text[: entry.start()], lines)
    return "\n".join(["HloModule beginning", *called, "ENTRY beginning {", *lines, "}", ""])


def _called(before: str, lines: list[str]) -> list[str]:
    """The computations that lines call, and those that these call, in the order of the text before them."""
    found: dict[str, re.Match[str] | None] = {}
    waiting = list(lines)
    while waiting:
        for name in re.findall(r"[\w.\-]+", " ".join(_CALLED.findall(waiting.pop()))):
            if name not in found:
                computation = re.compile(rf"^%?{re.escape(name)}\s[^\n]*\{{\n.*?^\}}[^\n]*$", re.MULTILINE | re.DOTALL)
                match = found[name] = computation.search(before)
                waiting.append(match[0] if match else "")
    return [m[0] for m in sorted(filter(None, found.values()), key=lambda m: m.start())]


def write(module: Module) -> str:
    """The text of a module. Raises VerifyError for a node that HLO cannot express."""
    from deepx_graph.text.hlo.printer.module import write as write_module

    return write_module(module)
