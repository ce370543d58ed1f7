"""Runs HLO texts with XLA; started by an interpreter that has jax, never imported by the package or the tests.

`python xla_run.py DIRECTORY`: for every `NAME.hlo` there, with inputs `NAME.npz` (`in0`, ...; `dtypes` holds XLA's names), writes
the outputs as `NAME.out.npz` (`out0`, ...), and `errors.json`: name to [step, message] for what did not parse, compile or run.
A fusion is parsed as it stands and run as a call: the way into XLA leads through MLIR, which loses the layouts fusions need.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
from jax._src.lib import xla_client
from jaxlib import _hlo, _jax

SPECIAL = {"bool": np.bool_, "bf16": ml_dtypes.bfloat16, "c64": np.complex64, "c128": np.complex128}
WORDS = {"i": "int", "u": "uint", "f": "float"}


def dtype(name: str) -> np.dtype:
    return np.dtype(SPECIAL.get(name) or WORDS[name[0]] + name[1:])


def run(text: str, inputs: list[np.ndarray], steps: list[str]) -> list[np.ndarray]:
    steps.append("parse")
    _hlo.hlo_module_from_text(text)
    unfused = re.sub(r" fusion\((.*)\), kind=kLoop, calls=", r" call(\1), to_apply=", text)
    proto = _hlo.hlo_module_from_text(unfused).as_serialized_hlo_module_proto()
    steps.append("compile")
    program = _jax.mlir.xla_computation_to_mlir_module(xla_client.XlaComputation(proto))
    devices = jax.devices()[:1]
    executable = devices[0].client.compile_and_load(
        program, xla_client.DeviceList(tuple(devices)), xla_client.CompileOptions())
    steps.append("run")
    return [np.asarray(x) for x in executable.execute([jax.device_put(a) for a in inputs])]


def main(directory: Path) -> None:
    jax.config.update("jax_enable_x64", True)
    errors = {}
    for path in sorted(directory.glob("*.hlo")):
        given = np.load(path.with_suffix(".npz"))
        inputs = [given[f"in{k}"].astype(dtype(d)) for k, d in enumerate(given["dtypes"].tolist())]
        steps: list[str] = []
        try:
            outputs = run(path.read_text(), inputs, steps)
        except Exception as e:
            errors[path.stem] = [steps[-1], str(e)[:500]]
            continue
        wide = [o.astype(np.float32) if o.dtype.kind == "V" or o.dtype == ml_dtypes.bfloat16 else o for o in outputs]
        np.savez(path.with_suffix(".out.npz"), **{f"out{k}": o for k, o in enumerate(wide)})
    (directory / "errors.json").write_text(json.dumps(errors))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
