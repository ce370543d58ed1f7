"""XLA's partitioner on 8 devices of the host, asked of another Python that has JAX: what it makes of a program with shardings.

Run by that Python as a script: JSON in, `{name: text}` of StableHLO with shardings, or `{name: null}` for the standard programs
below; a line of JSON out for each, `[name, text, HLO]`: the text that was compiled and the partitioned module, null where XLA
fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.jax_oracle import VARIABLE
from tests.support.paths import ROOT

STANDARD = ("data_parallel_gradient", "fsdp_gradient", "megatron", "megatron_gradient", "attention_heads", "attention_sequence",
            "convolution_space", "k_split", "transpose", "embedding", "cross_entropy", "sort")


def ask(programs: Mapping[str, str | None]) -> Iterator[tuple[str, str, str | None]]:
    """For each program its text and XLA's module for one device; None where XLA fails. A crash of XLA costs one program."""
    left = dict(programs)
    command = [os.environ[VARIABLE], "-m", "tests.support.partitioner_oracle"]
    while left:
        done = subprocess.run(command, cwd=ROOT, input=json.dumps(left), capture_output=True, text=True, check=False)
        for line in done.stdout.splitlines():
            name, text, hlo = json.loads(line)
            del left[name]
            yield name, text, hlo
        if left:
            first = next(iter(left))
            yield first, left.pop(first) or "", None


def _standard(name: str) -> str:
    """The StableHLO of a program with shardings, as JAX lowers it."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    line = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    grid = jax.make_mesh((4, 2), ("d", "m"), axis_types=(AxisType.Auto,) * 2)

    def loss(w1: Any, w2: Any, x: Any) -> Any:
        return jnp.sum(jnp.tanh(x @ w1) @ w2)

    def attention(q: Any, k: Any, v: Any) -> Any:
        weights = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k), axis=-1)
        return jnp.einsum("bhqk,bhkd->bhqd", weights, v)

    def heads(x: Any, w: Any, o: Any) -> Any:
        q = jnp.einsum("bsf,fhd->bhsd", x, w)
        return jnp.einsum("bhsd,hdf->bsf", attention(q, q, q), o)

    def entropy(logits: Any, labels: Any) -> Any:
        rows = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
        return -jnp.mean(rows)

    def convolution(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    w1, w2 = ((512, 1024), "f4"), ((1024, 512), "f4")
    qkv = ((2, 8, 512, 64), "f4")
    programs: dict[str, tuple[Any, Any, list[Any], list[Any], Any]] = {
        "data_parallel_gradient": (jax.grad(loss, (0, 1)), line, [w1, w2, ((256, 512), "f4")], [(), (), ("x",)], ((), ())),
        "fsdp_gradient": (jax.grad(loss, (0, 1)), line, [w1, w2, ((256, 512), "f4")], [("x",), ("x",), ("x",)], (("x",), ("x",))),
        "megatron": (lambda a, b, x: jnp.tanh(x @ a) @ b, grid, [w1, w2, ((256, 512), "f4")], [(None, "m"), ("m",), ("d",)],
                     ("d",)),
        "megatron_gradient": (jax.grad(loss, (0, 1)), grid, [w1, w2, ((256, 512), "f4")], [(None, "m"), ("m",), ("d",)],
                              ((None, "m"), ("m",))),
        "attention_heads": (heads, grid, [((8, 64, 64), "f4"), ((64, 8, 16), "f4"), ((8, 16, 64), "f4")],
                            [("d",), (None, "m"), ("m",)], ("d",)),
        "attention_sequence": (attention, line, [qkv] * 3, [(None, None, "x")] * 3, (None, None, "x")),
        "convolution_space": (convolution, line, [((1, 64, 64, 16), "f4"), ((3, 3, 16, 16), "f4")], [(None, "x"), ()], (None, "x")),
        "k_split": (lambda a, b: a @ b, line, [((512, 512), "f4")] * 2, [(None, "x"), ("x",)], ("x",)),
        "transpose": (jnp.transpose, line, [((512, 512), "f4")], [("x",)], ("x",)),
        "embedding": (lambda t, i: t[i], line, [((4096, 512), "f4"), ((1024,), "i4")], [("x",), ()], ()),
        "cross_entropy": (entropy, line, [((256, 4096), "f4"), ((256,), "i4")], [(None, "x"), ()], ()),
        "sort": (lambda x: jnp.sort(x, 0), line, [((512, 512), "f4")], [("x",)], ("x",)),
    }  # fmt: skip
    function, mesh, shapes, specs, out = programs[name]

    def placed(spec: Any) -> Any:
        is_one = not spec or not isinstance(spec[0], tuple)
        return NamedSharding(mesh, PartitionSpec(*spec)) if is_one else tuple(map(placed, spec))

    jitted = jax.jit(function, in_shardings=tuple(map(placed, specs)), out_shardings=placed(out))
    return str(jitted.lower(*(jax.ShapeDtypeStruct(s, d) for s, d in shapes)).as_text())


def _partitioned(text: str) -> str:
    import jax
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jaxlib import _jax
    from jaxlib.mlir import ir

    with mlir.make_ir_context():
        module = ir.Module.parse(text)
        options = compiler.get_compile_options(num_replicas=1, num_partitions=8)
        options.executable_build_options.use_spmd_partitioning = True
        options.executable_build_options.use_shardy_partitioner = True
        devices = jax.devices()
        program = devices[0].client.compile_and_load(module, _jax.DeviceList(tuple(devices)), options)
        return str(program.hlo_modules()[0].to_string())


def _main() -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    import jax

    jax.config.update("jax_enable_x64", True)
    for name, text in json.load(sys.stdin).items():
        found = text
        try:
            found = text or _standard(name)
            partitioned = _partitioned(found)
        except Exception as e:
            print(name, str(e)[:300], file=sys.stderr)
            partitioned = None
        print(json.dumps([name, found, partitioned]), flush=True)


if __name__ == "__main__":
    _main()
