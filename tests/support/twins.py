"""Twins: one model written for JAX and for torch with the same weights, as tests/session/twins.zip has them.

    PYTHON_WITH_JAX tests/support/twins.py FOLDER           StableHLO, weights as constants (`_const`) and as arguments (`_args`)
    PYTHON_WITH_TORCH tests/support/twins.py FOLDER         ONNX by both exporters, and torch.export

Each is spelt as people of the framework do: softmax, GELU, the causal mask and the norms by its own functions.
"""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

SHAPES = {"mlp": (4, 8), "conv": (2, 3, 8, 10), "attention": (2, 6, 16)}


def weights() -> dict[str, dict[str, Any]]:
    rng = np.random.default_rng(0)

    def some(*shape: int) -> Any:
        return (rng.integers(-8, 9, shape) / 16).astype(np.float32)  # few digits, so that the archive is small

    norm = {f"{part}{k}": some(16) + (part == "g") for k in (1, 2) for part in ("g", "b")}
    square = {f"{sort}{part}": some(*((16, 16) if sort == "w" else (16,))) for part in "qkvo" for sort in ("w", "b")}
    return {
        "mlp": {"w1": some(16, 8), "b1": some(16), "w2": some(16, 16), "b2": some(16), "w3": some(5, 16), "b3": some(5)},
        "conv": {"w1": some(6, 3, 3, 3), "b1": some(6), "g": some(6) + 1, "b": some(6), "mean": some(6), "var": abs(some(6)) + 0.5,
                 "w2": some(4, 6, 3, 3), "b2": some(4), "wf": some(5, 4), "bf": some(5)},
        "attention": norm | square | {"wu": some(32, 16), "bu": some(32), "wd": some(16, 32), "bd": some(16)},
    }  # fmt: skip


def in_jax(folder: Path) -> None:
    import jax
    import jax.numpy as jnp

    def mlp(p: Any, x: Any) -> Any:
        h = jax.nn.relu(x @ p["w1"].T + p["b1"])
        return jax.nn.softmax(jnp.tanh(h @ p["w2"].T + p["b2"]) @ p["w3"].T + p["b3"])

    def conv(p: Any, x: Any) -> Any:
        def wide(a: Any) -> Any:
            return a[None, :, None, None]

        def same(x: Any, w: Any, b: Any) -> Any:
            return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW")) + wide(b)

        y = same(x, p["w1"], p["b1"])
        y = jax.nn.relu((y - wide(p["mean"])) / jnp.sqrt(wide(p["var"]) + 1e-5) * wide(p["g"]) + wide(p["b"]))
        y = jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        return jax.nn.relu(same(y, p["w2"], p["b2"])).mean((2, 3)) @ p["wf"].T + p["bf"]

    def norm(x: Any, g: Any, b: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        return (x - mean) / jnp.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * g + b

    def attention(p: Any, x: Any) -> Any:
        n, t, c = x.shape
        h = norm(x, p["g1"], p["b1"])
        q, k, v = ((h @ p[f"w{s}"].T + p[f"b{s}"]).reshape(n, t, 4, c // 4).transpose(0, 2, 1, 3) for s in "qkv")
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(c // 4)
        scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf)
        mixed = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), v).transpose(0, 2, 1, 3).reshape(n, t, c)
        x = x + mixed @ p["wo"].T + p["bo"]
        up = jax.nn.gelu(norm(x, p["g2"], p["b2"]) @ p["wu"].T + p["bu"], approximate=False)
        return x + up @ p["wd"].T + p["bd"]

    for name, f in {"mlp": mlp, "conv": conv, "attention": attention}.items():
        x, given = jax.ShapeDtypeStruct(SHAPES[name], jnp.float32), weights()[name]
        known = jax.jit(lambda x, f=f, p=given: f(p, x))
        for kind, lowered in {"const": known.lower(x), "args": jax.jit(f).lower(given, x)}.items():
            text = re.sub(r'"/[^"]*/([^"/]+)"', r'"\1"', lowered.as_text(debug_info=True))
            (folder / f"{name}_{kind}.mlir").write_text(text)


def in_torch(folder: Path) -> None:
    import onnx
    import torch
    from torch import nn
    from torch.nn import functional

    class Twin(nn.Module):
        def __init__(self, given: dict[str, Any]) -> None:
            super().__init__()
            self.given = {k: torch.tensor(v) for k, v in given.items()}

        def filled(self, module: Any, **named: str) -> Any:
            for part, name in named.items():
                getattr(module, part).data = self.given[name]
            return module

        def linear(self, w: str, b: str) -> Any:
            return self.filled(nn.Linear(*reversed(self.given[w].shape)), weight=w, bias=b)

    class MLP(Twin):
        def __init__(self, given: dict[str, Any]) -> None:
            super().__init__(given)
            self.fc1, self.fc2, self.fc3 = (self.linear(f"w{k}", f"b{k}") for k in (1, 2, 3))

        def forward(self, x: Any) -> Any:
            return torch.softmax(self.fc3(torch.tanh(self.fc2(torch.relu(self.fc1(x))))), -1)

    class Conv(Twin):
        def __init__(self, given: dict[str, Any]) -> None:
            super().__init__(given)
            self.c1 = self.filled(nn.Conv2d(3, 6, 3, padding=1), weight="w1", bias="b1")
            self.bn = self.filled(nn.BatchNorm2d(6), weight="g", bias="b", running_mean="mean", running_var="var")
            self.c2 = self.filled(nn.Conv2d(6, 4, 3, padding=1), weight="w2", bias="b2")
            self.fc = self.linear("wf", "bf")

        def forward(self, x: Any) -> Any:
            y = functional.max_pool2d(torch.relu(self.bn(self.c1(x))), 2)
            return self.fc(torch.relu(self.c2(y)).mean((2, 3)))

    class Attention(Twin):
        def __init__(self, given: dict[str, Any]) -> None:
            super().__init__(given)
            self.ln1, self.ln2 = (self.filled(nn.LayerNorm(16), weight=f"g{k}", bias=f"b{k}") for k in (1, 2))
            self.q, self.k, self.v, self.o, self.up, self.down = (self.linear(f"w{s}", f"b{s}") for s in "qkvoud")

        def forward(self, x: Any) -> Any:
            n, t, c = x.shape
            h = self.ln1(x)
            q, k, v = (f(h).view(n, t, 4, c // 4).transpose(1, 2) for f in (self.q, self.k, self.v))
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, c)
            x = x + self.o(mixed)
            return x + self.down(functional.gelu(self.up(self.ln2(x))))

    for name, sort in {"mlp": MLP, "conv": Conv, "attention": Attention}.items():
        model, x = sort(weights()[name]).eval(), torch.zeros(SHAPES[name])
        for kind, dynamo in (("", True), ("_script", False)):
            file = folder / f"{name}{kind}.onnx"
            torch.onnx.export(model, (x,), file, dynamo=dynamo, **({"external_data": False} if dynamo else {}))
            made = onnx.load(file)
            for node in made.graph.node:
                kept = [p for p in node.metadata_props if p.key == "pkg.torch.onnx.name_scopes"]
                del node.metadata_props[:]
                node.metadata_props.extend(kept)
            onnx.save(made, file)
        _exported(torch.export.export(model, (x,)), folder / f"{name}.pt2")


def _exported(program: Any, file: Path) -> None:
    """Saves a program without the lines of the files that it was traced from."""
    import torch

    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    torch.export.save(program, file)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import jax  # noqa: F401
    except ImportError:
        in_torch(folder)
    else:
        in_jax(folder)
    files = sorted(f for f in folder.iterdir() if f.suffix in (".mlir", ".onnx", ".pt2"))
    with zipfile.ZipFile(folder / "twins.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.write(file, file.name)
    print(f"twins.zip: {len(files)} files")


if __name__ == "__main__":
    main()
