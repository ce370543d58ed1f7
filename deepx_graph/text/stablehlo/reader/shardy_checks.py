"""What Shardy's verifiers ask of its operations and attributes beyond their syntax: ParseError, in their words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepx_graph.errors import UsageError
from deepx_graph.ir import Node
from deepx_graph.ir.stated_rule import check_rule, read_rule
from deepx_graph.sharding.annotations import stated_sharding
from deepx_graph.sharding.by_hand.manual import ROLE
from deepx_graph.sharding.mesh import Mesh, TensorSharding, split
from deepx_graph.sharding.notation import read_sharding
from deepx_graph.sharding.stated.moves import MAY_START, StatedMove, check_kept
from deepx_graph.text.stablehlo.reader.context import OperationContext
from deepx_graph.text.stablehlo.syntax import Operation, RegionBlock
from deepx_graph.types import ANY, as_tensor, tensor

if TYPE_CHECKING:
    from deepx_graph.text.stablehlo.reader.lower import MlirLowering

def check_stated_rule(lowering: MlirLowering, op: Operation, inputs: Sequence[Node], text: str) -> None:
    """The rule that an operation states is one, and fits its types."""
    try:
        check_rule(read_rule(text), [x.type for x in inputs], op.result_types)
    except ValueError as e:
        raise lowering.error(f"{op.name}: {e}", op) from None


def check_axes(c: OperationContext, said: str) -> None:
    """The axes of a collective, `[{"x"}, {}]` or `{"x"}`, are some of the mesh of its result, each once, for each dimension."""
    axes = c.op.extra["axes"]
    if c.op.name == "sdy.all_to_all":  # parameters, with dimensions
        return
    mesh = said.partition(", [")[0]
    form, type = (f"{mesh}, {axes}>", c.inputs[0].type) if axes.startswith("[") else (f"{mesh}, [{axes}]>", tensor(ANY, None))
    c.lowering.shardings(c.op.name, form, [type], c.lowering.span(c.op))


def check_move(c: OperationContext, made: tuple[Mesh, TensorSharding]) -> None:
    """What a collective says goes together with how its operand lies."""
    kind, x, (mesh, after) = c.op.name.removeprefix("sdy."), c.inputs[0], made
    stated = stated_sharding(x.origin.notes, x, c.lowering.meshes)
    if stated is None:
        if _is_by_hand(c, x):
            return
        if kind not in MAY_START:
            raise c.fail(f"{c.op.name}: collective on operand without sharding")
        stated = mesh, split(*[()] * len(as_tensor(x.type).shape))
    if stated[0].axes != mesh.axes:
        raise c.fail(f"{c.op.name}: result mesh does not match operand mesh")
    if kind == "collective_permute" and stated[0].name != mesh.name and stated[0].devices == mesh.devices:
        raise c.fail(f"{c.op.name}: result mesh name is different but same device ids as operand")
    try:
        move = StatedMove(kind, mesh.with_parts((*stated[1].every_axis, *after.every_axis)), stated[1], after,
                          c.op.extra.get("axes", ""), c.op.extra.get("by", "sum"), lambda text: read_sharding(text, mesh).axes)
        move.check()
    except ValueError as e:
        raise c.fail(f"{c.op.name}: {e}") from None
    except UsageError as e:
        raise c.fail(f"{c.op.name}: {e.diagnostics[0].message}") from None


def check_constraint(c: OperationContext, made: tuple[Mesh, TensorSharding]) -> None:
    """A constraint leaves what is unreduced to be combined as before, and begins sums alone."""
    x, (mesh, after) = c.inputs[0], made
    stated = stated_sharding(x.origin.notes, x, c.lowering.meshes)
    if stated is None or stated[0].axes != mesh.axes:
        return
    try:
        check_kept(mesh.with_parts((*stated[1].unreduced, *after.unreduced)), stated[1], after)
    except ValueError as e:
        raise c.fail(f"{c.op.name}: {e}") from None


def _is_by_hand(c: OperationContext, x: Node) -> bool:
    """Whether a value comes into or out of a computation by hand, which states how it lies in its own words."""
    return (bool(c.lowering.bound_axes) and not x.inputs) or x.named_attrs.get("role") == ROLE


# --- data-flow edges


@dataclass(frozen=True)
class BlockNames:
    """How often the values of a block are used, in regions of its operations, too, and which operation makes each."""

    uses: Counter[str]
    makers: dict[str, str]


def _block_names(block: RegionBlock) -> BlockNames:
    uses: Counter[str] = Counter()
    for op in block.operations:
        uses.update(name for name, _ in op.operands)
        for inner in (inner for region in op.regions for inner in region):
            names = _block_names(inner)
            own = names.makers.keys() | {arg.name for arg in inner.args}
            uses.update({name: n for name, n in names.uses.items() if name not in own})
    return BlockNames(uses, {name: op.name for op in block.operations for name in op.results})


def check_edge(c: OperationContext) -> None:
    """An edge is the one user of its operand, whose sizes are known; one of functions is at a border of a function."""
    (block, owner), name = c.lowering.place[-1], c.op.operands[0][0]
    if not as_tensor(c.inputs[0].type).is_static:
        raise c.fail(f"expected {c.op.name} to have a static-shaped result")
    if id(block) not in c.lowering.names:
        c.lowering.names[id(block)] = _block_names(block)
    names = c.lowering.names[id(block)]
    if names.uses[name] > 1:
        raise c.fail(f"expected operand of {c.op.name} to have a single user")
    if c.op.name != "sdy.func_data_flow_edge":
        return
    if any(arg.name == name for arg in block.args):
        if owner.name != "func.func":
            raise c.fail(f"expected operand of {c.op.name} to be a block argument of a func op.")
    elif names.makers.get(name, names.makers.get(f"{name.partition('#')[0]}#0")) not in (None, "func.call"):
        raise c.fail(f"expected operand of {c.op.name} to be a result of call op.")
