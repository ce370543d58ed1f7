"""Why two nodes do, or do not, share a kernel: the closed list of reasons, each with its sentence.

Fusion decides by these and `why` shows them; there is no reason outside this list, and none that says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from deepx_graph.ir import Function, Node


class Kind(Enum):
    """A reason. The value is its name on the command line."""

    FUSED = "fused"
    JOINED = "joined-by-engine"
    SAME_NODE = "same-node"
    CONSTANT = "constant"
    PARAMETER = "parameter"
    VIEW = "view"
    DEAD = "dead"
    FUNCTIONS = "different-functions"
    EFFECT = "effect"
    STRUCTURE = "structure"
    KERNEL = "already-a-kernel"
    NOT_ELEMENTWISE = "not-elementwise"
    NO_KERNEL = "no-kernel"
    UNKNOWN_TYPE = "unknown-type"
    REDUCTION_FORM = "reduction-form"
    REDUCTIONS_OFF = "reductions-off"
    CONTROL = "control-boundary"
    SHAPE = "shape-mismatch"
    AXES = "different-axes"
    BROADCAST = "not-row-wise"
    ROW = "row-too-long"
    OPS = "too-many-ops"
    INPUTS = "too-many-inputs"
    CYCLE = "cycle"
    TOO_FAR = "too-far"
    SEVERAL_USERS = "several-users"
    BETTER_PARTNER = "better-partner"
    NOT_ADJACENT = "not-adjacent"


SENTENCES: dict[Kind, str] = {
    Kind.FUSED: "{0} and {1} run in one kernel",
    Kind.JOINED: "{0} and {1} run in one kernel, which the engine joins ({detail})",
    Kind.SAME_NODE: "{0} is one node",
    Kind.CONSTANT: "{0} is a constant: it is copied into, or given to, each kernel that uses it",
    Kind.PARAMETER: "{0} is an input of the function: it is given, not computed",
    Kind.VIEW: "{0} only repeats or renames elements: it is copied into each kernel that uses it, and {1} does not use it so",
    Kind.DEAD: "{0} is never computed: no result needs it",
    Kind.FUNCTIONS: "{0} and {1} are in different functions",
    Kind.EFFECT: "{0} has an effect: it takes or gives the state",
    Kind.STRUCTURE: "{0} is a part of the graph's structure ({detail}): it computes nothing that a kernel could",
    Kind.KERNEL: "{0} is a kernel already: `unfuse` takes it apart",
    Kind.NOT_ELEMENTWISE: "{0} is {detail}, which is neither elementwise nor a reduction",
    Kind.NO_KERNEL: "{0} is {detail}, which has no expression in the kernel vocabulary",
    Kind.UNKNOWN_TYPE: "the type of {0}, or of what it reads, is not known: {detail}",
    Kind.REDUCTION_FORM: "{0} is not a plain reduction: {detail}",
    Kind.REDUCTIONS_OFF: "{0} is a reduction, and the option `reductions` is off",
    Kind.CONTROL: "{0} runs {detail}",
    Kind.SHAPE: "{0} and {1} go through different shapes: {detail}",
    Kind.AXES: "{0} and {1} are in kernels that reduce different axes: {detail}",
    Kind.BROADCAST: "{1} reads {0} in another order than row by row: {detail}",
    Kind.ROW: "{1} needs {0} for a whole row, which does not fit in a cache: {detail}",
    Kind.OPS: "the kernel of {0} and {1} would have {detail}",
    Kind.INPUTS: "the kernel of {0} and {1} would have {detail}",
    Kind.CYCLE: "{2}, outside the kernel, needs {0}, and {1} needs it: one kernel would wait for itself",
    Kind.TOO_FAR: "{detail} lie between {0} and {1}, more than fusion looks through for a way around",
    Kind.SEVERAL_USERS: "{0} has several users and runs in the kernel of another one; the kernels of {0} and {1} do not join "
                        "({detail}); `duplicate` would compute {0} in both",
    Kind.BETTER_PARTNER: "{0} and {1} share an input and could share a kernel, but each was taken into another one first: "
                         "what computes an input comes before what shares one, and the latest user before the others",
    Kind.NOT_ADJACENT: "{0} and {1} have nothing to do with each other: neither reads the other, and they "
                       "share no input of full size",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reason:
    """Why two nodes are, or are not, in one kernel. `nodes` are those that `message` speaks of, by their `labels`."""

    kind: Kind
    nodes: tuple[Node, ...]
    detail: str = ""
    labels: tuple[str, ...] = ()

    @property
    def fused(self) -> bool:
        """Whether they are in one kernel."""
        return self.kind in (Kind.FUSED, Kind.JOINED)

    @property
    def message(self) -> str:
        """One sentence."""
        labels = self.labels or tuple(describe(n, f"a nameless {n.op.name}") for n in self.nodes)
        return SENTENCES[self.kind].format(*labels, detail=self.detail)

    def labelled(self, function: Function) -> Reason:
        """The same with nodes called as users call them: by name, or by number in the function."""
        number = {n: k for k, n in enumerate(function.nodes)}
        return replace(self, labels=tuple(describe(n, f"#{number.get(n, n.serial)}") for n in self.nodes))

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.message}"

    def __repr__(self) -> str:
        return f"<Reason: {self.kind.value}>"


def describe(node: Node, nameless: str) -> str:
    """`'name' (op, file:line:column (model.py:42))`; `nameless` instead of a name where there is none."""
    where = f", {node.span.described}" if node.span else ""
    return f"{repr(node.name) if node.name else nameless} ({node.op.name}{where})"
