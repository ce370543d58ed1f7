"""Fields and rows of operations that reach beyond one pure function: collectives, feeds, channels, checks, numbers of devices.

Most act on the state that the lowering threads through the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deepx_graph import ops
from deepx_graph.ir import Node, Op
from deepx_graph.ops.host.collective import PURE
from deepx_graph.text.xla import mlir_text
from deepx_graph.text.xla.fields import AttributeField, Attrs, Derived, OperationRow, body, flag, number, real, row, string
from deepx_graph.text.xla.hlo_text import Groups, groups_text, parse_groups
from deepx_graph.text.xla.lowering import DialectContext
from deepx_graph.types import TupleType, Type, as_tensor

if TYPE_CHECKING:
    from deepx_graph.text.hlo.printer.body import ComputationWriter
    from deepx_graph.text.hlo.reader.context import InstructionContext
    from deepx_graph.text.stablehlo.reader.context import OperationContext


def moves_nothing(collective: str, groups: Callable[[str], Groups]) -> bool:
    """Whether a collective of that name is among single devices; `groups` reads an attribute."""
    if "permute" in collective:
        return groups("source_target_pairs") == ((0, 0),)
    found = groups("replica_groups")
    return bool(found) and all(len(g) == 1 for g in found)


@dataclass(frozen=True)
class GroupsField(AttributeField):
    """The groups of devices that meet, or pairs of them; an entry of MLIR's matrix that is -1 stands for none."""

    name: str
    is_required: bool = False

    def read_hlo(self, c: InstructionContext) -> Attrs:
        if self.is_required:
            return {self.name: c.parsed(self.name, parse_groups)}
        return {self.name: tuple(filter(None, c.parsed(self.name, parse_groups))) if c.has(self.name) else ()}

    def read_mlir(self, c: OperationContext) -> Attrs:
        return {self.name: c.rows(self.name)}

    def write_hlo(self, w: ComputationWriter, node: Node) -> str:
        return f"{self.name}={groups_text(node.attr(self.name))}"

    def write_mlir(self, node: Node) -> str:
        groups: Groups = node.attr(self.name)
        return f"{self.name} = {mlir_text.rows_text(groups, max(map(len, groups), default=0))}"


class SentPairsField(AttributeField):
    """Pairs of devices where something is sent, if any: HLO has them among the frontend's attributes."""

    def read_hlo(self, c: InstructionContext) -> Attrs:
        found = _SENT.search(c.raw("frontend_attributes").text if c.has("frontend_attributes") else "")
        return {self.mlir: parse_groups(found[1]) if found else ()}

    def read_mlir(self, c: OperationContext) -> Attrs:
        return {self.mlir: c.rows(self.mlir)}

    def write_hlo(self, w: ComputationWriter, node: Node) -> str:
        is_said = any(name == "frontend_attributes" for name, _ in node.origin.notes)
        pairs = node.attr(self.mlir)
        return f'frontend_attributes={{_xla_send_recv_{self.mlir}="{groups_text(pairs)}"}}' if pairs and not is_said else ""

    def write_mlir(self, node: Node) -> str:
        pairs = node.attr(self.mlir)
        return f"{self.mlir} = {mlir_text.rows_text(pairs, 2)}" if pairs else ""


_SENT = re.compile(r'_xla_send_recv_source_target_pairs\s*=\s*"(\{.*?\}\s*\}|\{\s*\})"')


@dataclass(frozen=True)
class ChannelField(AttributeField):
    """The channel, 0 for none; `host` is the type of MLIR's handle of a channel to the host."""

    host: int = 0

    def read_hlo(self, c: InstructionContext) -> Attrs:
        return {"channel_id": c.number("channel_id", default=0)}

    def read_mlir(self, c: OperationContext) -> Attrs:
        handle = c.raw(self.mlir)
        return {"channel_id": int(handle.get("handle", 0)) if isinstance(handle, dict) else c.number("channel_id", default=0)}

    def write_hlo(self, w: ComputationWriter, node: Node) -> str:
        channel = node.attr("channel_id")
        return f"channel_id={channel}" if channel or self.host else ""

    def write_mlir(self, node: Node) -> str:
        channel, is_host = node.attr("channel_id"), self.host and node.attr("is_host_transfer")
        given = {"handle": channel, "type": self.host if is_host else 1}
        return f"{self.mlir} = {mlir_text.struct_text(self.mlir, given)}" if channel or self.host else ""


@dataclass(frozen=True)
class UnitField(AttributeField):
    """A flag that is an attribute without a value in MLIR; `refusal` says why HLO has none such."""

    name: str
    refusal: str = ""

    def read(self, c: DialectContext) -> Attrs:
        return {self.name: c.flag(self.name)}

    def write_hlo(self, w: ComputationWriter, node: Node) -> str:
        if node.attr(self.name) and self.refusal:
            raise w.fail(node, self.refusal)
        return f"{self.name}=true" if node.attr(self.name) else ""

    def write_mlir(self, node: Node) -> str:
        return self.name if node.attr(self.name) else ""


class SplitField(AttributeField):
    """How an all-to-all cuts and joins: along dimensions, or without any an operand for each device."""

    names = ("concat_dimension", "split_count", "split_dimension")

    def read_hlo(self, c: InstructionContext) -> Attrs:
        if not c.has("dimensions"):
            return {"split_count": len(c.tensors)}
        dim, groups = c.number("dimensions"), c.parsed("replica_groups", parse_groups) if c.has("replica_groups") else ()
        if not groups:
            raise c.fail("all-to-all along a dimension needs its groups", "replica_groups={{0,1}}")
        return dict(zip(self.names, (dim, len(groups[0]), dim), strict=True))

    def read_mlir(self, c: OperationContext) -> Attrs:
        return {name: c.number(name) for name in self.names}

    def write_hlo(self, w: ComputationWriter, node: Node) -> str:
        split = node.attr("split_dimension")
        if split < 0:
            return ""
        if split != node.attr("concat_dimension"):
            raise w.fail(node, "HLO's all-to-all joins along the dimension that it splits")
        if not node.attr("replica_groups"):
            raise w.fail(node, "HLO's all-to-all along a dimension needs its groups")
        return f"dimensions={{{split}}}"

    def write_mlir(self, node: Node) -> str:
        if node.attr("split_dimension") < 0:
            raise mlir_text.NoText("StableHLO's all_to_all splits one operand and does not take one for each device")
        return ", ".join(f"{name} = {node.attr(name)} : i64" for name in self.names)


def _shards(whole: Type, part: Type, dim: int) -> int:
    """How many devices have a part, by sizes along a dimension."""
    size, extent = as_tensor(whole).shape[dim], as_tensor(part).shape[dim]
    return size // extent if extent else 1


_GATHERED: Derived = {
    "shard_count": lambda c, attrs: _shards(c.results[0], c.tensors[0].type, attrs["all_gather_dim"])}
_SCATTERED: Derived = {
    "shard_count": lambda c, attrs: _shards(c.tensors[0].type, c.results[0], attrs["scatter_dimension"])}
_RECEIVED: Derived = {"types": lambda c, attrs: TupleType(tuple(c.results))}


def _numbered(c: DialectContext, op: Op, attrs: Attrs) -> Node:
    """The number of this device's replica or partition, in the stated integers."""
    node = c(op)
    return node if c.tensor == node.type else c(ops.convert, node, dtype=c.tensor.dtype)


def _channel(host: int = 0) -> ChannelField:
    return ChannelField(host, mlir="channel_handle", rank=0)


_GROUPS, _FLAT = GroupsField("replica_groups", rank=2), UnitField("use_global_device_ids", rank=3)
_CHANNEL, _REDUCER = _channel(), body("computation")
_SENT_TO = (flag("is_host_transfer"), SentPairsField(mlir="source_target_pairs", rank=2))

COLLECTIVES: tuple[OperationRow, ...] = (
    row(ops.all_reduce, _CHANNEL, _GROUPS, _FLAT, _REDUCER),
    row(ops.all_gather, _CHANNEL, _GROUPS, number("all_gather_dim", hlo="dimensions"), _FLAT, derived=_GATHERED),
    row(ops.reduce_scatter, _CHANNEL, _GROUPS, _FLAT, number("scatter_dimension", hlo="dimensions"), _REDUCER,
        derived=_SCATTERED),
    row(ops.all_to_all, _CHANNEL, _GROUPS, SplitField(mlir="concat_dimension")),
    row(ops.collective_permute, _CHANNEL, GroupsField("source_target_pairs", is_required=True, rank=2)),
    row(ops.collective_broadcast, _CHANNEL, _GROUPS,
        UnitField("has_dynamic_root", "HLO's collective-broadcast has a fixed root", rank=3)),
)
"""What moves data between devices, in both syntaxes."""

SPMD: tuple[OperationRow, ...] = tuple(replace(r, op=PURE[r.op]) for r in COLLECTIVES if r.op in PURE)
"""The same of a partitioner, as they are written: what is read is in the order of the state."""

DEVICES: tuple[OperationRow, ...] = (
    *COLLECTIVES,
    row(ops.collective_reduce, _CHANNEL, _GROUPS, _FLAT, _REDUCER, hlo=""),
    row(ops.partition_id, build=_numbered),
    row(ops.replica_id, build=_numbered),
    row(ops.infeed, string("infeed_config"), derived=_RECEIVED),
    row(ops.outfeed, string("outfeed_config")),
    row(ops.expect_eq, hlo="", dialect="check"),
    row(ops.expect_almost_eq, real("tolerance", 64), hlo="", dialect="check"),
    row(ops.expect_close, number("max_ulp_difference"), number("min_ulp_difference"), hlo="", dialect="check"),
    row(ops.send, _channel(host=2), *_SENT_TO),
    row(ops.recv, _channel(host=3), *_SENT_TO, derived=_RECEIVED),
)  # fmt: skip
"""What reaches beyond one pure function."""
