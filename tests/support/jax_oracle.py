"""XLA's own judgement of StableHLO text, asked of another Python that has jaxlib: does it parse and verify, what does it compute?

Run by that Python as a script: JSON in, `{name: {"text", "args"}}` with `args` null where the program is only to be verified; JSON
out, `{name: {"error"}}` or `{name: {"results"}}`. `ask` does that from the tests. jaxlib is never a dependency of this package.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

VARIABLE = "DEEPX_GRAPH_JAX_PYTHON"
"""The environment variable that names the interpreter."""


def ask(programs: Mapping[str, tuple[str, Sequence[Any] | None]]) -> dict[str, str | list[Any]]:
    """For each program, text and arguments or None, XLA's complaint or the arrays it computed."""
    request = {n: {"text": t, "args": None if a is None else [packed(x) for x in a]} for n, (t, a) in programs.items()}
    done = subprocess.run([os.environ[VARIABLE], __file__], input=json.dumps(request), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    answer = json.loads(done.stdout)
    return {n: a["error"] if "error" in a else [unpacked(x) for x in a["results"]] for n, a in answer.items()}


def packed(array: Any) -> dict[str, Any]:
    """An array as plain data."""
    import numpy as np

    array = np.asarray(array)
    raw = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": array.dtype.name, "shape": list(array.shape), "data": raw}


def unpacked(data: Mapping[str, Any]) -> Any:
    """The array that `packed` made."""
    import ml_dtypes
    import numpy as np

    dtype = np.dtype(getattr(ml_dtypes, data["dtype"], None) or data["dtype"])
    return np.frombuffer(base64.b64decode(data["data"]), dtype).reshape(data["shape"])


def _judge(text: str, args: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
    import jax
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jaxlib import _jax
    from jaxlib.mlir import ir

    context = mlir.make_ir_context()
    context.allow_unregistered_dialects = args is None
    with context:
        module = ir.Module.parse(text)
        module.operation.verify()
        if args is None:
            return {"results": []}
        device = jax.devices()[0]
        options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
        program = device.client.compile_and_load(module, _jax.DeviceList((device,)), options)
    return {"results": [packed(x) for x in program.execute([jax.device_put(unpacked(a)) for a in args])]}


def _main() -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    jax.config.update("jax_enable_x64", True)
    answer: dict[str, Any] = {}
    for name, program in json.load(sys.stdin).items():
        try:
            answer[name] = _judge(program["text"], program["args"])
        except Exception as e:
            answer[name] = {"error": f"{type(e).__name__}: {e}"[:600]}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    _main()
