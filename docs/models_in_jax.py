"""The models of docs/comparison.md as JAX lowers them: StableHLO with debug information, a file each.

    PYTHON_WITH_JAX docs/models_in_jax.py FOLDER [--small]

Needs jax and flax. `--small` makes the same networks of fewer channels and layers, without the folders of source files, as the
tests have them (`tests/viz/models.zip`).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp


class ResBlock(nn.Module):
    features: int
    stride: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        y = nn.Conv(self.features, (3, 3), self.stride, use_bias=False)(x)
        y = nn.relu(nn.BatchNorm(use_running_average=True)(y))
        y = nn.Conv(self.features, (3, 3), use_bias=False)(y)
        y = nn.BatchNorm(use_running_average=True)(y)
        if x.shape != y.shape:
            x = nn.Conv(self.features, (1, 1), self.stride, use_bias=False, name="proj")(x)
            x = nn.BatchNorm(use_running_average=True, name="bn_proj")(x)
        return nn.relu(x + y)


class ResNet(nn.Module):
    stages: tuple[int, ...]
    width: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Conv(self.width, (7, 7), 2, use_bias=False, name="conv_init")(x)
        x = nn.relu(nn.BatchNorm(use_running_average=True, name="bn_init")(x))
        x = nn.max_pool(x, (3, 3), (2, 2), padding="SAME")
        for i, blocks in enumerate(self.stages):
            for j in range(blocks):
                x = ResBlock(self.width * 2**i, 2 if i and not j else 1)(x)
        return nn.Dense(10)(x.mean((1, 2)))


class Blk(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(self.heads)(y, mask=nn.make_causal_mask(x[..., 0]))
        y = nn.Dense(4 * x.shape[-1])(nn.LayerNorm()(x))
        return x + nn.Dense(x.shape[-1])(nn.gelu(y))


class ScanBlk(Blk):
    @nn.compact
    def __call__(self, x: Any, _: Any) -> Any:
        return Blk(self.heads)(x), None


class GPT(nn.Module):
    layers: int
    width: int
    heads: int
    vocabulary: int
    scanned: bool = False

    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        x = nn.Embed(self.vocabulary, self.width)(tokens)
        x = x + self.param("positions", nn.initializers.normal(), (tokens.shape[1], self.width))
        if self.scanned:
            scan = nn.scan(ScanBlk, variable_axes={"params": 0}, split_rngs={"params": True}, length=self.layers)
            x, _ = scan(self.heads, name="layers")(x, None)
        else:
            for _ in range(self.layers):
                x = Blk(self.heads)(x)
        return nn.Dense(self.vocabulary)(nn.LayerNorm()(x))


class DoubleConv(nn.Module):
    features: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        for _ in range(2):
            x = nn.relu(nn.GroupNorm(4)(nn.Conv(self.features, (3, 3))(x)))
        return x


class UNet(nn.Module):
    widths: tuple[int, ...]

    @nn.compact
    def __call__(self, x: Any) -> Any:
        kept = []
        for i, width in enumerate(self.widths[:-1]):
            x = DoubleConv(width, name=f"down_{i}")(x)
            kept.append(x)
            x = nn.max_pool(x, (2, 2), (2, 2))
        x = DoubleConv(self.widths[-1], name="middle")(x)
        for i, width in reversed([*enumerate(self.widths[:-1])]):
            x = nn.ConvTranspose(width, (2, 2), (2, 2), name=f"rise_{i}")(x)
            x = DoubleConv(width, name=f"up_{i}")(jnp.concatenate([x, kept[i]], -1))
        return nn.Conv(2, (1, 1), name="head")(x)


class LSTM(nn.Module):
    width: int
    layers: int

    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        x = nn.Embed(64, self.width)(tokens)
        for _ in range(self.layers):
            x = nn.RNN(nn.OptimizedLSTMCell(self.width))(x)
        return nn.Dense(10)(x[:, -1])


class MoE(nn.Module):
    experts: int
    width: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        gates = nn.softmax(nn.Dense(self.experts, name="router")(x))
        best, chosen = jax.lax.top_k(gates, 2)
        weights = jnp.einsum("bske,bsk->bse", jax.nn.one_hot(chosen, self.experts), best)
        outs = [nn.Dense(self.width, name=f"expert_{i}_out")(nn.gelu(nn.Dense(4 * self.width, name=f"expert_{i}_in")(x)))
                for i in range(self.experts)]  # fmt: skip
        return jnp.einsum("ebsd,bse->bsd", jnp.stack(outs), weights)


class MoETransformer(nn.Module):
    layers: int
    width: int
    heads: int
    experts: int

    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        x = nn.Embed(64, self.width)(tokens)
        for i in range(self.layers):
            x = x + nn.MultiHeadDotProductAttention(self.heads, name=f"attention_{i}")(nn.LayerNorm()(x))
            x = x + MoE(self.experts, self.width, name=f"moe_{i}")(nn.LayerNorm()(x))
        return nn.Dense(64, name="logits")(x)


class EncoderDecoder(nn.Module):
    """As for speech: convolutions and self attention on one side, cross attention on the other, tied embeddings."""

    layers: int
    width: int

    @nn.compact
    def __call__(self, frames: Any, tokens: Any) -> Any:
        x = nn.gelu(nn.Conv(self.width, (3,), (2,), name="conv")(frames))
        for i in range(self.layers):
            x = x + nn.MultiHeadDotProductAttention(2, name=f"encoder_{i}_attention")(nn.LayerNorm(name=f"encoder_{i}_norm")(x))
        embed = nn.Embed(64, self.width, name="embedding")
        y = embed(tokens)
        for i in range(self.layers):
            attend = nn.MultiHeadDotProductAttention(2, name=f"decoder_{i}_self")
            y = y + attend(nn.LayerNorm(name=f"decoder_{i}_norm_1")(y), mask=nn.make_causal_mask(tokens))
            cross = nn.MultiHeadDotProductAttention(2, name=f"decoder_{i}_cross")
            y = y + cross(nn.LayerNorm(name=f"decoder_{i}_norm_2")(y), x)
        return embed.attend(nn.LayerNorm(name="norm")(y))


class Autoencoder(nn.Module):
    """A variational one: it draws random numbers."""

    @nn.compact
    def __call__(self, x: Any, key: Any) -> Any:
        h = nn.relu(nn.Dense(32, name="encoder")(x))
        mean, log_variance = nn.Dense(8, name="mean")(h), nn.Dense(8, name="log_variance")(h)
        z = mean + jnp.exp(0.5 * log_variance) * jax.random.normal(key, mean.shape)
        return nn.Dense(x.shape[-1], name="out")(nn.relu(nn.Dense(32, name="decoder")(z)))


class GraphSAGE(nn.Module):
    """Sums over the edges of a graph."""

    @nn.compact
    def __call__(self, x: Any, sources: Any, targets: Any) -> Any:
        for i in range(3):
            summed = jax.ops.segment_sum(x[sources], targets, x.shape[0])
            x = nn.relu(nn.Dense(16, name=f"own_{i}")(x) + nn.Dense(16, name=f"neighbours_{i}")(summed))
        return nn.log_softmax(nn.Dense(4, name="classes")(x))


def decoding(layers: int, width: int) -> str:
    """One step of a language model that keeps keys and values, without modules: scopes are named by hand."""
    def step(params: Any, cache: Any, token: Any, place: Any) -> Any:
        x = params["embedding"][token]
        made = []
        for i, (p, (keys, values)) in enumerate(zip(params["layers"], cache, strict=True)):
            with jax.named_scope(f"layer_{i}"):
                q, k, v = jnp.split(x @ p["qkv"], 3, -1)
                keys = jax.lax.dynamic_update_slice(keys, k[None], (place, 0))
                values = jax.lax.dynamic_update_slice(values, v[None], (place, 0))
                scores = jnp.where(jnp.arange(keys.shape[0]) <= place, keys @ q, -1e9)
                x = x + jax.nn.softmax(scores) @ values @ p["out"]
                x = x + jax.nn.silu(x @ p["up"]) @ p["down"]
            made.append((keys, values))
        return (x @ params["embedding"].T).argmax(), made

    def array(*dims: int) -> Any:
        return jax.ShapeDtypeStruct(dims, jnp.float32)

    sizes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    layer = {name: array(*dims) for name, dims in sizes.items()}
    whole = jax.ShapeDtypeStruct((), jnp.int32)
    params = {"embedding": array(64, width), "layers": [layer] * layers}
    return str(jax.jit(step).lower(params, [(array(32, width), array(32, width))] * layers, whole, whole).as_text(debug_info=True))


def lowered(model: nn.Module, *shapes: Any) -> str:
    """The forward pass of a model."""
    variables = jax.eval_shape(model.init, jax.random.key(0), *shapes)
    return str(jax.jit(model.apply).lower(variables, *shapes).as_text(debug_info=True))


def trained(model: nn.Module, tokens: Any) -> str:
    """A training step of a language model, with Adam."""
    params = jax.eval_shape(model.init, jax.random.key(0), tokens)["params"]

    def loss(params: Any, tokens: Any) -> Any:
        logits = model.apply({"params": params}, tokens)
        seen = jax.nn.log_softmax(logits[:, :-1])
        return -jnp.take_along_axis(seen, tokens[:, 1:, None], -1).mean()

    def train(params: Any, mu: Any, nu: Any, tokens: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, tokens)
        mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mu, grads)
        nu = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, nu, grads)
        params = jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), params, mu, nu)
        return params, mu, nu, value

    return str(jax.jit(train).lower(params, params, params, tokens).as_text(debug_info=True))


def models(small: bool) -> dict[str, Callable[[], str]]:
    """What makes each text."""
    layers, width = (3, 16) if small else (12, 64)
    tokens = jax.ShapeDtypeStruct((2, 16), jnp.int32)
    image = jax.ShapeDtypeStruct((1, 32, 32, 3), jnp.float32)
    frames, points = (jax.ShapeDtypeStruct(dims, jnp.float32) for dims in ((2, 40, 8), (50, 16)))
    edges = jax.ShapeDtypeStruct((200,), jnp.int32)
    gpt = GPT(layers, width, 4, 64)
    return {
        "resnet18": lambda: lowered(ResNet((1, 1) if small else (2, 2, 2, 2), 8), image),
        "gpt12": lambda: lowered(gpt, tokens),
        "gpt12_scan": lambda: lowered(GPT(layers, width, 4, 64, scanned=True), tokens),
        "gpt12_train": lambda: trained(gpt, tokens),
        "unet": lambda: lowered(UNet((8, 16) if small else (8, 16, 32, 64)), image),
        "lstm": lambda: lowered(LSTM(16, 1 if small else 2), tokens),
        "encoder_decoder": lambda: lowered(EncoderDecoder(2 if small else 6, 16), frames, tokens),
        "autoencoder": lambda: lowered(Autoencoder(), points, jax.ShapeDtypeStruct((2,), jnp.uint32)),
        "graphsage": lambda: lowered(GraphSAGE(), points, edges, edges),
        "decoding": lambda: decoding(layers, width),
        "moe": lambda: lowered(MoETransformer(1 if small else 4, 16, 2, 2 if small else 8), tokens),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name, make in models(args.small).items():
        text = make()
        if args.small:
            text = re.sub(r'"/[^"]*/([^"/]+)"', r'"\1"', text)
        (args.folder / f"{name}.mlir").write_text(text)
        print(f"{name}.mlir {len(text):,} characters")


if __name__ == "__main__":
    main()
