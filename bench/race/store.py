"""The stored programs: for each its StableHLO text as JAX lowers it, and digests of what XLA computed, in one archive.

`python -m bench.race lower`, run by a Python that has JAX, makes it; `python -m bench.race texts` unpacks it.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from bench.race.compare import digest
from bench.race.program import Program, jax

ARCHIVE = Path(__file__).with_name("programs.zip")
SUFFIX = ".stablehlo"


def stored_text(p: Program) -> str:
    """The StableHLO text."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        return archive.read(p.name + SUFFIX).decode()


def stored_digests(p: Program) -> list[dict[str, Any]]:
    """What XLA computed, result by result."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        return list(json.loads(archive.read(f"{p.name}.json")))


def unpack(chosen: Iterable[Program], folder: Path) -> None:
    """Writes their texts."""
    folder.mkdir(parents=True, exist_ok=True)
    for p in chosen:
        (folder / (p.name + SUFFIX)).write_text(stored_text(p), encoding="utf-8")


def lower(chosen: Iterable[Program]) -> None:
    """Lowers programs, runs them, and puts them into the archive in place of what was there of them."""
    found = {}
    if ARCHIVE.exists():
        with zipfile.ZipFile(ARCHIVE) as archive:
            found = {name: archive.read(name) for name in archive.namelist()}
    for p in chosen:
        text, digests = _lowered(p)
        found[p.name + SUFFIX], found[f"{p.name}.json"] = text.encode(), json.dumps(digests).encode()
    with zipfile.ZipFile(ARCHIVE, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(found):
            archive.writestr(zipfile.ZipInfo(name), found[name], zipfile.ZIP_DEFLATED, 9)  # without the date: the same each time


def _lowered(p: Program) -> tuple[str, list[dict[str, Any]]]:
    with jax.enable_x64(p.x64):
        function = jax.jit(partial(p.function, **p.case.static), keep_unused=True)
        lowered = function.lower(*p.inputs)
        results = jax.tree.leaves(lowered.compile()(*p.inputs))
    return str(lowered.as_text()), [digest(jax.device_get(r)) for r in results]
