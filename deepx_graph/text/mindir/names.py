"""Names as MindIR makes them, and as they are shown: without the graph and the numbers that make them unlike others."""

from __future__ import annotations

from deepx_graph.errors import Place
from deepx_graph.text.mindir.scopes import Scopes


def place_of(domain: str) -> Place | None:
    """Where the user's program has it: `model.py:42` in a dump, the scope of the layers in a binary file."""
    file, _, line = domain.rpartition(":")
    if file and line.isdigit():
        return Place(file, int(line))
    return Place(label=domain) if domain else None


def short(name: str) -> str:
    """A name without the graph that it belongs to and the number that makes it unlike others."""
    parts = [p for p in name.split(":") if p and not p.isdigit()]
    return parts[-1] if parts else name


def names_of(scopes: Scopes) -> dict[str, str]:
    """A name for each graph: its own, made of letters, digits and `_`; numbered where two would be alike."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in scopes.graphs:
        plain = "".join(c if c.isalnum() and c.isascii() else "_" for c in name).strip("_") or "graph"
        base, k = plain, 1
        while plain in taken:
            k += 1
            plain = f"{base}_{k}"
        taken.add(plain)
        found[name] = plain
    return found
