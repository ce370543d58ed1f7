"""A program on whole tensors and the program of one device, side by side as terms: what every device has of every result.

Every device's copy of the program is followed, so collectives are what devices have, put together: an all-reduce combines the
terms of its group, an all-gather joins them, an exchange joins parts of them. Positions that depend on the device are numbers.

Loops are proved by induction: that in each iteration a device's loop variables are its parts of the whole's, as the plan lays them
out, is assumed of the variables and shown of the initial values and of the next ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.collective import Grid
from deepx_graph.ir.factor_rule import FactorRule, Partitioning
from deepx_graph.ir.structure import (
    CONSTANT,
    LOOP_BEGIN,
    LOOP_END,
    PARAM,
    PHI,
    PROJ,
    REGION,
    index_of,
    loop_of,
    phi_choices,
    value_of,
)
from deepx_graph.literal import Array
from deepx_graph.ops import (
    broadcast_in_dim,
    dynamic_slice,
    partition_id,
    spmd_all_gather,
    spmd_all_reduce,
    spmd_all_to_all,
    spmd_collective_permute,
    spmd_reduce_scatter,
)
from deepx_graph.rewrite.engine import Rule
from deepx_graph.runtime.engines.numpy_engine import NumpyEngine
from deepx_graph.sharding.mesh import TensorSharding, split
from deepx_graph.sharding.pieces import Partitioned, box
from deepx_graph.sharding.plan import Plan
from deepx_graph.types import TensorType, as_tensor
from tests.support.equations import Equations, Term, scalar_name
from tests.support.rule_equations import NoEquation, equation

Value = Term | Array


class NotProvable(Exception):
    """The programs have something that has no equations here."""


class _Side:
    """A program followed on some devices."""

    def __init__(self, equations: Equations, function: Function, devices: int) -> None:
        self.eq, self.function, self.devices = equations, function, range(devices)
        self.values: dict[Node, list[Value]] = {}
        self.loops = {loop_of(n): k for k, n in enumerate(n for n in function.nodes if n.op is LOOP_BEGIN)}
        self.begins = {self.loops[loop_of(n)]: n for n in function.nodes if n.op is LOOP_BEGIN}
        self.ends = {self.loops[loop_of(n.inputs[0])]: n for n in function.nodes if n.op is LOOP_END}

    def term(self, node: Node, device: int) -> Term:
        """A value as a term; numbers, too."""
        value = self.values[node][device]
        return value if isinstance(value, str) else self.constant(value)

    def constant(self, value: Array) -> Term:
        """A constant; of one value, that value repeated."""
        if value.size and value.ndim and bool(np.all(value == value.flat[0])):
            b = Builder()
            one = b.constant(value.reshape(-1)[0])
            filled = b(broadcast_in_dim, one, shape=value.shape, broadcast_dimensions=())
            return self.eq.applied(filled, [self.constant(np.asarray(value.flat[0]))])
        return self.eq.leaf(scalar_name(value), value.shape)

    def follow(self) -> None:
        """Fills in the values of all nodes."""
        for node in self.function.nodes:
            if node.op not in (REGION, LOOP_BEGIN, LOOP_END):
                self.values[node] = self.of(node)

    def of(self, node: Node) -> list[Value]:
        if node.op is CONSTANT:
            return [value_of(node).array for _ in self.devices]
        if node.op is PARAM:
            return [self.param(node, d) for d in self.devices]
        if node.op in (PHI, PROJ) and node.inputs[0].op in (LOOP_BEGIN, LOOP_END):
            begin = node.inputs[0] if node.op is PHI else node.inputs[0].inputs[0]
            what = "variable" if node.op is PHI else "result"
            return [self.carried(self.loops[loop_of(begin)], index_of(node), what, d) for d in self.devices]
        if node.op is PHI:
            return [self.chosen(node, d) for d in self.devices]
        return [self.computed(node, d) for d in self.devices]

    def computed(self, node: Node, device: int) -> Value:
        """A number where all operands are; else a term."""
        operands = [self.values[i][device] for i in node.inputs]
        if operands and not any(isinstance(v, str) for v in operands) and node.op.eval is not None:
            return np.asarray(NumpyEngine().kernel(node)(operands, None))
        return self.eq.applied(node, [self.term(i, device) for i in node.inputs])

    def chosen(self, node: Node, device: int) -> Value:
        """What a branch gives: an operation that acts on each element of what its sides give."""
        region = node.inputs[0]
        choices = phi_choices(region, index_of(node))
        shape = as_tensor(node.type).shape
        dims = tuple((k,) for k in range(len(shape)))
        rule = FactorRule(((), *[dims] * len(choices)), (dims,), shape)
        terms = [self.term(i, device) for i in (region.inputs[0], *choices)]
        return self.eq.split(node, Partitioning(lambda node: rule), rule, "branch", terms)

    def param(self, node: Node, device: int) -> Value:
        raise NotImplementedError

    def carried(self, loop: int, index: int, what: str, device: int) -> Value:
        raise NotImplementedError


class _Whole(_Side):
    def param(self, node: Node, device: int) -> Value:
        return self.eq.leaf(f"parameter {index_of(node)}", as_tensor(node.type).shape)

    def carried(self, loop: int, index: int, what: str, device: int) -> Value:
        return self.eq.leaf(f"{what} {index} of loop {loop}", as_tensor(self.begins[loop].inputs[index].type).shape)


class _Local(_Side):
    """The program of one device, on all devices of the mesh."""

    def __init__(self, equations: Equations, local: Partitioned, plan: Plan, whole: _Whole) -> None:
        super().__init__(equations, local.module.entry, local.mesh.count)
        self.local, self.plan, self.whole, self.mesh = local, plan, whole, local.mesh

    def part(self, term: Term, shape: Sequence[int], sharding: TensorSharding, device: int) -> Term:
        """What a device has of a whole."""
        where = box(shape, self.mesh, sharding, device)
        if any((s.stop - s.start) * _parts(self.mesh.count, n, s) != n for s, n in zip(where, shape, strict=True)):
            raise NotProvable("parts are rounded up")
        return self.eq.part(term, where, shape)

    def param(self, node: Node, device: int) -> Value:
        k = index_of(node)
        p = self.whole.function.params[k]
        return self.part(self.whole.term(p, 0), as_tensor(p.type).shape, self.local.params[k], device)

    def variable(self, loop: int, index: int) -> tuple[tuple[int, ...], TensorSharding]:
        """The shape of a loop variable as a whole, and how the plan lays it out."""
        begin = self.whole.begins[loop]
        phis = [n for n in self.whole.function.nodes if n.op is PHI and n.inputs[0] is begin and index_of(n) == index]
        shape = as_tensor(begin.inputs[index].type).shape
        found = next((self.plan.values[n] for n in phis if n in self.plan.values), None)
        return shape, split(*found.axes) if found else split(*((),) * len(shape))

    def carried(self, loop: int, index: int, what: str, device: int) -> Value:
        shape, sharding = self.variable(loop, index)
        return self.part(str(self.whole.carried(loop, index, what, 0)), shape, sharding, device)

    def computed(self, node: Node, device: int) -> Value:
        if node.op is partition_id:
            return np.asarray(device, np.uint32)
        if node.op is dynamic_slice and not any(isinstance(self.values[i][device], str) for i in node.inputs[1:]):
            return self._sliced(node, device)
        if node.op.exchange is None:
            return super().computed(node, device)
        (x,) = node.inputs
        grid = Grid(partitions=self.mesh.count)
        group = node.op.exchange.group(grid, device, *node.attrs)
        return self._met(node, x, group, device)

    def _sliced(self, node: Node, device: int) -> Value:
        x, *starts = node.inputs
        if not isinstance(self.values[x][device], str):
            return super().computed(node, device)
        shape = as_tensor(x.type).shape
        sizes = node.attr("slice_sizes")
        at = [min(max(int(self.values[s][device]), 0), n - m) for s, n, m in zip(starts, shape, sizes, strict=True)]  # type: ignore[arg-type]
        return self.eq.part(self.term(x, device), [slice(a, a + m) for a, m in zip(at, sizes, strict=True)], shape)

    def _met(self, node: Node, x: Node, group: Sequence[int], device: int) -> Term:
        """What a collective gives a device, by what the others of its group have."""
        shape, terms = as_tensor(x.type).shape, [self.term(x, d) for d in group]
        mine, after = list(group).index(device), as_tensor(node.type).shape

        def block(term: Term, sizes: Sequence[int], dim: int, size: int) -> Term:
            box = [slice(mine * size, (mine + 1) * size) if d == dim else slice(0, n) for d, n in enumerate(sizes)]
            return self.eq.part(term, box, sizes)

        if node.op is spmd_all_gather:
            return self.eq.joined(terms, node.attr("all_gather_dim"))
        if node.op is spmd_all_to_all:
            dim = node.attr("split_dimension")
            parts = [block(t, shape, dim, shape[dim] // len(group)) for t in terms]
            return self.eq.joined(parts, node.attr("concat_dimension"))
        if node.op is spmd_collective_permute:
            sources = [s for s, t in node.attr("source_target_pairs") if t == device]
            if not sources:
                raise NotProvable("a device is sent nothing")
            return self.term(x, sources[0])
        if node.op not in (spmd_all_reduce, spmd_reduce_scatter):
            raise NotProvable(node.op.name)
        whole = self.eq.folded(terms, node.attr("computation").reducer.name)
        if node.op is spmd_all_reduce:
            return whole
        dim = node.attr("scatter_dimension")
        return block(whole, shape, dim, after[dim])


def _parts(devices: int, size: int, at: slice) -> int:
    return size // max(1, at.stop - at.start)


Claim = tuple[str, Term, Term]
"""What is claimed to be equal, and its two sides."""


def claims(module_entry: Function, plan: Plan, local: Partitioned, equations: Equations) -> list[Claim]:
    """What has to be equal for every device to have its parts of all results. Raises NotProvable."""
    whole = _Whole(equations, module_entry, 1)
    whole.follow()
    side = _Local(equations, local, plan, whole)
    side.follow()
    found = []
    for d in side.devices:
        for k, (a, b) in enumerate(zip(local.module.entry.results, module_entry.results, strict=True)):
            want = side.part(whole.term(b, 0), as_tensor(b.type).shape, local.results[k], d)
            found.append((f"result {k} of device {d}", side.term(a, d), want))
        for loop, begin in side.begins.items():
            found += _induction(whole, side, loop, begin, d)
    return found


def _induction(whole: _Whole, side: _Local, loop: int, begin: Node, device: int) -> list[Claim]:
    end, other = side.ends[loop], whole.ends[loop]
    found = [(f"condition of loop {loop} on device {device}", side.term(end.inputs[1], device), whole.term(other.inputs[1], 0))]
    for what, mine, theirs in (("initial value", begin.inputs, whole.begins[loop].inputs),
                               ("next value", end.inputs[2:], other.inputs[2:])):
        for k, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            if not isinstance(b.type, TensorType):
                raise NotProvable("a loop carries something else than tensors")
            want = side.part(whole.term(b, 0), *side.variable(loop, k), device)
            found.append((f"{what} {k} of loop {loop} on device {device}", side.term(a, device), want))
    return found


def unproved(module_entry: Function, plan: Plan, local: Partitioned, rules: Sequence[Rule] = ()) -> list[str]:
    """What was not found to be equal; empty: the program of one device, on all of them, computes what the whole one does.

    Beside the equations of operations those of rewrite rules are used that are equations, for the element types and ranks here."""
    equations = Equations()
    wanted = claims(module_entry, plan, local, equations)
    types = [n.type for f in (module_entry, local.module.entry) for n in f.nodes if isinstance(n.type, TensorType)]
    for dtype, rank in sorted({(t.dtype, len(t.shape)) for t in types}, key=str):
        for rule in rules:
            found = equation(rule, dtype, rank)
            if not isinstance(found, NoEquation):
                equations.rewrite(*found)
    equations.saturate()
    return [what for what, a, b in wanted if not equations.equal(a, b)]
