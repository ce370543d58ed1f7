"""Checkpoints: the values of a loop's variables on the devices of a mesh, in files that another mesh can read.

A checkpoint is a folder with an archive for each device that has parts of its own, and a manifest, written last: without it the
folder is no checkpoint. The manifest says for each value its whole shape, and where each part lies in it; for each archive, its
checksum, as it may be one that another attempt has left; and what the run is of: program, seed, and each input by its digest.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, RunError, UsageError, printable
from deepx_graph.files import make_folder, write_file
from deepx_graph.literal import Array, bits, content
from deepx_graph.runtime.inputs import Port
from deepx_graph.session.inputs import read_npz, write_npz
from deepx_graph.sharding.mesh import Mesh, TensorSharding
from deepx_graph.sharding.pieces import box, padded
from deepx_graph.types import TensorType

MANIFEST = "manifest.json"
VERSION = 3

Variables = Sequence[tuple[str, TensorType]]
"""The names and whole types of what is saved."""
Layout = tuple[Mesh, Sequence[TensorSharding]]
"""How the values lie on the devices."""


@dataclass(frozen=True)
class RunOf:
    """What a run is of: digests of the program and of each input by name, and the seed."""

    program: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0

    def other(self, said: Mapping[str, Any]) -> str:
        """What a manifest says of another run than this one; empty where it is of the same."""
        if said["program"] != self.program:
            return "program"
        names = [name for name in {**said["inputs"], **self.inputs} if said["inputs"].get(name) != self.inputs.get(name)]
        if names:
            return f"input: {', '.join(map(printable, names))}"
        return f"seed: {said['seed']}, and not {self.seed}" if said["seed"] != self.seed else ""


def input_digests(ports: Sequence[Port], arrays: Sequence[Array]) -> dict[str, str]:
    """A digest of each whole input by name: of its type and elements."""
    return {port.name: hashlib.blake2b(f"{a.dtype.name}{list(a.shape)}".encode() + content(a), digest_size=16).hexdigest()
            for port, a in zip(ports, arrays, strict=True)}


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run in a folder; those of another program or inputs are refused. The last `kept` ones stay."""

    folder: Path
    run: RunOf
    variables: Variables
    kept: int = 2

    def save_part(self, iteration: int, device: int, layout: Layout, values: Sequence[Array]) -> int:
        """The parts of one device, and their checksum. Where several have the same part, the first of them writes it."""
        mine: dict[str, Array] = {}
        for k, (value, (_, type)) in enumerate(zip(values, self.variables, strict=True)):
            owner, where = _boxes(layout, k, type)[device]
            if owner == device:
                mine[str(k)] = _bits(value[tuple(slice(s.stop - s.start) for s in where)])  # without what lies beyond the end
        folder = self._at(iteration)
        make_folder(folder)
        if mine:
            write_npz(folder / f"{device}.npz", mine)
        return _checksum(mine)

    def seal(self, iteration: int, layout: Layout, checksums: Sequence[int]) -> None:
        """Makes a checkpoint of the parts, all of which have been written, by the checksums of devices, and removes old ones."""
        values = [
            {"name": name, "dtype": type.dtype.name, "shape": list(type.shape),
             "parts": [{"device": d, "start": [s.start for s in where], "shape": [s.stop - s.start for s in where]}
                       for d, (owner, where) in enumerate(_boxes(layout, k, type)) if d == owner]}
            for k, (name, type) in enumerate(self.variables)
        ]  # fmt: skip
        manifest = {"version": VERSION, **asdict(self.run), "iteration": iteration, "values": values, "checksums": list(checksums)}
        write_file(self._at(iteration) / MANIFEST, json.dumps(manifest, indent=1).encode())
        for old in self._iterations()[: -self.kept]:
            shutil.rmtree(self._at(old), ignore_errors=True)

    def latest(self) -> int | None:
        """The iteration of the newest checkpoint."""
        return max(self._iterations(), default=None)

    def restored(self, iteration: int, layout: Layout, devices: Sequence[int], max_bytes: int | None = None) -> list[list[Array]]:
        """The parts of some devices of a mesh, which may be another one than the one that has saved.

        Raises UsageError for a checkpoint of another program, inputs or seed, RunError for a damaged one.
        """
        folder = self._at(iteration)
        manifest = self._manifest(folder)
        archives: dict[int, dict[str, Array]] = {}
        found = []
        for device in devices:
            row = []
            for k, (entry, (name, type)) in enumerate(zip(manifest["values"], self.variables, strict=True)):
                if tuple(entry["shape"]) != type.shape or entry["dtype"] != type.dtype.name:
                    raise _damaged(folder, f"'{name}' is not {type} there")
                where = _boxes(layout, k, type)[device][1]
                part = _assembled(folder, manifest, k, where, type, archives, max_bytes)
                row.append(padded(part, type.shape, layout[1][k]))
            found.append(row)
        return found

    def _manifest(self, folder: Path) -> dict[str, Any]:
        try:
            manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_bytes())
            other = "version" if manifest["version"] != VERSION else self.run.other(manifest)
            known = bool(other) or (len(manifest["values"]) == len(self.variables) and len(manifest["checksums"]) > 0)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as e:
            raise _damaged(folder, str(e)) from None
        if other:
            raise UsageError(Diagnostic(f"the checkpoint {printable(str(folder))} is of another {other}",
                                        hint="give a folder of its own with --checkpoint DIR"))
        if not known:
            raise _damaged(folder, "it has other values than the program")
        return manifest

    def _at(self, iteration: int) -> Path:
        return self.folder / f"{iteration:012d}"

    def _iterations(self) -> list[int]:
        return sorted(int(m.parent.name) for m in self.folder.glob(f"{'[0-9]' * 12}/{MANIFEST}"))


def _boxes(layout: Layout, k: int, type: TensorType) -> list[tuple[int, tuple[slice, ...]]]:
    """For each device, where its part of value k lies, and the first device that has the same part."""
    mesh, shardings = layout
    where = [box(type.shape, mesh, shardings[k], d) for d in range(mesh.count)]
    first: dict[tuple[tuple[int, int], ...], int] = {}
    return [(first.setdefault(tuple((s.start, s.stop) for s in w), d), w) for d, w in enumerate(where)]


def _assembled(folder: Path, manifest: Mapping[str, Any], k: int, where: tuple[slice, ...], type: TensorType,
               archives: dict[int, dict[str, Array]], max_bytes: int | None) -> Array:
    """One part of value k as it lies now, from those as they lay when they were saved."""
    wanted = np.empty([s.stop - s.start for s in where], type.dtype.np)
    filled = 0
    try:
        for part in manifest["values"][k]["parts"]:
            along = zip(where, part["start"], part["shape"], strict=True)
            inside = [slice(max(w.start, a), min(w.stop, a + n)) for w, a, n in along]
            if any(s.start >= s.stop for s in inside):
                continue
            device = int(part["device"])
            if device not in archives:
                archives[device] = read_npz(folder / f"{device}.npz", None, max_bytes)[0]
                if _checksum(archives[device]) != manifest["checksums"][device]:
                    raise ValueError(f"{device}.npz is not what was saved")
            data = _values(archives[device][str(k)], type)
            if list(data.shape) != part["shape"]:
                raise ValueError(f"value {k} in {device}.npz has the shape {list(data.shape)}")
            there = tuple(slice(s.start - a, s.stop - a) for s, a in zip(inside, part["start"], strict=True))
            here = tuple(slice(s.start - w.start, s.stop - w.start) for s, w in zip(inside, where, strict=True))
            wanted[here] = data[there]
            filled += data[there].size
    except (LookupError, TypeError, ValueError) as e:
        raise _damaged(folder, str(e)) from None
    if filled != wanted.size:
        raise _damaged(folder, f"parts of value {k} are missing")
    return wanted


def _checksum(arrays: Mapping[str, Array]) -> int:
    found = 0
    for array in arrays.values():
        found = zlib.crc32(bits(array).data, found)
    return found


def _bits(array: Array) -> Array:
    """The array as files hold it: types that numpy does not know as their bits."""
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")


def _values(array: Array, type: TensorType) -> Array:
    return array if array.dtype == type.dtype.np else array.view(np.dtype(type.dtype.np))


def _damaged(folder: Path, what: str) -> RunError:
    return RunError(Diagnostic(f"the checkpoint {printable(str(folder))} is damaged: {printable(what)}",
                               hint="remove the folder; an older one beside it is taken then"))
