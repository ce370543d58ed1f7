"""Random StableHLO programs over matrices, with shardings of their parameters and results on meshes of 8 devices."""

from __future__ import annotations

import random
import re

MESHES = ((("a", 8),), (("a", 2), ("b", 4)), (("a", 4), ("b", 2)), (("a", 2), ("b", 2), ("c", 2)))
SIZES = (16, 32, 64)

Value = tuple[str, int, int]
"""A matrix: its name, rows and columns."""


class _Text:
    """A program as it is written, line by line; what holds of Shardy and XLA alone is left to them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.lines = rng, ["%zero = stablehlo.constant dense<0.0> : tensor<f32>"]
        self.values: list[Value] = [(f"%x{k}", rng.choice(SIZES), rng.choice(SIZES)) for k in range(rng.randint(2, 4))]
        self.given = list(self.values)

    def say(self, rows: int, columns: int, words: str, *operands: str) -> Value:
        """`words : (operands) -> type`."""
        made = f"%v{len(self.lines)}", rows, columns
        self.lines.append(f"{made[0]} = {words} : ({', '.join(operands)}) -> {_type(made)}")
        return made

    def step(self) -> None:
        """One more value, of one or two of the last ones."""
        x = self.rng.choice(self.values[-3:])
        kinds = (self.product, self.product, self.unary, self.binary, self.transpose, self.reshape, self.softmax, self.slice,
                 self.pad, self.reverse, self.join)
        self.values.append(self.rng.choice(kinds)(x))

    def unary(self, x: Value) -> Value:
        return self.say(x[1], x[2], f"stablehlo.{self.rng.choice(('tanh', 'negate', 'abs'))} {x[0]}", _type(x))

    def like(self, x: Value) -> Value:
        return self.rng.choice([v for v in self.values if v[1:] == x[1:]])

    def binary(self, x: Value) -> Value:
        return self.say(x[1], x[2], f"stablehlo.{self.rng.choice(('add', 'multiply', 'maximum'))} {x[0]}, {self.like(x)[0]}",
                        _type(x), _type(x))

    def product(self, x: Value) -> Value:
        fitting = [(y, i, j) for y in self.values for i in (0, 1) for j in (0, 1) if x[1 + i] == y[1 + j]]
        y, i, j = self.rng.choice(fitting)
        return self.say(x[2 - i], y[2 - j], f"stablehlo.dot_general {x[0]}, {y[0]}, contracting_dims = [{i}] x [{j}]",
                        _type(x), _type(y))

    def transpose(self, x: Value) -> Value:
        return self.say(x[2], x[1], f"stablehlo.transpose {x[0]}, dims = [1, 0]", _type(x))

    def reshape(self, x: Value) -> Value:
        return self.say(x[1] // 2, x[2] * 2, f"stablehlo.reshape {x[0]}", _type(x))

    def softmax(self, x: Value) -> Value:
        e = self.say(x[1], x[2], f"stablehlo.exponential {self.say(x[1], x[2], f'stablehlo.tanh {x[0]}', _type(x))[0]}", _type(x))
        name = f"%s{len(self.lines)}"
        self.lines.append(f"{name} = stablehlo.reduce({e[0]} init: %zero) applies stablehlo.add across dimensions = [1] : "
                          f"({_type(e)}, tensor<f32>) -> tensor<{x[1]}xf32>")
        total = self.say(x[1], x[2], f"stablehlo.broadcast_in_dim {name}, dims = [0]", f"tensor<{x[1]}xf32>")
        return self.say(x[1], x[2], f"stablehlo.divide {e[0]}, {total[0]}", _type(e), _type(e))

    def slice(self, x: Value) -> Value:
        start = self.rng.randint(0, x[1] // 2)
        return self.say(x[1] // 2, x[2], f"stablehlo.slice {x[0]} [{start}:{start + x[1] // 2}, 0:{x[2]}]", _type(x))

    def pad(self, x: Value) -> Value:
        low = self.rng.randint(0, 8)
        return self.say(x[1] + 8, x[2], f"stablehlo.pad {x[0]}, %zero, low = [{low}, 0], high = [{8 - low}, 0], interior = [0, 0]",
                        _type(x), "tensor<f32>")

    def reverse(self, x: Value) -> Value:
        return self.say(x[1], x[2], f"stablehlo.reverse {x[0]}, dims = [{self.rng.randrange(2)}]", _type(x))

    def join(self, x: Value) -> Value:
        dim = self.rng.randrange(2)
        return self.say(x[1] * (2 - dim), x[2] * (1 + dim), f"stablehlo.concatenate {x[0]}, {self.like(x)[0]}, dim = {dim}",
                        _type(x), _type(x))


def _type(x: Value) -> str:
    return f"tensor<{x[1]}x{x[2]}xf32>"


def random_text(rng: random.Random) -> str:
    """A program of 2 to 8 steps. Every size that is split is divided evenly, as JAX demands of what it is given."""
    mesh, text = rng.choice(MESHES), _Text(rng)
    for _ in range(rng.randint(2, 8)):
        text.step()

    def stated(x: Value) -> str:
        dims: list[list[str]] = [[], []]
        left = list(x[1:])
        for name, size in rng.sample(mesh, len(mesh)):
            k = rng.randrange(2)
            if rng.random() < 0.7 and left[k] % size == 0:
                left[k] //= size
                dims[k].append(f'"{name}"')
        said = ", ".join(f"{{{', '.join(d)}}}" for d in dims)
        return f" {{sdy.sharding = #sdy.sharding<@mesh, [{said}]>}}" if rng.random() < 0.8 else ""

    results = rng.sample(text.values[-3:], rng.randint(1, 2))
    params = ", ".join(f"{x[0]}: {_type(x)}{stated(x)}" for x in text.given[1:])
    first = text.given[0]
    axes = ", ".join(f'"{name}"={size}' for name, size in mesh)
    body = "\n  ".join([*text.lines, f"return {', '.join(r[0] for r in results)} : {', '.join(map(_type, results))}"])
    return (f"sdy.mesh @mesh = <[{axes}]>\nfunc.func @main({first[0]}: {_type(first)} {{sdy.sharding = #sdy.sharding<@mesh, "
            f'[{{"a"}}, {{}}]>}}, {params}) -> ({", ".join(_type(r) + stated(r) for r in results)}) {{\n  {body}\n}}')


def stated_more(text: str, rng: random.Random) -> str:
    """A random program with more said of how its values lie: open dimensions, priorities, parts of axes, constraints."""
    names = re.findall(r'"(\w)"=', text)

    def dim(said: re.Match[str]) -> str:
        axes = [a for a in said[1].split(", ") if a]
        if len(names) == 1 and axes and rng.random() < 0.3:
            axes = [rng.choice(('"a":(1)2', '"a":(1)4', '"a":(2)2'))]
        axes += ["?"] * (rng.random() < 0.5)
        return f"{{{', '.join(axes)}}}" + (f"p{rng.randrange(3)}" if axes and rng.random() < 0.3 else "")

    def constraint(made: re.Match[str]) -> str:
        if rng.random() > 0.15:
            return made[0]
        dims = ["{?}", f'{{"{rng.choice(names)}"{rng.choice((", ?", ""))}}}']
        rng.shuffle(dims)
        name, operation, type = made.groups()
        return f"%c{name} = {operation}\n  %v{name} = sdy.sharding_constraint %c{name} <@mesh, [{', '.join(dims)}]> : {type}"

    found = re.sub(r"(?<=@mesh, \[)[^\]]*", lambda m: re.sub(r"\{([^{}]*)\}", dim, m[0]), text)
    return re.sub(r"%v(\d+) = (stablehlo.* -> (tensor<\w+>))", constraint, found)


EIGHT = (*MESHES, (("a", 8),), (("b", 4), ("a", 2)), (("c", 2), ("b", 2), ("a", 2)))
"""Meshes of 8 devices, some of them of the same axes in another order."""


def over_several_meshes(text: str, rng: random.Random, ordered: bool = True) -> str:
    """A random program, of which every sharding is over one of two or three meshes of the same devices; those that are not
    `ordered` may have these in any order."""
    def mesh(axes: tuple[tuple[str, int], ...]) -> str:
        ids = list(range(8))
        if not ordered and rng.random() < 0.5:
            rng.shuffle(ids)
        said = ", ".join(f'"{name}"={size}' for name, size in axes)
        return f"<[{said}]{'' if ids == sorted(ids) else f', device_ids={ids}'}>"

    meshes = [rng.choice(EIGHT) for _ in range(rng.randint(2, 3))]
    rest = text.partition("\n")[2]

    def over(said: re.Match[str]) -> str:
        k = rng.randrange(len(meshes))
        axes, found = list(meshes[k]), [list[str]() for _ in range(said[1].count("{"))]
        for name, _ in rng.sample(axes, rng.randint(0, len(axes))):
            rng.choice(found).append(f'"{name}"')
        for dim in found:
            dim += ["?"] * ("?" in said[1])
        return f"<@m{k}, [{', '.join('{' + ', '.join(d) + '}' for d in found)}]>"

    lines = [f"sdy.mesh @m{k} = {mesh(axes)}" for k, axes in enumerate(meshes)]
    return "\n".join((*lines, re.sub(r"<@mesh, \[([^\]]*)\]>", over, rest)))
