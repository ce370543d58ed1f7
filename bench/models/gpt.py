"""A language model like GPT as HLO of any number of layers, made through the library's own builder and printer.

    python -m bench.models.gpt 12 > gpt.hlo

Pre-norm layers of causal attention and an MLP with gelu (by tanh), learned positions, a last norm and logits; weights are
parameters without telling names. Small sizes by default, so that it runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ops import (
    add,
    broadcast_in_dim,
    compare,
    divide,
    dot_general,
    exponential,
    iota,
    maximum,
    multiply,
    reduction,
    reshape,
    rsqrt,
    select,
    subtract,
    tanh,
    transpose,
)
from deepx_graph.text import write
from deepx_graph.types import F32, I32, tensor


@dataclass(frozen=True)
class Sizes:
    """Tokens in a sequence, width, heads, width of the MLP, words."""

    tokens: int = 16
    width: int = 32
    heads: int = 4
    hidden: int = 64
    words: int = 50


class _Model:
    def __init__(self, sizes: Sizes) -> None:
        self.s, self.b = sizes, Builder()
        self.given: Sequence[Node] = ()
        self.at = 1

    def weight(self, *shape: int) -> Node:
        node = self.given[self.at]
        self.at += 1
        return node

    def product(self, x: Node, w: Node, **axes: Any) -> Node:
        return self.b(dot_general, x, w, **({"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)} | axes))

    def over(self, x: Node, like: Node, *axes: int) -> Node:
        return self.b(broadcast_in_dim, x, shape=like.type.dims, broadcast_dimensions=axes)

    def norm(self, x: Node) -> Node:
        b, s = self.b, self.s
        mean = b(multiply, reduction(b, add, x, (1,)), b.constant(1 / s.width, F32))
        centred = b(subtract, x, self.over(mean, x, 0))
        spread = b(multiply, reduction(b, add, b(multiply, centred, centred), (1,)), b.constant(1 / s.width, F32))
        scaled = b(multiply, centred, self.over(b(rsqrt, b(add, spread, b.constant(1e-5, F32))), x, 0))
        return b(add, b(multiply, scaled, self.over(self.weight(s.width), x, 1)), self.over(self.weight(s.width), x, 1))

    def heads(self, x: Node) -> Node:
        s = self.s
        split = self.b(reshape, self.product(x, self.weight(s.width, s.width)), shape=(s.tokens, s.heads, s.width // s.heads))
        return self.b(transpose, split, permutation=(1, 0, 2))

    def attention(self, x: Node) -> Node:
        b, s = self.b, self.s
        q, k, v = self.heads(x), self.heads(x), self.heads(x)
        batched = {"lhs_batching_dimensions": (0,), "rhs_batching_dimensions": (0,)}
        scores = self.product(q, k, **batched, lhs_contracting_dimensions=(2,), rhs_contracting_dimensions=(2,))
        scores = b(multiply, scores, b.constant((s.width // s.heads) ** -0.5, F32))
        rows, columns = (b(iota, dtype=I32, shape=scores.type.dims, iota_dimension=d) for d in (1, 2))
        scores = b(select, b(compare, columns, rows, direction="LE"), scores, b.constant(-1e9, F32))
        raised = b(exponential, b(subtract, scores, self.over(reduction(b, maximum, scores, (2,)), scores, 0, 1)))
        weights = b(divide, raised, self.over(reduction(b, add, raised, (2,)), raised, 0, 1))
        mixed = self.product(weights, v, **batched, lhs_contracting_dimensions=(2,), rhs_contracting_dimensions=(1,))
        joined = b(reshape, b(transpose, mixed, permutation=(1, 0, 2)), shape=(s.tokens, s.width))
        return self.product(joined, self.weight(s.width, s.width))

    def mlp(self, x: Node) -> Node:
        b, s = self.b, self.s
        h = self.product(x, self.weight(s.width, s.hidden))
        h = b(add, h, self.over(self.weight(s.hidden), h, 1))
        cube = b(multiply, b(multiply, h, h), h)
        inner = b(multiply, b(add, h, b(multiply, cube, b.constant(0.044715, F32))), b.constant(0.7978845608, F32))
        gelu = b(multiply, b(multiply, h, b.constant(0.5, F32)), b(add, b(tanh, inner), b.constant(1.0, F32)))
        out = self.product(gelu, self.weight(s.hidden, s.width))
        return b(add, out, self.over(self.weight(s.width), out, 1))

    def build(self, *given: Node, layers: int) -> list[Node]:
        self.given = given
        b, s = self.b, self.s
        x = b(add, self.product(given[0], self.weight(s.words, s.width)), self.weight(s.tokens, s.width))
        for _ in range(layers):
            x = b(add, x, self.attention(self.norm(x)))
            x = b(add, x, self.mlp(self.norm(x)))
        return [self.product(self.norm(x), self.weight(s.width, s.words))]


def shapes(sizes: Sizes, layers: int) -> list[tuple[int, ...]]:
    """The shapes of the parameters, in the order in which the model takes them."""
    s = sizes
    norm = [(s.width,), (s.width,)]
    layer = [*norm, *[(s.width, s.width)] * 4, *norm, (s.width, s.hidden), (s.hidden,), (s.hidden, s.width), (s.width,)]
    return [(s.tokens, s.words), (s.words, s.width), (s.tokens, s.width), *layer * layers, *norm, (s.width, s.words)]


def gpt(layers: int, sizes: Sizes | None = None) -> Module:
    """The model as a module: one-hot tokens first, then the weights."""
    sizes = sizes or Sizes()
    model = _Model(sizes)
    params = [(f"p{k}", tensor(F32, shape)) for k, shape in enumerate(shapes(sizes, layers))]
    return Module((model.b.function("main", params, lambda *given: model.build(*given, layers=layers), result_names=("logits",)),))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layers", type=int, nargs="?", default=12)
    print(write(gpt(parser.parse_args().layers), "hlo"))


if __name__ == "__main__":
    main()
