"""The models of docs/comparison.md as torch exports them to ONNX, a file each.

    PYTHON_WITH_TORCH docs/models_in_torch.py FOLDER [--small] [--torchscript]

Needs torch, onnx and onnxscript. `--small` makes the same networks of fewer channels and layers, without the lines of the program
and with weights of one value each, as the tests have them (`tests/viz/models.zip`); `--torchscript` takes the older of torch's two
exporters. A training step is no model that torch exports to ONNX.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import nn


class ResBlock(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        same = inside == outside and stride == 1
        proj = nn.Conv2d(inside, outside, 1, stride, bias=False)
        self.downsample = None if same else nn.Sequential(proj, nn.BatchNorm2d(outside))

    def forward(self, x: Any) -> Any:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, stages: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        self.relu, self.maxpool = nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        at = width
        for i, blocks in enumerate(stages):
            made = []
            for j in range(blocks):
                made.append(ResBlock(at, width * 2**i, 2 if i and not j else 1))
                at = width * 2**i
            setattr(self, f"layer{i + 1}", nn.Sequential(*made))
        self.stages = len(stages)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(at, 10)

    def forward(self, x: Any) -> Any:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for i in range(self.stages):
            x = getattr(self, f"layer{i + 1}")(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.c_attn, self.c_proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        n, t, c = x.shape
        q, k, v = (part.view(n, t, self.heads, c // self.heads).transpose(1, 2) for part in self.c_attn(x).split(c, 2))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(n, t, c))


class MLP(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.c_fc, self.gelu, self.c_proj = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        return self.c_proj(self.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.attn, self.ln_2, self.mlp = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width), MLP(width)

    def forward(self, x: Any) -> Any:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(64, width), nn.Embedding(16, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, 64, bias=False)

    def forward(self, tokens: Any) -> Any:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class Transformer(nn.Module):
    """torch's own layers."""

    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, width)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True), layers)
        self.head = nn.Linear(width, 64)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.layers(self.embed(tokens)))


class DoubleConv(nn.Sequential):
    def __init__(self, inside: int, outside: int) -> None:
        layers: list[nn.Module] = []
        for k in range(2):
            layers += [nn.Conv2d(outside if k else inside, outside, 3, 1, 1), nn.GroupNorm(4, outside), nn.ReLU()]
        super().__init__(*layers)


class UNet(nn.Module):
    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.down = nn.ModuleList(DoubleConv(a, b) for a, b in pairwise((3, *widths[:-1])))
        self.pool = nn.MaxPool2d(2)
        self.middle = DoubleConv(widths[-2], widths[-1])
        pairs = [*pairwise(widths)][::-1]
        self.rise = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in pairs)
        self.up = nn.ModuleList(DoubleConv(2 * a, a) for a, _ in pairs)
        self.head = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x: Any) -> Any:
        kept = []
        for down in self.down:
            x = down(x)
            kept.append(x)
            x = self.pool(x)
        x = self.middle(x)
        for rise, up in zip(self.rise, self.up, strict=True):
            x = up(torch.cat([rise(x), kept.pop()], 1))
        return self.head(x)


class LSTM(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(64, width), nn.Linear(width, 10)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.lstm(self.embed(tokens))[0][:, -1])


class MoE(nn.Module):
    def __init__(self, experts: int, width: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(MLP(width) for _ in range(experts))

    def forward(self, x: Any) -> Any:
        best, chosen = torch.topk(self.router(x).softmax(-1), 2)
        weights = (nn.functional.one_hot(chosen, len(self.experts)) * best[..., None]).sum(-2)
        return sum(expert(x) * weights[..., k, None] for k, expert in enumerate(self.experts))


class MoETransformer(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, experts: int) -> None:
        super().__init__()
        self.wte = nn.Embedding(64, width)
        self.layers = nn.ModuleList()
        for _ in range(layers):
            norms = {"ln_1": nn.LayerNorm(width), "ln_2": nn.LayerNorm(width)}
            self.layers.append(nn.ModuleDict(norms | {"attn": Attention(width, heads), "moe": MoE(experts, width)}))
        self.head = nn.Linear(width, 64)

    def forward(self, tokens: Any) -> Any:
        x = self.wte(tokens)
        for layer in self.layers:
            x = x + layer["attn"](layer["ln_1"](x))
            x = x + layer["moe"](layer["ln_2"](x))
        return self.head(x)


def models(small: bool) -> dict[str, tuple[nn.Module, torch.Tensor]]:
    """The models, each with an input."""
    layers, width = (3, 16) if small else (12, 64)
    tokens, image = torch.zeros(2, 16, dtype=torch.int64), torch.zeros(1, 3, 32, 32)
    return {
        "resnet18": (ResNet((1, 1) if small else (2, 2, 2, 2), 8), image),
        "gpt12": (GPT(layers, width, 4), tokens),
        "transformer12": (Transformer(layers, width, 4), tokens),
        "unet": (UNet((8, 16) if small else (8, 16, 32, 64)), image),
        "lstm": (LSTM(16, 1 if small else 2), tokens),
        "moe": (MoETransformer(1 if small else 4, 16, 2, 2 if small else 8), tokens),
    }


def made_small(file: Path) -> None:
    """Leaves out what the exporter writes of the program that it ran."""
    model = onnx.load(file)
    for node in model.graph.node:
        kept = [p for p in node.metadata_props if p.key == "pkg.torch.onnx.name_scopes"]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    onnx.save(model, file)


def made_nameless(file: Path) -> None:
    """Leaves out all that tells the modules of the model, as exporters of old write it: operators, and numbers for names."""
    model = onnx.load(file)
    number: dict[str, str] = {}
    for value in (*model.graph.input, *model.graph.initializer, *model.graph.output):
        value.name = number.setdefault(value.name, str(len(number)))
    for node in model.graph.node:
        del node.metadata_props[:]
        node.name = ""
        for names in (node.input, node.output):
            names[:] = [name and number.setdefault(name, str(len(number))) for name in names]
    del model.graph.value_info[:]
    onnx.save(model, file.with_stem(f"{file.stem}_nameless"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--torchscript", action="store_true")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    for name, (model, example) in models(args.small).items():
        file = args.folder / f"{name}.onnx"
        if args.small:
            for k, weight in enumerate(model.parameters()):
                nn.init.constant_(weight, 1 / (k + 1))
        torch.onnx.export(model.eval(), (example,), file, dynamo=not args.torchscript, external_data=False)
        if args.small:
            made_small(file)
        if name == "resnet18":
            made_nameless(file)
        print(f"{file.name} {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
