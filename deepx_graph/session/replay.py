"""A recorded run again: a snapshot has the values that XLA ran a program on, and mostly what came out, which our results are held
against.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, RunError, counted
from deepx_graph.ir import Module
from deepx_graph.literal import Array
from deepx_graph.session.agreement import Comparison, compared_all
from deepx_graph.text.common.options import Recorded


def recorded_inputs(recorded: Recorded, names: Sequence[str], devices: int) -> dict[str, Any]:
    """The recorded values by the names of inputs; lists of one for each device where there are several. Raises RunError."""
    partitions = recorded.arguments
    if len(partitions) not in (1, devices) or any(len(p) != len(names) for p in partitions):
        raise RunError(Diagnostic(f"the run was recorded with {counted(len(partitions[0]) if partitions else 0, 'value')} on "
                                  f"{counted(len(partitions), 'device')}, and the program has {counted(len(names), 'input')}",
                                  hint="--partitions says on how many devices to run"))
    arrays = [[literal.array for literal in p] for p in partitions]
    if len(arrays) == 1:
        return dict(zip(names, arrays[0], strict=True))
    return {name: [p[k] for p in arrays] for k, name in enumerate(names)}


def snapshot(module: Module, inputs: Sequence[Array], outputs: Sequence[Array]) -> bytes:
    """A run as XLA records one: the program, what it was run on and what came out. Raises VerifyError for what HLO cannot say."""
    from deepx_graph.text.hlo.proto.writer import write_snapshot

    return write_snapshot(module, inputs, outputs)


def compare(recorded: Recorded, names: Sequence[str], outputs: Sequence[Array],
            bound: Callable[[], Sequence[Array | None]]) -> list[Comparison]:
    """Each output beside what was recorded; none where no result was. `bound` is what rounding may make of them.

    Raises RunError for another number of them.
    """
    if not recorded.results:
        return []
    if len(recorded.results) != len(outputs):
        raise RunError(f"{counted(len(recorded.results), 'result')} recorded, and the program gives {len(outputs)}")
    return compared_all(names, tuple(map(np.asarray, outputs)), [want.array for want in recorded.results], bound)
