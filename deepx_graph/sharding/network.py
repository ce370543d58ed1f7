"""What moving bytes between the devices of a mesh costs: one link for each axis, and collectives as rounds over it.

A link is piecewise linear in the bytes of a message, as no single latency and bandwidth fits messages in and out of caches. The
text of a network has a line for each axis, latency (seconds), bandwidth (bytes a second) and topology, or points measured:

    data: alpha=2e-6, beta=7e9, ring
    model: 256=1.0e-6, 1048576=1.4e-4, 67108864=0.04, switch

Rounds are those of the ring algorithms (Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in
MPICH, 2005).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from deepx_graph.errors import Diagnostic, ParseError, Source, Span, UsageError, suggest

TOPOLOGIES = ("ring", "switch")


@dataclass(frozen=True)
class AxisLink:
    """Seconds for a message by its bytes, at points in ascending order, linear between them and beyond the last two."""

    points: tuple[tuple[float, float], ...]
    topology: str = "ring"

    def __post_init__(self) -> None:
        """Raises UsageError for points that make no line."""
        sizes = [size for size, _ in self.points]
        if len(sizes) < 2 or sizes != sorted(set(sizes)) or any(t < 0 for _, t in self.points):
            raise UsageError("a link has at least two points of bytes and seconds, by ascending bytes")
        if self.topology not in TOPOLOGIES:
            raise UsageError(f"no topology '{self.topology}': {' or '.join(TOPOLOGIES)}")

    def message(self, nbytes: float) -> float:
        """Seconds for one message between neighbours; one below the first point takes as long as that."""
        if nbytes <= self.points[0][0]:
            return self.points[0][1]
        (x0, y0), (x1, y1) = next((p for p in pairwise(self.points) if nbytes <= p[1][0]), self.points[-2:])
        return y0 + (y1 - y0) * (nbytes - x0) / (x1 - x0)

    def collective(self, kind: str, count: int, nbytes: float) -> float:
        """Seconds of a collective of `count` devices; `nbytes`: the larger of what one device has before and after it."""
        if count < 2:
            return 0.0
        part = nbytes / count
        if kind == "collective_permute":
            return self.message(nbytes)
        if kind == "all_to_all" and self.topology == "ring":
            return (count - 1) * self.message(part * (count + 1) / 4 if count > 2 else part)
        rounds = 2 * (count - 1) if kind == "all_reduce" else count - 1
        return rounds * self.message(part)


def link(alpha: float, beta: float, topology: str = "ring") -> AxisLink:
    """A link of one latency (seconds) and one bandwidth (bytes a second)."""
    return AxisLink(((0.0, alpha), (1e9, alpha + 1e9 / beta)), topology)


@dataclass(frozen=True)
class Network:
    """The link of each axis of a mesh, and that of the others."""

    default: AxisLink
    links: Mapping[str, AxisLink] = field(default_factory=dict)

    def of(self, axes: Iterable[str]) -> AxisLink:
        """The link that decides where devices meet along these axes: the slowest for a message of 1 MiB."""
        return max((self.links.get(a, self.default) for a in axes), key=lambda x: x.message(2.0**20), default=self.default)

    def __str__(self) -> str:
        """The text, which `read_network` reads."""
        return "".join(f"{name}: {_points(x)}, {x.topology}\n" for name, x in [*sorted(self.links.items()), (OTHERS, self.default)])


OTHERS = "*"
"""Stands in texts for the axes that are not named."""


def _points(x: AxisLink) -> str:
    return ", ".join(f"{size!r}={seconds!r}" for size, seconds in x.points)


_MEMORY = AxisLink(((0.0, 1e-6), (2.0**10, 2e-6), (2.0**20, 1.43e-4), (2.0**26, 0.04)), "switch")

PRESETS: Mapping[str, Network] = {
    "shared-memory": Network(_MEMORY),
    "ethernet-10g": Network(link(30e-6, 1.1e9, "switch")),
    "infiniband-hdr": Network(link(2e-6, 23e9, "switch")),
    "nvlink": Network(link(3e-6, 250e9, "switch")),
    "torus": Network(link(1e-6, 45e9)),
}
"""Shared memory: two MPI ranks of one machine, measured. The others: nominal figures of such links, less a tenth."""

DEFAULT = PRESETS["infiniband-hdr"]


def preset(name: str) -> Network:
    """Raises UsageError for an unknown name."""
    if name not in PRESETS:
        hint = suggest(name, PRESETS)
        raise UsageError(Diagnostic(f"no network '{name}'", expected=f"one of {', '.join(PRESETS)}", hint=hint))
    return PRESETS[name]


def read_network(text: str, name: str = "<network>") -> Network:
    """Raises ParseError that points to the line that is none."""
    source, at = Source(name, text), 0
    links: dict[str, AxisLink] = {}
    for line in text.splitlines(keepends=True):
        start, at = at, at + len(line)
        said = line.partition("#")[0].strip()
        if not said:
            continue
        try:
            axis, _, rest = said.partition(":")
            links[axis.strip()] = _link(rest)
        except (ValueError, ZeroDivisionError, UsageError) as e:
            why = f": {e.diagnostics[0].message}" if isinstance(e, UsageError) else ""
            span = Span(source, start, start + len(line.rstrip()))
            raise ParseError(Diagnostic(f"no link of an axis{why}", span, "axis: alpha=2e-6, beta=7e9, ring")) from None
    return Network(links.pop(OTHERS, DEFAULT.default), links)


def _link(text: str) -> AxisLink:
    items = [item.strip() for item in text.split(",")]
    topology = items.pop() if "=" not in items[-1] else "ring"
    said = dict(item.split("=", 1) for item in items)
    if "alpha" in said:
        return link(float(said["alpha"]), float(said["beta"]), topology)
    return AxisLink(tuple((float(size), float(seconds)) for size, seconds in said.items()), topology)
