"""Languages: readers and printers, recognised by content. Each language is a package of its own below this one."""

from deepx_graph.text.common.options import ReadOptions, ReadResult
from deepx_graph.text.formats import (
    FORMATS,
    Format,
    decode_source,
    detect,
    encode,
    format_named,
    open_source,
    read,
    read_source,
    recognise,
    write,
)

__all__ = [
    "FORMATS", "Format", "ReadOptions", "ReadResult", "decode_source", "detect", "encode", "format_named", "open_source", "read",
    "read_source", "recognise", "write",
]  # fmt: skip
