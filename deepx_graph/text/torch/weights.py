"""The weights, buffers and constants of an archive: views of the storages that it holds. Nothing is unpickled.

Archives of torch 2.8 and later have every storage as a file of its own and a table in JSON; earlier ones have archives of
`torch.save` within, of which only what makes tensors is understood (`pickled.py`).
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, InferError, LimitError, ParseError
from deepx_graph.literal import Literal
from deepx_graph.text.torch.archive import Archive
from deepx_graph.text.torch.pickled import tensors_in
from deepx_graph.text.torch.tensors import TensorMeta, dtype_of, reach, table, tensor_meta, text

Stored = Callable[[], Literal]
"""Gives a tensor when it is asked for."""


def stored_tensor(meta: TensorMeta, raw: memoryview, name: str, max_bytes: int) -> Literal:
    """A tensor in its storage, of which it may be any strided part.

    Raises InferError for one that lies outside, LimitError where it has too many elements.
    """
    np_type = meta.dtype.np
    assert np_type is not None
    if reach(meta.sizes, meta.strides, meta.offset) * np_type.itemsize > len(raw):
        raise InferError(f"'{name}' has the sizes {list(meta.sizes)} in {len(raw)} bytes", expected="elements within the storage")
    sizes = tuple(int(s) for s in meta.sizes)
    if math.prod(sizes) * np_type.itemsize > max_bytes:
        raise LimitError(f"'{name}' of the sizes {list(sizes)} has more than {max_bytes} bytes")
    start = int(meta.offset) * np_type.itemsize if math.prod(sizes) else 0
    strides = tuple(int(s) * np_type.itemsize for s in meta.strides)
    found: Any = np.ndarray(sizes, np_type, raw, start, strides)
    return Literal(found)


class StoredTensors:
    """The tensors of an archive by the name that the module has for them: `layers.0.weight`."""

    def __init__(self, archive: Archive, max_bytes: int) -> None:
        self.archive, self.max_bytes = archive, max_bytes
        self.found: dict[str, Stored] = {}
        if "byteorder" in archive and bytes(archive["byteorder"]).strip() not in (b"little", b""):
            raise ParseError(Diagnostic(f"{archive.name} has its weights in big-endian order", expected="little-endian order"))

    def __contains__(self, name: str) -> bool:
        return name in self.found

    def __getitem__(self, name: str) -> Literal:
        """A tensor. Raises InferError where the archive has none of that name, and for one that is damaged."""
        if name not in self.found:
            raise InferError(f"the archive has no values of '{name}'",
                             hint="save the program with its weights: torch.export.save(program, FILE)")
        return self.found[name]()

    def add_table(self, folder: str, config: Any) -> None:
        """Tensors that a table in JSON places in the files of a folder."""
        for name, told in table(table(config, folder).get("config"), folder).items():
            self.found[name] = self._in_file(folder, name, table(told, name))

    def _in_file(self, folder: str, name: str, told: dict[str, Any]) -> Stored:
        def read() -> Literal:
            place = text(told.get("path_name"), f"the file of '{name}'")
            if told.get("use_pickle") or told.get("tensor_meta") is None:
                raise InferError(f"'{name}' is a pickle or an object of its own class", expected="a plain tensor",
                                 hint="pickles are not run: export the module with plain tensors")
            meta = tensor_meta(told["tensor_meta"], name)
            return stored_tensor(meta, self.archive[f"{folder}/{place}"], name, self.max_bytes)

        return read

    def add_encoded(self, name: str, encoded: str) -> None:
        """A tensor as `torch.save` writes it, in base 64. Raises ParseError."""
        try:
            data = base64.b64decode(encoded, validate=True)
        except ValueError:
            raise ParseError(Diagnostic(f"{self.archive.name}: the constant '{name:.60}' is not in base 64")) from None
        self.add_saved(name, memoryview(data))

    def add_saved(self, file: str, data: memoryview) -> None:
        """The tensors of an archive of `torch.save`; one alone has the name of the file."""
        if not len(data):
            return
        inner = Archive(data, f"{self.archive.name}: {file}", self.max_bytes)
        for name, told in tensors_in(bytes(inner["data.pkl"]), file).items():
            meta = TensorMeta(dtype_of(told.dtype), told.sizes, told.strides, told.offset)
            self.found[name] = lambda name=name, told=told, meta=meta: stored_tensor(  # type: ignore[misc]
                meta, inner[f"data/{told.storage}"], name, self.max_bytes)
