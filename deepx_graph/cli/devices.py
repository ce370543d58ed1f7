"""Inputs, outputs and feeds of a program on several devices, as `run` takes them from files: `NAME@1` is NAME on device 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deepx_graph.errors import Diagnostic, UsageError

if TYPE_CHECKING:
    from deepx_graph.literal import Array
    from deepx_graph.types import DType


def named_inputs(wanted: Mapping[str, DType | None], devices: int) -> dict[str, DType | None]:
    """All names under which inputs may be given: their own, and that of each device."""
    each = {f"{name}@{d}": dtype for name, dtype in wanted.items() for d in range(devices)} if devices > 1 else {}
    return {**wanted, **each}


def gathered(found: dict[str, Any], wanted: Sequence[str], devices: int) -> dict[str, Any]:
    """The inputs by their own names: a list where one is given for each device. Raises UsageError where one is missing."""
    if devices == 1:
        return found
    inputs: dict[str, Any] = {}
    for name in wanted:
        each = [found.get(f"{name}@{d}", found.get(name)) for d in range(devices)]
        missing = [d for d, value in enumerate(each) if value is None]
        if 0 < len(missing) < devices:
            raise UsageError(Diagnostic(f"input '{name}' is not given for device {missing[0]}", expected=f"{name}@{missing[0]}, or "
                                        f"{name} for all devices that have none of their own"))
        if not missing:
            inputs[name] = found[name] if all(value is found.get(name) for value in each) else each
    return inputs


def spread(results: Sequence[Any], names: Sequence[str], devices: int) -> dict[str, Array]:
    """The outputs by name, those of several devices as `NAME@0`, `NAME@1`, ..."""
    if devices == 1:
        return dict(zip(names, results, strict=True))
    return {f"{name}@{d}": results[d][k] for k, name in enumerate(names) for d in range(devices)}


def read_infeed(path: str | None, devices: int, max_bytes: int | None) -> Any:
    """The arrays of an archive in their order; on several devices those named `NAME@1` for device 1. Raises UsageError."""
    from deepx_graph.session.arrays import read_npz

    if path is None:
        return None
    arrays, _ = read_npz(path, None, max_bytes)
    if devices == 1:
        return list(arrays.values())
    feeds: list[list[Array]] = [[] for _ in range(devices)]
    for name, array in arrays.items():
        _, _, device = name.rpartition("@")
        if not device.isdecimal() or int(device) >= devices:
            raise UsageError(Diagnostic(f"'{name}' in {path} names no device", expected=f"NAME@0 to NAME@{devices - 1}"))
        feeds[int(device)].append(array)
    return feeds


def outfeed_arrays(outfeed: Sequence[Any], devices: int) -> dict[str, Array]:
    """What a program put out: `0.0` and `0.1` are the arrays of the first time, `1.0` follows; `0.0@1` is on device 1."""
    each = [outfeed] if devices == 1 else outfeed
    return {
        f"{k}.{leaf}" + (f"@{d}" if devices > 1 else ""): array
        for d, items in enumerate(each) for k, item in enumerate(items) for leaf, array in enumerate(item)
    }  # fmt: skip
