"""Which operations the dialects have that mean something here, and what an MHLO operation is called in StableHLO and CHLO.

An operation that a dialect has and no rule reads is kept opaque; one that it does not have is a mistake. Other dialects are unknown
here, and all their operations are kept.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from deepx_graph.errors import suggest

KEPT = frozenset({
    "stablehlo.cross-replica-sum", "stablehlo.einsum", "stablehlo.unary_einsum",
    "chlo._asin_acos_kernel", "chlo.constant_like", "chlo.dynamic_reshape", "chlo.minimum_broadcast_shapes", "chlo.ragged_dot",
    "chlo.rank_specialization_cluster", "chlo.rank_specialization_cluster_yield", "chlo.scan", "chlo.broadcast_nextafter",
    "mhlo.async_update", "mhlo.bitcast", "mhlo.stochastic_convert", "mhlo.trace", "mhlo.xla.rng_get_and_update_state",
    "func.call_indirect", "func.constant", "builtin.unrealized_conversion_cast",
})  # fmt: skip
"""Operations of these dialects that are kept as they stand."""

STRUCTURE = frozenset({"stablehlo.return", "mhlo.return", "func.return", "func.func", "builtin.module"})
"""Operations that are part of others."""

_DIALECTS = ("stablehlo", "chlo", "check", "func", "mhlo", "builtin", "interpreter")
_VERSIONED = re.compile(r"vhlo\.\w+_v\d+")
_STANDS_FOR = ("stablehlo", "chlo")


def canonical(name: str, known: Collection[str]) -> str:
    """The StableHLO or CHLO name of an MHLO operation that has the same meaning there; any other name as it is."""
    dialect, _, word = name.partition(".")
    if dialect != "mhlo" or name in known:
        return name
    return next((n for d in _STANDS_FOR if (n := f"{d}.{word}") in known or n in KEPT), name)


def is_mistaken(name: str, known: Collection[str]) -> bool:
    """Whether the operation's dialect is one of ours and has no such operation; `known` are those that are read."""
    if name.partition(".")[0] == "vhlo":
        return not _VERSIONED.fullmatch(name)
    return ("." not in name or name.partition(".")[0] in _DIALECTS) and not (name in known or name in KEPT or name in STRUCTURE)


def nearest(name: str, known: Collection[str]) -> str | None:
    """A hint with the operation that was probably meant."""
    return suggest(name, (*known, *STRUCTURE, *KEPT, *_of_mhlo(name, known)))


def _of_mhlo(name: str, known: Collection[str]) -> Iterator[str]:
    """The MHLO names of what is read, for a mistaken one of that dialect."""
    if name.startswith("mhlo."):
        yield from (f"mhlo.{n.partition('.')[2]}" for n in known if n.partition(".")[0] in _STANDS_FOR)
