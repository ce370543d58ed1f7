"""Languages: readers and printers, recognised by content. Each language is a package of its own below this one."""

from deepx_graph.text.formats import (
    FORMATS,
    Format,
    decode_source,
    detect,
    format_named,
    open_source,
    read,
    read_source,
    write,
)
from deepx_graph.text.options import ReadOptions, ReadResult

__all__ = [
    "FORMATS", "Format", "ReadOptions", "ReadResult", "decode_source", "detect", "format_named", "open_source", "read",
    "read_source", "write",
]  # fmt: skip
