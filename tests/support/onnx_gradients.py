"""Five networks as ONNX models, with the derivatives that torch gives. Runs in an environment that has `torch` and `onnx`:

    PYTHON tests/support/onnx_gradients.py FOLDER

FOLDER/NAME.onnx is a network, FOLDER/NAME.npz its input (`in`), its result (`out`), and of half the sum of squares of that the
derivatives by each parameter (`grad:NAME`) beside the parameters themselves (`value:NAME`).
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional


class Convolutions(nn.Module):
    """Convolutions, normalisation by statistics, pooling, a residual sum."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8)
        for values in (self.norm.weight, self.norm.bias, self.norm.running_mean, self.norm.running_var):
            nn.init.uniform_(values, 0.5, 1.5)  # the exporter takes equal tensors for one
        self.second, self.last = nn.Conv2d(8, 8, 3, 1, 1, groups=4), nn.Linear(8, 5)

    def forward(self, x):
        x = functional.relu(self.norm(self.first(x)))
        x = functional.max_pool2d(x + self.second(x), 3, 2, 1)
        return self.last(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Attention(nn.Module):
    """A layer of a transformer under a causal mask."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(16, 48), nn.Linear(16, 16), nn.LayerNorm(16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (a.reshape(b, n, 2, 8).transpose(1, 2) for a in self.qkv(self.norm(x)).chunk(3, -1))
        mask = torch.ones(n, n, dtype=torch.bool).tril()
        weights = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(~mask, -1e9).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(b, n, 16))
        return x + self.mlp(self.norm(x))


class Recurrent(nn.Module):
    """An LSTM in both directions."""

    def __init__(self):
        super().__init__()
        self.cells, self.last = nn.LSTM(4, 6, bidirectional=True), nn.Linear(12, 3)

    def forward(self, x):
        return self.last(self.cells(x)[0][-1])


class Upsampling(nn.Module):
    """Transposed convolutions, normalisation of groups, interpolation, concatenation."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(2, 6, 3, 2, 1), nn.ConvTranspose2d(6, 4, 4, 2, 1)
        self.norm, self.last = nn.GroupNorm(2, 4), nn.Conv2d(6, 1, 1)

    def forward(self, x):
        y = functional.elu(self.norm(self.up(functional.silu(self.down(x)))))
        z = functional.interpolate(functional.avg_pool2d(x, 2), scale_factor=2.0, mode="bilinear", align_corners=False)
        return torch.sigmoid(self.last(torch.cat([y, z], 1)))


class Embedded(nn.Module):
    """Words by number, pooled by weights, to logarithms of probabilities."""

    def __init__(self):
        super().__init__()
        self.words, self.score, self.last = nn.Embedding(20, 8), nn.Linear(8, 1), nn.Linear(8, 4)

    def forward(self, words):
        x = self.words(words)
        weights = torch.tanh(self.score(x)).softmax(1)
        return functional.log_softmax(self.last((weights * x).sum(1)), -1)


CASES = {
    "convolutions": (Convolutions, lambda: torch.randn(2, 3, 16, 16)), "attention": (Attention, lambda: torch.randn(2, 5, 16)),
    "recurrent": (Recurrent, lambda: torch.randn(7, 2, 4)), "upsampling": (Upsampling, lambda: torch.randn(1, 2, 8, 8)),
    "embedded": (Embedded, lambda: torch.randint(0, 20, (3, 6))),
}  # fmt: skip


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, (kind, draw) in CASES.items():
        torch.manual_seed(3)
        network, x = kind().eval(), draw()
        out = network(x)
        (out.square().sum() / 2).backward()
        found = {"in": x.numpy(), "out": out.detach().numpy()}
        for parameter, value in network.named_parameters():
            found |= {f"value:{parameter}": value.detach().numpy(), f"grad:{parameter}": value.grad.numpy()}
        np.savez(folder / f"{name}.npz", **found)
        torch.onnx.export(network, (x,), str(folder / f"{name}.onnx"), dynamo=False, opset_version=17, input_names=["x"],
                          do_constant_folding=False, training=torch.onnx.TrainingMode.EVAL)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
