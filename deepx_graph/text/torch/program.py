"""The parts of an archive of torch.export: the program as JSON, and where its weights are.

torch 2.8 and later: `models/NAME.json`, tables and storages in `data/`. Earlier: `serialized_exported_program.json` and archives of
`torch.save` beside it.
"""

from __future__ import annotations

import json
from typing import Any

from deepx_graph.errors import Diagnostic, InferError, ParseError, Source
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.torch.archive import Archive
from deepx_graph.text.torch.lower import ProgramLowering
from deepx_graph.text.torch.schema import program
from deepx_graph.text.torch.weights import StoredTensors

FIRST = "serialized_exported_program.json"
SAVED = ("serialized_state_dict.pt", "serialized_constants.pt", "serialized_state_dict.json")
"""Where archives of torch 2.7 and earlier have weights."""


def lowering_of(source: Source, options: ReadOptions) -> ProgramLowering:
    """What lowers the program of an archive. Raises ParseError, LimitError."""
    assert source.data is not None
    archive = Archive(source.data, source.name, options.max_file_bytes)
    try:
        if FIRST in archive:
            return _first(archive, options)
        return _model(archive, options)
    except InferError as e:
        raise ParseError(e.diagnostic(None, f"{archive.name}: ")) from None


def _first(archive: Archive, options: ReadOptions) -> ProgramLowering:
    stored = StoredTensors(archive, options.max_file_bytes)
    told = program(_json(archive, FIRST), options.max_nodes, options.max_depth)
    for file in SAVED:
        if file in archive:
            stored.add_saved(file, archive[file])
    for name, encoded in told.constants.items():
        stored.add_encoded(name, encoded)
    return ProgramLowering(archive.name, told, stored, options)


def _model(archive: Archive, options: ReadOptions) -> ProgramLowering:
    names = [n.removeprefix("models/").removesuffix(".json") for n in archive.entries
             if n.startswith("models/") and n.endswith(".json")]
    if not names:
        compiled = any(n.startswith("data/aotinductor/") for n in archive.entries)
        raise ParseError(Diagnostic(f"{archive.name} has no program" + (", but machine code of AOTInductor" if compiled else ""),
                                    expected="models/NAME.json", hint="torch.export.save(program, FILE) writes one"))
    name = "model" if "model" in names else names[0]
    if len(names) > 1 and name != "model":
        raise ParseError(Diagnostic(f"{archive.name} has {len(names)} programs", expected="one",
                                    hint="save each with torch.export.save in a file of its own"))
    told = program(_json(archive, f"models/{name}.json"), options.max_nodes, options.max_depth)
    stored = StoredTensors(archive, options.max_file_bytes)
    for folder in ("weights", "constants"):
        config = f"data/{folder}/{name}_{folder}_config.json"
        if config in archive:
            stored.add_table(f"data/{folder}", _json(archive, config))
    return ProgramLowering(archive.name, told, stored, options)


def _json(archive: Archive, name: str) -> Any:
    try:
        return json.loads(bytes(archive[name]))
    except RecursionError:
        raise ParseError(Diagnostic(f"{archive.name}: '{name}' nests too deep")) from None
    except ValueError as e:
        if "integer string conversion" in str(e):
            raise
        raise ParseError(Diagnostic(f"{archive.name}: '{name}' is no JSON: {e!s:.100}")) from None
