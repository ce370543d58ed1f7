"""Clusters: a kind of device, and levels of links among ever larger blocks of them, as text and as presets.

The devices of a mesh are numbered so that blocks lie together: with 8 devices in a machine, devices 0 to 7 are one. The text has a
line for the device and one for each level, the innermost first; `*` is the level of all devices:

    device: flops=312e12, bandwidth=2.0e12, memory=80e9, launch=5e-6
    8: alpha=3e-6, beta=300e9, switch
    *: alpha=5e-6, beta=25e9, switch
    * all_reduce 2: 1024=2.0e-6, 1048576=1.4e-4

The last line has measured seconds of a collective of two devices. Points may stand in place of alpha and beta, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise

from deepx_graph.errors import Diagnostic, ParseError, Source, Span, UsageError, suggest
from deepx_graph.planning.links import (
    ALL_GATHER,
    ALL_REDUCE,
    COLLECTIVES,
    REDUCE_SCATTER,
    RING,
    SWITCH,
    TOPOLOGIES,
    NetworkLink,
    Points,
    uniform_link,
)

Group = tuple[int, ...]


@dataclass(frozen=True)
class ComputeDevice:
    """Operations a second, bytes a second and bytes of memory, and the seconds that starting a kernel takes.

    Parts of both rates, above 0 and at most 1, are usually left: `alone_flops` and `alone_bandwidth` to a device that computes
    alone, as a machine does other work, too; `busy_flops` and `busy_bandwidth` to each while all devices of its machine compute, as
    those that share a core or a memory slow each other down. A program that meets other devices is called for `step` seconds
    beside its kernels and exchanges.
    """

    flops: float
    bandwidth: float
    memory: float
    launch: float = 0.0
    busy_flops: float = 1.0
    busy_bandwidth: float = 1.0
    alone_flops: float = 1.0
    alone_bandwidth: float = 1.0
    step: float = 0.0

    def seconds(self, operations: float, nbytes: float) -> float:
        """The least time of a kernel that all devices run at once: the roofline (Williams et al.) after its start."""
        return self.launch + max(operations / (self.flops * self.busy_flops), nbytes / (self.bandwidth * self.busy_bandwidth))


PARTS = ("busy_flops", "busy_bandwidth", "alone_flops", "alone_bandwidth")
"""The fields of a device that are parts of its rates."""


@dataclass(frozen=True)
class LinkLevel:
    """The link among the blocks of the level below within a block of `size` devices; 0: among all that there are."""

    size: int
    link: NetworkLink


@dataclass(frozen=True)
class DeviceCluster:
    """A kind of device and the levels of links among such, the innermost first; the last one reaches all."""

    device: ComputeDevice
    levels: tuple[LinkLevel, ...]
    overlaps: bool = True
    """Whether devices compute while they exchange."""
    _known: dict[tuple[str, tuple[Group, ...], float], tuple[float, str]] = field(
        default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Raises UsageError for levels that do not hold one another."""
        sizes = [level.size for level in self.levels]
        inner = sizes[:-1]
        ascending = 0 not in inner and inner == sorted(set(inner)) and not any(b % a for a, b in pairwise(inner))
        if not sizes or sizes[-1] != 0 or not ascending:
            raise UsageError("the levels of a cluster are multiples of one another, and the last one is '*'")

    def collective(self, kind: str, groups: Sequence[Group], nbytes: float) -> tuple[float, str]:
        """Seconds of a collective that all groups do at once, and the algorithm of the slowest group.

        The groups of a permutation are its pairs. `nbytes` is the larger of what one device has before and after it.
        """
        key = kind, tuple(groups), nbytes
        if key not in self._known:
            shapes = {self._shape(group) for group in groups if len(set(group)) > 1}
            self._known[key] = max((self._of_shape(kind, shape, nbytes) for shape in shapes), default=(0.0, "alone"))
        return self._known[key]

    def _shape(self, group: Group) -> tuple[int, ...]:
        """How many members, or blocks with members, one block has at each level; the most where that differs."""
        found, blocks = [], list(group)
        for level in self.levels:
            size = level.size
            outer = [d // size if size else 0 for d in group]
            inside = {(o, b) for o, b in zip(outer, blocks, strict=True)}
            found.append(max(Counter(o for o, _ in inside).values()))
            blocks = outer
        return tuple(found)

    def _of_shape(self, kind: str, shape: tuple[int, ...], nbytes: float) -> tuple[float, str]:
        """The faster of the algorithm over all members at the slowest link, and that of level by level."""
        at = max(k for k, n in enumerate(shape) if n > 1)
        total = 1
        for n in shape:
            total *= n
        flat = self.levels[at].link.collective(kind, total, nbytes)
        inner = [(self.levels[k].link, n) for k, n in enumerate(shape) if n > 1]
        if len(inner) == 1 or kind not in (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER):
            return flat
        return min(flat, (_by_levels(kind, inner, nbytes), "by levels"))

    def __str__(self) -> str:
        """The text, which `read_cluster` reads."""
        d = ", ".join(f"{f.name}={getattr(self.device, f.name)!r}" for f in fields(self.device))
        lines = [f"device: {d}"]
        for level in self.levels:
            name = str(level.size or ALL)
            lines.append(f"{name}: {_shown(level.link.points)}, {level.link.topology}")
            lines += [f"{name} {kind} {count}: {_shown(points)}" for (kind, count), points in sorted(level.link.measured.items())]
        return "\n".join(lines) + "\n"


def _by_levels(kind: str, inner: Sequence[tuple[NetworkLink, int]], nbytes: float) -> float:
    """Innermost blocks scatter sums and gather results, so that the links between them move a part each."""
    (link, count), rest = inner[0], inner[1:]
    if not rest:
        return link.collective(kind, count, nbytes)[0]
    if kind == ALL_REDUCE:
        here = link.collective(REDUCE_SCATTER, count, nbytes)[0] + link.collective(ALL_GATHER, count, nbytes)[0]
    else:
        here = link.collective(kind, count, nbytes)[0]
    return here + _by_levels(kind, rest, nbytes / count)


# --- texts --------------------------------------------------------------------------------------------------------

ALL = "*"
"""Stands in texts for the level of all devices."""

_LINE = re.compile(r"(?P<level>device|\*|[1-9]\d{0,6})(?:\s+(?P<kind>[a-z_]+)\s+(?P<count>[1-9]\d{0,6}))?\s*:(?P<rest>.*)", re.S)
EXPECTED = "device: flops=1e14, bandwidth=2e12, memory=80e9, or 8: alpha=2e-6, beta=7e9, ring"


def _shown(points: Points) -> str:
    return ", ".join(f"{size!r}={seconds!r}" for size, seconds in points)


def read_cluster(text: str, name: str = "<cluster>") -> DeviceCluster:
    """Raises ParseError that points to the line that is none."""
    source, at = Source(name, text), 0
    found = _Lines()
    for line in text.splitlines(keepends=True):
        start, at = at, at + len(line)
        said = line.partition("#")[0].strip()
        if not said:
            continue
        try:
            found.add(said)
        except (ValueError, ZeroDivisionError, KeyError, TypeError, UsageError) as e:
            why = f": {e.diagnostics[0].message}" if isinstance(e, UsageError) else ""
            span = Span(source, start, start + len(line.rstrip()))
            raise ParseError(Diagnostic(f"not a line of a cluster{why}", span, EXPECTED)) from None
    try:
        return found.cluster()
    except UsageError as e:
        raise ParseError(Diagnostic(e.diagnostics[0].message, Span(source, 0, 0), EXPECTED)) from None


class _Lines:
    """What the lines of a text say so far."""

    def __init__(self) -> None:
        self.device: ComputeDevice | None = None
        self.links: dict[int, NetworkLink] = {}

    def add(self, line: str) -> None:
        m = _LINE.fullmatch(line)
        if m is None:
            raise ValueError(line)
        items = [item.strip() for item in m["rest"].split(",")]
        topology = items.pop() if items[-1] in TOPOLOGIES else None
        values = {key.strip(): float(value) for key, _, value in (item.partition("=") for item in items)}
        if m["level"] == "device":
            self.device = _positive(ComputeDevice(**values))
            return
        size = 0 if m["level"] == ALL else int(m["level"])
        if m["kind"]:
            if m["kind"] not in COLLECTIVES:
                raise UsageError(f"no collective '{m['kind']}': one of {', '.join(COLLECTIVES)}")
            old = self.links[size]
            self.links[size] = replace(old, measured={**old.measured, (m["kind"], int(m["count"])): _points(values)})
        elif "alpha" in values:
            self.links[size] = uniform_link(values["alpha"], values["beta"], topology or SWITCH)
        else:
            self.links[size] = NetworkLink(_points(values), topology or SWITCH)

    def cluster(self) -> DeviceCluster:
        if self.device is None:
            raise UsageError("a cluster has a line for its device")
        sizes = sorted(self.links, key=lambda size: size or 1 << 30)
        return DeviceCluster(self.device, tuple(LinkLevel(size, self.links[size]) for size in sizes))


def _points(values: Mapping[str, float]) -> Points:
    return tuple((float(size), seconds) for size, seconds in values.items())


def _positive(device: ComputeDevice) -> ComputeDevice:
    if min(device.flops, device.bandwidth, device.memory) <= 0 or min(device.launch, device.step) < 0:
        raise UsageError("what a device has is more than nothing")
    if not all(0 < getattr(device, name) <= 1 for name in PARTS):
        raise UsageError(f"{', '.join(PARTS)} are parts: above 0, at most 1")
    return device


# --- presets ------------------------------------------------------------------------------------------------------

PRESETS: Mapping[str, DeviceCluster] = {
    "a100": DeviceCluster(ComputeDevice(312e12, 2.0e12, 80e9, 4e-6), (
        LinkLevel(8, uniform_link(3e-6, 300e9)), LinkLevel(0, uniform_link(5e-6, 25e9)))),
    "h100": DeviceCluster(ComputeDevice(989e12, 3.35e12, 80e9, 4e-6), (
        LinkLevel(8, uniform_link(3e-6, 450e9)), LinkLevel(0, uniform_link(5e-6, 50e9)))),
    "tpu-v4": DeviceCluster(ComputeDevice(275e12, 1.2e12, 32e9, 2e-6), (
        LinkLevel(16, uniform_link(1e-6, 45e9, RING)), LinkLevel(256, uniform_link(1e-6, 45e9, RING)),
        LinkLevel(0, uniform_link(1e-6, 45e9, RING)))),
    "tpu-v5e": DeviceCluster(ComputeDevice(197e12, 0.81e12, 16e9, 2e-6), (
        LinkLevel(16, uniform_link(1e-6, 45e9, RING)), LinkLevel(256, uniform_link(1e-6, 45e9, RING)),
        LinkLevel(0, uniform_link(50e-6, 6.25e9)))),
    "cpu-10g": DeviceCluster(ComputeDevice(1.5e12, 100e9, 128e9, 4e-6), (LinkLevel(0, uniform_link(30e-6, 1.1e9)),)),
}  # fmt: skip
"""Nominal figures, one direction of a link, from vendors' data sheets: NVIDIA A100 and H100 in machines of 8 (NVLink; HDR and NDR
InfiniBand, one adapter for each device), Google TPU v4 and v5e (axes of 16 of a torus; of v5e pods of 256 joined by a data centre
network), processors on 10 Gb/s Ethernet. Operations are those of bf16; of the last, of f32."""


def preset(name: str) -> DeviceCluster:
    """Raises UsageError for an unknown name."""
    if name not in PRESETS:
        raise UsageError(Diagnostic(f"no cluster '{name}'", expected=f"one of {', '.join(PRESETS)}", hint=suggest(name, PRESETS)))
    return PRESETS[name]

