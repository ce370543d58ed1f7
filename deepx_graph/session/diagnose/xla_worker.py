"""Compiles a program with jaxlib and runs it; started by an interpreter that has jax, never imported.

`python xla_worker.py FOLDER ...`: each folder has `program.txt`, which is StableHLO or HLO, and `inputs.npz` with the arrays of
sample s as `s:k` for input k, as raw bytes where numpy lacks the element type (`dtypes` has the names). It gets `outputs.npz`, or
`error.txt` with what XLA says, and what XLA dumps; what that is, is said by XLA_FLAGS.
`python xla_worker.py --serve` reads the names of folders line by line, and writes each when it is done; nothing is dumped.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
from jax._src.lib import xla_client
from jaxlib import _hlo, _jax


def compiled(text: str, folder: Path | None) -> Any:
    """The executable of a text, of which XLA dumps the stages into the folder, where there is one."""
    program: Any = text
    if text.lstrip().startswith("HloModule"):
        proto = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
        program = _jax.mlir.xla_computation_to_mlir_module(xla_client.XlaComputation(proto))
    devices = tuple(jax.devices()[:1])
    options = xla_client.CompileOptions()
    if folder is not None:
        options.executable_build_options.debug_options.xla_dump_to = str(folder)
    return devices[0].client.compile_and_load(program, xla_client.DeviceList(devices), options)


def run(folder: Path, dump: bool) -> None:
    """What the program of a folder gives for all samples, written there."""
    executable = compiled((folder / "program.txt").read_text(encoding="utf-8"), folder if dump else None)
    archive = np.load(folder / "inputs.npz")
    dtypes = archive["dtypes"].tolist()
    outputs: dict[str, Any] = {}
    for sample in range(int(archive["samples"])):
        arrays = [archive[f"{sample}:{k}"] for k in range(len(dtypes))]
        arrays = [a.view(named(d)) if a.dtype.kind == "V" or a.dtype.name != d else a for a, d in zip(arrays, dtypes, strict=True)]
        results = [np.asarray(r) for r in executable.execute([jax.device_put(a) for a in arrays])]
        outputs |= {f"{sample}:{k}": r.view(f"V{r.dtype.itemsize}") if r.dtype.kind == "V" or not is_plain(r) else r
                    for k, r in enumerate(results)}
        outputs["results"] = np.array([r.dtype.name for r in results])
    with open(folder / "outputs.npz", "wb") as file:
        np.savez(file, **outputs)


def main(*arguments: str) -> None:
    jax.config.update("jax_enable_x64", True)
    serving = arguments == ("--serve",)
    for folder in map(str.rstrip, sys.stdin) if serving else arguments:
        try:
            run(Path(folder), dump=not serving)
        except Exception as e:
            Path(folder, "error.txt").write_text(f"{type(e).__name__}: {e}", encoding="utf-8")
        if serving:
            print(folder, flush=True)


def named(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def is_plain(array: Any) -> bool:
    return type(array.dtype).__module__.startswith("numpy")


if __name__ == "__main__":
    main(*sys.argv[1:])
