"""`Plan`: how the values of a program lie on a mesh. It stands beside the module, which knows nothing of devices.

A plan is text that can be kept, edited and compared (`str(plan)`, `read_plan`, `plan_diff`):

    program "model.mlir"
    mesh <["data"=4, "model"=2]>
    x: [{"data"}, {}]
    w1: [{}, {"model"}]
    #7: [{"data"}, {"model"}]  # dot_general
    #9: device 2
    -> 0: [{"data"}, {}]

A line names a value by its name in the function that the plan is for, or by its number there, or a result by its position. The
first one may say which file beside the plan's that function is the entry of.

A program may state how values lie over several meshes of its devices. The first one has no name; who lies over another one says so:

    mesh <["data"=4, "model"=2]>
    mesh @tiles <["row"=2, "column"=4]>
    y: @tiles [{"row"}, {"column"}]
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from deepx_graph.errors import Diagnostic, ParseError, Source, Span, UsageError, suggest
from deepx_graph.ir import Function, Node
from deepx_graph.sharding.mesh import AxisRef, Mesh, TensorSharding
from deepx_graph.sharding.notation import read_mesh, read_sharding
from deepx_graph.types import TensorType

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")

_PROGRAM = re.compile(r'\s*program\s+"([^"/\\\r\n]+)"\s*')
_NAME = re.compile(r"[A-Za-z_][\w.$\-]*")
_DEVICE = re.compile(r"\s*device (\d{1,9})\s*")
_FIRST_MESH = re.compile(r"\s*mesh\b")
_FURTHER_MESH = re.compile(r"\s*mesh\s+@(?P<mesh>[\w.$\-]+)")
_OVER = re.compile(r"\s*@(?P<mesh>[\w.$\-]+)")
_LINE = re.compile(r"\s*(?:->\s*(?P<result>\d{1,9})|#(?P<number>\d{1,9})|(?P<name>[\w.$\-]+))\s*:")


@dataclass(frozen=True)
class AxisOrigin:
    """How an axis came to split a value: it was given (`source` alone), or an operation passed it on from another value.

    `source` names what was given, as Shardy does: `input: 0`, `output: 1`, `constraint: y`. `factor` is the letter of the rule.
    """

    source: str
    by: Node | None = None
    factor: str = ""
    value: Node | None = None


@dataclass(frozen=True)
class Plan:
    """Shardings of the values and results of one function over a mesh, or several; a value without one is not decided."""

    mesh: Mesh
    function: Function
    values: Mapping[Node, TensorSharding] = field(default_factory=dict)
    results: Mapping[int, TensorSharding] = field(default_factory=dict)
    reasons: Mapping[Node, str] = field(default_factory=dict)
    """Where the sharding of a value comes from, in words."""
    given: frozenset[Node] = frozenset()
    """The values whose sharding was given, before any was propagated."""
    origins: Mapping[Node, Mapping[AxisRef, AxisOrigin]] = field(default_factory=dict)
    """Where each axis of a value comes from."""
    program: str = ""
    """The file, beside the plan's own, that the function is of; empty where the plan doesn't say."""
    devices: Mapping[Node, int] = field(default_factory=dict)
    """The values that are those of one device alone, with its number."""
    others: tuple[Mesh, ...] = ()
    """Further meshes, each of a name of its own, over which shardings lie that name them."""

    @property
    def meshes(self) -> dict[str, Mesh]:
        """All meshes by the names that shardings have for them."""
        return {"": self.mesh, **{mesh.name: mesh for mesh in self.others}}

    def mesh_of(self, sharding: TensorSharding) -> Mesh:
        """The mesh that has the axes of a sharding."""
        return self.meshes[sharding.mesh]

    def text_of(self, sharding: TensorSharding) -> str:
        """`[{"x"}, {?}]`, or `@other [{"a"}, {?}]`."""
        return (f"@{sharding.mesh} " if sharding.mesh else "") + sharding.text(self.mesh_of(sharding))

    def __str__(self) -> str:
        """The text, which `read_plan` reads."""
        labels = labels_of(self.function)
        texts = _texts(self)
        lines = [*([f'program "{self.program}"'] if self.program else []), *(f"{word} {mesh}" for word, mesh in _meshes(self))]
        for node in self.function.nodes:
            if node in texts:
                said = self.reasons.get(node) or ("" if node.name else node.op.name)
                lines.append(f"{labels[node]}: {texts[node]}" + (f"  # {said}" if said else ""))
        lines += (f"-> {k}: {self.text_of(sharding)}" for k, sharding in sorted(self.results.items()))
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class PortablePlan:
    """A plan without its function, for one that is equal, perhaps in another process: values are numbers in the order of its nodes.

    Where axes come from, and the file of the program, are left out.
    """

    mesh: Mesh
    values: Mapping[int, TensorSharding]
    results: Mapping[int, TensorSharding]
    reasons: Mapping[int, str]
    given: frozenset[int]
    devices: Mapping[int, int]
    others: tuple[Mesh, ...]

    @classmethod
    def of(cls, plan: Plan) -> PortablePlan:
        """A plan without its function."""
        number = {n: k for k, n in enumerate(plan.function.nodes)}
        return cls(plan.mesh, _named_by(number, plan.values), dict(plan.results), _named_by(number, plan.reasons),
                   frozenset(number[n] for n in plan.given if n in number), _named_by(number, plan.devices), plan.others)

    def on(self, function: Function) -> Plan:
        """The plan for a function that is equal to that which it was for."""
        nodes = dict(enumerate(function.nodes))
        return Plan(self.mesh, function, _named_by(nodes, self.values), self.results, _named_by(nodes, self.reasons),
                    frozenset(nodes[k] for k in self.given), devices=_named_by(nodes, self.devices),
                    others=self.others)


def _named_by(names: Mapping[A, B], said: Mapping[A, T]) -> dict[B, T]:
    """The same under other names, of what has one."""
    return {names[key]: x for key, x in said.items() if key in names}


def program_of(text: str) -> str:
    """The file that the text of a plan names as its program's; empty where it names none."""
    for line in text.splitlines():
        said = line.partition("  #")[0].strip()
        if said and not said.startswith("//"):
            found = _PROGRAM.fullmatch(said)
            return found[1] if found else ""
    return ""


def labels_of(function: Function) -> dict[Node, str]:
    """How a plan names each node: by its name where that is its own, else by its number in the function."""
    counts = Counter(n.name for n in function.nodes)
    return {n: n.name if _NAME.fullmatch(n.name) and counts[n.name] == 1 else f"#{k}" for k, n in enumerate(function.nodes)}


def read_plan(text: str, function: Function, name: str = "<plan>") -> Plan:
    """The plan for a function. Raises ParseError that points to what does not fit it."""
    return _PlanReader(text, function, name).plan()


class _PlanReader:
    """The text of a plan, read line by line."""

    def __init__(self, text: str, function: Function, name: str) -> None:
        self.text, self.function, self.source = text, function, Source(name, text)
        self.nodes = {label: node for node, label in labels_of(function).items()}
        self.nodes |= {f"#{k}": node for k, node in enumerate(function.nodes)}
        self.meshes: dict[str, Mesh] = {}
        self.program = ""
        self.values: dict[Node, TensorSharding] = {}
        self.results: dict[int, TensorSharding] = {}
        self.devices: dict[Node, int] = {}

    def plan(self) -> Plan:
        """All lines, as a plan."""
        at = 0
        for line in self.text.splitlines(keepends=True):
            start, at = at, at + len(line)
            end = start + len(line.partition("  #")[0].rstrip())
            said = self.text[start:end]
            if said.strip() and not said.lstrip().startswith("//"):
                self._line(start, end)
        if not self.meshes:
            raise ParseError(Diagnostic("an empty plan", Span(self.source, 0, 0), 'mesh <["data"=4]>'))
        first, *others = self.meshes.values()
        return Plan(first, self.function, self.values, self.results, devices=self.devices, program=self.program,
                    others=tuple(others))

    def _line(self, start: int, end: int) -> None:
        if not self.meshes and not self.program and (named := _PROGRAM.fullmatch(self.text, start, end)):
            self.program = named[1]
        elif found := (_FURTHER_MESH if self.meshes else _FIRST_MESH).match(self.text, start, end):
            self._mesh(found, end)
        elif not self.meshes:
            raise ParseError(Diagnostic("a plan begins with its mesh", Span(self.source, start, end), 'mesh <["data"=4]>'))
        elif found := _LINE.match(self.text, start, end):
            self._value(found, end)
        else:
            raise ParseError(Diagnostic("no value is named", Span(self.source, start, end), "name: [{axes}, ...]"))

    def _mesh(self, found: re.Match[str], end: int) -> None:
        name = found["mesh"] if self.meshes else ""
        if name in self.meshes:
            raise ParseError(Diagnostic(f"another mesh '@{name}'", Span(self.source, found.start(), end)))
        self.meshes[name] = read_mesh(self.text, name or "mesh", self.source, found.end(), end)

    def _value(self, found: re.Match[str], end: int) -> None:
        span = Span(self.source, found.start(), found.end())
        node = self._named(found, span)
        if not found["result"] and (single := _DEVICE.fullmatch(self.text, found.end(), end)):
            self.devices[node] = _device(int(single[1]), self.meshes[""], span)
            return
        sharding = self._sharding(found.end(), end)
        if not isinstance(node.type, TensorType) or node.type.rank != len(sharding.dims):
            raise ParseError(Diagnostic(f"a sharding of {len(sharding.dims)} dimensions for {node.type}", span))
        if found["result"]:
            self.results[int(found["result"])] = sharding
        else:
            self.values[node] = sharding

    def _sharding(self, start: int, end: int) -> TensorSharding:
        over = _OVER.match(self.text, start, end)
        name = over["mesh"] if over else ""
        if over and name not in self.meshes:
            raise ParseError(Diagnostic(f"no mesh '@{name}'", Span(self.source, over.start("mesh"), over.end()),
                                        hint=suggest(name, self.meshes)))
        sharding = read_sharding(self.text, self.meshes[name], self.source, over.end() if over else start, end)
        try:
            self.meshes[name] = self.meshes[name].with_parts(sharding.every_axis)
        except UsageError as e:
            raise ParseError(Diagnostic(e.diagnostics[0].message, Span(self.source, start, end))) from None
        return replace(sharding, mesh=name)

    def _named(self, found: re.Match[str], span: Span) -> Node:
        """The value that a line is of."""
        if found["result"]:
            k = int(found["result"])
            if k >= len(self.function.results):
                raise ParseError(Diagnostic("no such result", span))
            return self.function.results[k]
        label = f"#{found['number']}" if found["number"] else found["name"]
        if label not in self.nodes:
            raise ParseError(Diagnostic(f"no value '{label}'", span, hint=suggest(label, self.nodes)))
        return self.nodes[label]


def _device(number: int, mesh: Mesh, span: Span) -> int:
    if number >= mesh.count:
        raise ParseError(Diagnostic(f"no device {number} in a mesh of {mesh.count}", span, f"0 to {mesh.count - 1}"))
    return number


def plan_diff(before: Plan, after: Plan) -> list[str]:
    """The lines that only one of two plans has, `-` and `+`, in the order of the first; empty when they say the same."""
    old, new = (_lines(p) for p in (before, after))
    found = []
    for label in [*old, *(k for k in new if k not in old)]:
        if old.get(label) != new.get(label):
            found += [f"{sign} {label}: {lines[label]}" for sign, lines in (("-", old), ("+", new)) if label in lines]
    return found


def _texts(plan: Plan) -> dict[Node, str]:
    """What a plan says of each value of its function."""
    said = {n: plan.text_of(s) for n, s in plan.values.items()} | {n: f"device {d}" for n, d in plan.devices.items()}
    return {n: said[n] for n in plan.function.nodes if n in said}


def _meshes(plan: Plan) -> Iterator[tuple[str, str]]:
    """How a plan names its meshes, and what they are."""
    yield from ((f"mesh @{name}" if name else "mesh", str(mesh)) for name, mesh in plan.meshes.items())


def _lines(plan: Plan) -> dict[str, str]:
    labels = labels_of(plan.function)
    return {**dict(_meshes(plan)), **{labels[n]: text for n, text in _texts(plan).items()},
            **{f"-> {k}": plan.text_of(s) for k, s in plan.results.items()}}
