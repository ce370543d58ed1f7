"""Operations that exchange tensors with the host or another device, in the order of the state: infeed, outfeed, send, recv, probes.

At run time the `Host` that is the state has the `Channels` that lead there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph.ir import Attr, Op, Operand, Result
from deepx_graph.ir.constraint import NON_NEGATIVE, STATE_VALUE, TENSOR, TUPLE_VALUE
from deepx_graph.ops.host.host import NO_INFEED, Host, acting
from deepx_graph.types import STATE, U64, TensorType, TupleType, Type, tensor

RANDOM_START = 0x7012395
"""Where XLA's CPU starts a random state."""

_STATE = Operand("state", "what happened before", type=STATE_VALUE)
_INPUTS = Operand("inputs", variadic=True, type=TENSOR)
_AFTER = Result("state", "what has happened then", type=STATE_VALUE)
_RESULTS = (Result("results", variadic=True), _AFTER)
_TYPES = Attr("types", "type", summary="the tuple of what arrives", check=TUPLE_VALUE)
_CHANNEL = (Attr("channel_id", "int"), Attr("is_host_transfer", "bool", False),
            Attr("source_target_pairs", "any", (), "which device sends to which; none: whoever receives"))


def _arrives(types: Sequence[Type], attrs_types: TupleType, *rest: Any) -> Type:
    return TupleType((*attrs_types.items, STATE))


def _tensors(types: TupleType) -> list[TensorType]:
    return [t for t in types.items if isinstance(t, TensorType)]


def _infeed(xs: Sequence[Any], types: TupleType, infeed_config: str) -> Any:
    world: Host = xs[0]
    return (*world.wires.feed(_tensors(types)), world)


def _outfeed(world: Host, *given: Any) -> None:
    *values, _ = given
    world.wires.outfeed.append(tuple(map(np.array, values)))


def _send(world: Host, *given: Any) -> None:
    *values, channel_id, _, source_target_pairs = given
    world.wires.send(channel_id, values, source_target_pairs)


def _recv(xs: Sequence[Any], types: TupleType, channel_id: int, is_host_transfer: bool, source_target_pairs: Any) -> Any:
    world: Host = xs[0]
    return (*world.wires.receive(channel_id, _tensors(types), source_target_pairs), world)


def _random_state(xs: Sequence[Any], delta: int, index: int) -> tuple[Any, Host]:
    world: Host = xs[0]
    value = world.wires.count(index, RANDOM_START, delta)
    return np.array([value % (1 << 64), value >> 64], np.uint64), world


infeed: Op = Op(
    "infeed", "The next tensors that the host feeds in.", operands=(_STATE,), attrs=(_TYPES, Attr("infeed_config", "str", "")),
    results=_RESULTS, infer=_arrives, eval=_infeed, foldable=False, total=False,
    ready=lambda world, *_: NO_INFEED if world.wires.infeed is None else None, source="StableHLO infeed",
)  # fmt: skip
outfeed: Op = Op(
    "outfeed", "Hands tensors to the host.", operands=(_STATE, _INPUTS), attrs=(Attr("outfeed_config", "str", ""),),
    results=(_AFTER,), infer=lambda types, *_: STATE, eval=acting(_outfeed), foldable=False, total=False,
    source="StableHLO outfeed",
)  # fmt: skip
send: Op = Op(
    "send", "Puts tensors on a channel.", operands=(_STATE, _INPUTS), attrs=_CHANNEL, results=(_AFTER,),
    infer=lambda types, *_: STATE, eval=acting(_send), foldable=False, total=False, source="StableHLO send",
)  # fmt: skip
recv: Op = Op(
    "recv", "The tensors that were put on a channel first; waits for them.", operands=(_STATE,), attrs=(_TYPES, *_CHANNEL),
    results=_RESULTS, infer=_arrives, eval=_recv, foldable=False, total=False, source="StableHLO recv",
)  # fmt: skip
probe: Op = Op(
    "probe", "Keeps a value for later checks.", operands=(_STATE, Operand("operand", type=TENSOR)),
    attrs=(Attr("probe_id", "str"),), results=(_AFTER,), infer=lambda types, *_: STATE,
    eval=acting(lambda world, x, probe_id: world.wires.probes.setdefault(probe_id, []).append(np.array(x))),
    foldable=False, total=False, source="StableHLO interpreter.probe",
)  # fmt: skip
rng_get_and_update_state: Op = Op(
    "rng_get_and_update_state", "A 128-bit counter, low word first, which then advances by delta.", operands=(_STATE,),
    attrs=(Attr("delta", "int", check=NON_NEGATIVE), Attr("index", "int", summary="each instruction has a counter of its own")),
    results=(Result(), _AFTER), infer=lambda types, *_: TupleType((tensor(U64, (2,)), STATE)), eval=_random_state, foldable=False,
    total=False, source="XLA HloRngGetAndUpdateStateInstruction",
)  # fmt: skip
