"""Tables in Markdown, and documents whose tables are written again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table, the first column to the left and the others to the right."""
    return "\n".join(["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|",
                      *("| " + " | ".join(cells) + " |" for cells in lines)])


def replaced(path: Path, begin: str, end: str, tables: str) -> str:
    """The text of a file with tables between two markers. Raises ValueError when it has none."""
    before, first, rest = path.read_text(encoding="utf-8").partition(begin)
    _, last, after = rest.partition(end)
    if not (first and last):
        raise ValueError(f"{path} has no lines '{begin}' and '{end}'")
    return f"{before}{begin}\n\n{tables}\n\n{end}{after}"
