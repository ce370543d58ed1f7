"""The corpus of programs lowered by JAX, made into binary files by another Python that has jaxlib.

Run by that Python as a script, with the folder of texts and the folder of the files: of every StableHLO text bytecode as the
dialects write it (`.mlirbc`) and, where there can be one, a portable artifact (`.vhlo`) with what jaxlib reads it as
(`.vhlo.mlir`); of every HLO text a serialised module (`.hlo.pb`); and artifacts that earlier releases of JAX wrote (`.recorded`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

VARIABLE = "DEEPX_GRAPH_JAX_PYTHON"
"""The environment variable that names the interpreter."""


def export(texts: Path, folder: Path) -> None:
    """Writes the binary files of a folder of texts. Raises RuntimeError with what the other Python says."""
    done = subprocess.run([os.environ[VARIABLE], __file__, str(texts), str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])


def _main(texts: Path, folder: Path) -> None:
    from jax._src.interpreters import mlir
    from jaxlib import _hlo, _jax
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    version = stablehlo.get_current_version()
    context = mlir.make_ir_context()
    for path in sorted(texts.glob("*.stablehlo")):
        with context:
            module = ir.Module.parse(path.read_text())
            with open(folder / f"{path.stem}.mlirbc", "wb") as file:
                module.operation.write_bytecode(file)
            try:
                artifact = _jax.mlir.serialize_portable_artifact(module, version, True)
            except Exception:  # it has operations of MHLO
                continue
            (folder / f"{path.stem}.vhlo").write_bytes(artifact)
            twin = stablehlo.deserialize_portable_artifact(context, artifact)
            (folder / f"{path.stem}.vhlo.mlir").write_text(twin.operation.get_asm(enable_debug_info=True))
    for name, data, arrays in _recorded():
        (folder / f"{name}.recorded").write_bytes(data)
        if arrays:
            np.savez(folder / f"{name}.npz", **arrays)
    for path in sorted(texts.glob("*.hlo")):
        made = _hlo.hlo_module_from_text(path.read_text())
        (folder / f"{path.stem}.hlo.pb").write_bytes(made.as_serialized_hlo_module_proto())


def _recorded() -> Iterator[tuple[str, bytes, dict[str, Any]]]:
    """The modules that earlier releases of JAX wrote, as it keeps them to see that they can still be read; for CPU with inputs and
    results.
    """
    import importlib
    import pkgutil

    import jax
    from jax._src.internal_test_util import export_back_compat_test_data as kept

    for found in pkgutil.walk_packages(kept.__path__, f"{kept.__name__}."):
        work = [(found.name.rpartition(".")[2], vars(importlib.import_module(found.name)))]
        while work:
            name, value = work.pop()
            if isinstance(value, dict) and "mlir_module_serialized" in value:
                arrays = {f"{side}{k}": x for side, name_of in (("in", "inputs"), ("out", "expected_outputs"))
                          for k, x in enumerate(jax.tree_util.tree_leaves(value[name_of]))}
                yield name, value["mlir_module_serialized"], arrays if value["platform"] == "cpu" else {}
            elif isinstance(value, (dict, list, tuple)):
                items = value.items() if isinstance(value, dict) else enumerate(value)
                work += [(f"{name}.{key}".replace("/", "_"), inner) for key, inner in items if not str(key).startswith("__")]


if __name__ == "__main__":
    _main(*map(Path, sys.argv[1:]))
