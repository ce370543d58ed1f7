"""Values of attributes as MLIR text: `array<i64: 1, 2>`, words and structs of the dialect, strings, numbers to the last bit."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, Span
from deepx_graph.ir import Node
from deepx_graph.ops.data.tape import tape_hint


class NoText(Exception):
    """What StableHLO cannot express, to be told with the place of the node."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def diagnostic(self, span: Span | None, node: Node | None = None) -> Diagnostic:
        """The same, at its place; about tapes with the node, as loops that grad makes have one place with many values."""
        tapes = tape_hint(node) if node is not None else None
        return Diagnostic(str(self), span, hint=self.hint or tapes, notes=(f"written for {node!r}",) if tapes else ())


def float_text(value: Any) -> str:
    """A float scalar exactly: short decimal where that does, else 17 digits; the bits for NaN and infinities."""
    number = float(value)
    if not math.isfinite(number):
        bits = np.asarray(value)
        return f"0x{int(bits.view(f'u{bits.dtype.itemsize}')):0{2 * bits.dtype.itemsize}X}"
    short = f"{number:.6e}"
    return short if float(short) == number else f"{number:.16e}"


def ints_text(values: Iterable[int]) -> str:
    """`array<i64: 1, 2>`."""
    words = ", ".join(map(str, values))
    return f"array<i64: {words}>" if words else "array<i64>"


def bools_text(values: Iterable[Any]) -> str:
    """`array<i1: true, false>`."""
    words = ", ".join("true" if v else "false" for v in values)
    return f"array<i1: {words}>" if words else "array<i1>"


def rows_text(rows: Sequence[Sequence[int]], width: int) -> str:
    """`dense<[[0, 1], [2, -1]]> : tensor<2x2xi64>`; -1 stands where a row has no more."""
    inner = ", ".join(f"[{', '.join(map(str, [*row, *[-1] * (width - len(row))]))}]" for row in rows)
    return f"dense<{f'[{inner}]' if inner else ''}> : tensor<{len(rows)}x{width}xi64>"


def struct_text(name: str, fields: Mapping[str, Any]) -> str:
    """`#stablehlo.name<field = [..], ...>`, empty lists left out."""
    shown = [f"{k} = {list(v) if isinstance(v, tuple) else v}" for k, v in fields.items() if v != ()]
    return f"#stablehlo.{name}<{', '.join(shown)}>"


def string_text(text: str) -> str:
    """A string in quotes, as MLIR escapes it."""
    plain = "".join(c if " " <= c <= "~" and c not in '"\\' else "".join(f"\\{b:02X}" for b in c.encode()) for c in text)
    return f'"{plain}"'


_ESCAPE = re.compile(rb"\\([0-9A-Fa-f]{2}|.)", re.DOTALL)
_ESCAPED = {b"n": b"\n", b"t": b"\t"}


def unescaped(text: str) -> str:
    """The string that is between the quotes: bytes of UTF-8 by two digits, a line's end, a tab, anything else as it is."""
    return _ESCAPE.sub(_byte, text.encode()).decode(errors="replace") if "\\" in text else text


def _byte(escape: re.Match[bytes]) -> bytes:
    code = escape[1]
    return bytes.fromhex(code.decode()) if len(code) == 2 else _ESCAPED.get(code, code)


def word_text(kind: str, word: str) -> str:
    """`#stablehlo<kind WORD>`."""
    return f"#stablehlo<{kind} {word}>"
