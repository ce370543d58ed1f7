"""Random programs with a computation by hand over some axes of a mesh, which leaves the others to a partitioner."""

from __future__ import annotations

import random
from collections.abc import Sequence

from deepx_graph.sharding.mesh import Axes, Mesh, TensorSharding, count_of, split

MESH = Mesh((("a", 2), ("b", 2), ("c", 2)), (), "mesh")
SUM = """({ ^bb0(%s: tensor<f32>, %t: tensor<f32>):
    %u = stablehlo.add %s, %t : tensor<f32>
    stablehlo.return %u : tensor<f32> })"""
STEPS = ("tanh", "transpose", "reverse", "sums", "product", "all_reduce", "all_gather", "reduce_scatter", "all_to_all",
         "collective_permute")


def shown(shape: Sequence[int]) -> str:
    return f"tensor<{'x'.join(map(str, shape))}xf32>"


def groups(axes: Axes) -> str:
    found = MESH.groups(axes)
    return f"dense<{[list(g) for g in found]}> : tensor<{len(found)}x{len(found[0])}xi64>"


def _sharding(rng: random.Random, names: Sequence[str], before: TensorSharding | None = None) -> TensorSharding:
    """Each axis along one of two dimensions, behind those that are there."""
    dims = list(before.axes if before else ((), ()))
    for name in names:
        k = rng.randrange(2)
        dims[k] = (*dims[k], MESH.axis(name))
    return split(*dims)


class _Body:
    """What one device does with `%p`, step by step."""

    def __init__(self, rng: random.Random, manual: Sequence[str], shape: tuple[int, int]) -> None:
        self.rng, self.manual, self.shape = rng, manual, shape
        self.name, self.lines = "%p", list[str]()

    def grow(self, step: str) -> None:
        name, (rows, columns), before = f"%s{len(self.lines)}", self.shape, shown(self.shape)
        dim, axis = self.rng.randrange(2), MESH.axis(self.rng.choice(self.manual))
        halved = tuple(n // 2 if k == dim else n for k, n in enumerate(self.shape))
        doubled = tuple(n * 2 if k == dim else n for k, n in enumerate(self.shape))
        met = f"replica_groups = {groups((axis,))}, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"
        if (step in ("reduce_scatter", "all_to_all") and self.shape[dim] % 2) or (step == "all_gather" and self.shape[dim] > 16):
            return
        after, line = self.shape, ""
        if step == "tanh":
            line = f"{name} = stablehlo.tanh {self.name} : {before}"
        elif step == "transpose":
            after = (columns, rows)
            line = f"{name} = stablehlo.transpose {self.name}, dims = [1, 0] : ({before}) -> {shown(after)}"
        elif step == "reverse":
            line = f"{name} = stablehlo.reverse {self.name}, dims = [{dim}] : {before}"
        elif step == "sums":
            part = shown((self.shape[1 - dim],))
            line = (f"{name}z = stablehlo.constant dense<0.0> : tensor<f32>\n"
                    f"{name}r = stablehlo.reduce({self.name} init: {name}z) applies stablehlo.add across dimensions = [{dim}] : "
                    f"({before}, tensor<f32>) -> {part}\n"
                    f"{name} = stablehlo.broadcast_in_dim {name}r, dims = [{1 - dim}] : ({part}) -> {before}")
        elif step == "product":
            line = (f"{name}t = stablehlo.tanh {self.name} : {before}\n"
                    f"{name} = stablehlo.dot_general {self.name}, {name}t, contracting_dims = [{1 - dim}] x [{1 - dim}] : "
                    f"({before}, {before}) -> {shown((self.shape[dim],) * 2)}")
            after = (self.shape[dim],) * 2
        elif step == "all_reduce":
            line = f'{name} = "stablehlo.all_reduce"({self.name}) <{{{met}, use_global_device_ids}}> {SUM} : ({before}) -> {before}'
        elif step == "all_gather":
            after = doubled
            line = (f'{name} = "stablehlo.all_gather"({self.name}) <{{all_gather_dim = {dim} : i64, {met}, use_global_device_ids}}>'
                    f" : ({before}) -> {shown(after)}")
        elif step == "reduce_scatter":
            after = halved
            line = (f'{name} = "stablehlo.reduce_scatter"({self.name}) <{{scatter_dimension = {dim} : i64, {met}, '
                    f"use_global_device_ids}}> {SUM} : ({before}) -> {shown(after)}")
        elif step == "all_to_all":
            other = self.rng.randrange(2)
            after = tuple(n * 2 if k == other else n for k, n in enumerate(halved))
            line = (f'{name} = "stablehlo.all_to_all"({self.name}) <{{split_dimension = {dim} : i64, concat_dimension = {other} : '
                    f"i64, split_count = 2 : i64, {met}}}> : ({before}) -> {shown(after)}")
        else:
            pairs = [[a, b] for a, b in MESH.groups((axis,))]
            line = (f'{name} = "stablehlo.collective_permute"({self.name}) <{{source_target_pairs = dense<{pairs}> : '
                    f"tensor<{len(pairs)}x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}}> : "
                    f"({before}) -> {before}")
        self.lines.append(line)
        self.name, self.shape = name, (after[0], after[1])


def partly_by_hand(rng: random.Random) -> str:
    """A program of a matrix, which a computation by hand over one or two axes has for a while."""
    manual = sorted(rng.sample(("a", "b", "c"), rng.randint(1, 2)))
    free = [name for name, _ in MESH.axes if name not in manual]
    shape = rng.choice(((8, 8), (16, 8), (24, 8), (8, 4)))
    before = _sharding(rng, rng.sample(manual, rng.randint(0, len(manual))))
    counts = [count_of(axes) for axes in before.axes]
    body = _Body(rng, manual, (shape[0] // counts[0], shape[1] // counts[1]))
    for _ in range(rng.randint(1, 4)):
        body.grow(rng.choice(STEPS))
    after = _sharding(rng, manual)  # what comes out may differ along each of them
    whole = tuple(n * count_of(axes) for n, axes in zip(body.shape, after.axes, strict=True))
    inner = _sharding(rng, rng.sample(free, rng.randint(0, len(free))), before) if rng.random() < 0.5 else before

    def open_(s: TensorSharding) -> str:
        return s.text(MESH).replace("{}", "{?}").replace('"}', '", ?}')

    given = _sharding(rng, rng.sample(("a", "b", "c"), rng.randint(0, 3)))
    asked = f" {{sdy.sharding = #sdy.sharding<@mesh, {_sharding(rng, free).text(MESH)}>}}" if rng.random() < 0.5 else ""
    lines, part = "\n".join(body.lines), shown([n // count for n, count in zip(shape, counts, strict=True)])
    return f"""sdy.mesh @mesh = {MESH}
func.func @main(%x: {shown(shape)} {{sdy.sharding = #sdy.sharding<@mesh, {open_(given)}>}}) -> ({shown(whole)}{asked}) {{
  %y = stablehlo.tanh %x : {shown(shape)}
  %m = sdy.manual_computation(%y) in_shardings=[<@mesh, {open_(inner)}>] out_shardings=[<@mesh, {open_(after)}>]
      manual_axes={{{", ".join(f'"{name}"' for name in manual)}}} (%p: {part}) {{
    {lines}
    sdy.return {body.name} : {shown(body.shape)}
  }} : ({shown(shape)}) -> {shown(whole)}
  %r = stablehlo.tanh %m : {shown(whole)}
  return %r : {shown(whole)}
}}"""
