"""What is looked at as a file: a picture by the suffix, or a program in the language of the suffix.

The file appears whole or not at all, and an existing one is not overwritten unless that is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deepx_graph.errors import Diagnostic, UsageError
from deepx_graph.files import write_file
from deepx_graph.ir import Function, Module, Node
from deepx_graph.session.programs import dumps
from deepx_graph.session.query.selection import cut
from deepx_graph.session.show.picture import picture
from deepx_graph.text import FORMATS
from deepx_graph.viz.draw import FORMATS as PICTURES


@dataclass(frozen=True)
class ExportedPart:
    """What is shown of a module: all of it, or what lies within `depth` edges of a node, whose address is such as `#17`."""

    module: Module
    around: str | None = None
    depth: int = 2
    function: Function | None = None
    nodes: tuple[Node, ...] = ()
    """With `around`: the nodes that are shown, which are cut out when a program is written."""


def suffixes() -> list[str]:
    """The suffixes that say how to export."""
    return [*(f".{p}" for p in PICTURES), *(s for f in FORMATS.values() if f.writes for s in f.suffixes)]


def export(shown: ExportedPart, path: Path, *, text: str | None = None, overwrite: bool = False) -> tuple[str, ...]:
    """Writes what is shown; notes on the way it was done. `text` is what goes into a `.txt`.

    Raises UsageError for a suffix that is none or a file that is there already, else as drawing and printing do.
    """
    if path.exists() and not overwrite:
        raise UsageError(f"'{path}' is there already")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder '{path.parent}'")
    suffix = path.suffix.lower()
    if suffix == ".txt" and text is not None:
        write_file(path, text.encode())
        return ()
    if suffix.lstrip(".") in PICTURES:
        function = shown.around.rpartition("#")[0] if shown.around else ""
        drawn = picture(shown.module, format=suffix.lstrip("."), around=shown.around, depth=shown.depth, function=function or None)
        write_file(path, drawn.data)
        return drawn.notes
    form = next((f.name for f in FORMATS.values() if f.writes and suffix in f.suffixes), None)
    if form is None:
        raise UsageError(Diagnostic(f"'{path.name}' does not say what to write", expected=", ".join([*suffixes(), ".txt"])))
    module = shown.module if shown.function is None else cut(shown.module, shown.function, shown.nodes)
    write_file(path, dumps(module, form).encode())
    return ()
