"""Stages of a pipeline: a function cut where few values cross, so that the longest stage is as short as possible.

A cut is a place in an order of the nodes in which each stands as late as it may; what is computed before it and used behind it
crosses. What depends on constants alone is computed in each stage that uses it, parameters go to the stages that use them. Cuts are
chosen by dynamic programming over the places: the least over all cuts of the largest time of a stage with its transfer (Alpa's
inter-operator pass, Zheng et al., 2022).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from deepx_graph.analysis.work import bytes_moved, flops, kernels, node_times
from deepx_graph.errors import Diagnostic, UsageError
from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.rebuild import rebuild
from deepx_graph.ir.structure import PARAM
from deepx_graph.planning.cluster import DeviceCluster
from deepx_graph.sharding.values import made_of_constants
from deepx_graph.types import TensorType, nbytes

MOST_CROSSING = 8
"""Values that may cross a cut."""

MOST_PLACES = 400
"""Places to cut that are compared: those that fewest bytes cross."""

ROUNDS = 3
"""How often stages are cut again, at most."""

SEVERAL = 8
"""Where as few bytes cross as at so many other places, there may be an end of a layer."""

LONGER = 1.5
"""Pieces of which the longest takes so many times that of others are cut where more bytes cross."""

EVEN = 1.05
"""Stages of which the longest takes at most so many times the mean are not cut again."""


@dataclass(frozen=True)
class PipelineStage:
    """One stage as a function of its own: of the parameters `params` of the whole function, by number, and of what crosses from the
    stage before; it gives what is `leaving`, which crosses to the next, of the last stage the results. `seconds` is what it was
    taken to take when it was cut, `end` the place where that was.
    """

    function: Function
    params: tuple[int, ...]
    crossing: tuple[Node, ...]
    leaving: tuple[Node, ...]
    seconds: float
    end: int


def stages(function: Function, count: int, cluster: DeviceCluster) -> list[PipelineStage]:
    """A function without calls and effects in so many stages. Raises UsageError where it cannot be cut so often."""
    found = _Cutting(function, cluster)
    return found.stages(found.cuts(count))


def stages_at(function: Function, cuts: Sequence[int], cluster: DeviceCluster) -> list[PipelineStage]:
    """A function cut at the places where stages of it, or of an equal one in another process, end."""
    return _Cutting(function, cluster).stages(cuts)


def balanced_stages(function: Function, count: int, cluster: DeviceCluster,
                    seconds: Callable[[Sequence[PipelineStage]], Sequence[float]]) -> list[PipelineStage]:
    """The same, cut again by what the stages are found to take as long as the longest gets shorter by that, at most `ROUNDS` times.

    Raises as `stages`, and as `seconds` does.
    """
    cutting = _Cutting(function, cluster)
    cuts = cutting.cuts(count)
    found = cutting.stages(cuts)
    taken = seconds(found)
    for _ in range(ROUNDS):
        if max(taken) * len(taken) <= EVEN * sum(taken):
            break
        cutting.scaled(cuts, taken)
        cuts = cutting.cuts(count)
        other = cutting.stages(cuts)
        again = seconds(other)
        if max(again) >= max(taken):
            break
        found, taken = other, again
    return found


class Pieces:
    """A function cut at all places where so few bytes cross as at several, as between layers, and stages that are joined from such
    pieces."""

    def __init__(self, function: Function, cluster: DeviceCluster) -> None:
        self.function, self._cutting = function, _Cutting(function, cluster)
        self._cuts = self._cutting.narrowest()
        self.stages = self._cutting.stages(self._cuts)

    def joined(self, seconds: Sequence[float], count: int) -> list[PipelineStage]:
        """So many stages, where the pieces take so many seconds each. Raises UsageError where it cannot be cut so often."""
        self._cutting.scaled(self._cuts, seconds)
        return self._cutting.stages(self._cutting.cuts(count))


class _Cutting:
    def __init__(self, function: Function, cluster: DeviceCluster) -> None:
        self.function, self.cluster = function, cluster
        self.everywhere = made_of_constants(function)
        self.order = [n for n in _depth_first(function) if n.op is not PARAM and n not in self.everywhere]
        times, computing = node_times(function), set(kernels(function))
        self.seconds = [cluster.device.seconds(flops(n), bytes_moved(n)) * times[n].count if n in computing and n in times else 0.0
                        for n in self.order]
        place = {n: k for k, n in enumerate(self.order)}
        self.last = {n: max((place[u] for u in function.users[n] if u in place), default=-1) for n in self.order}
        for r in function.results:
            if r in self.last:
                self.last[r] = len(self.order)

    def crossing(self, cut: int) -> list[Node]:
        """What is computed before a place and used behind it."""
        return [n for n in self.order[:cut] if self.last[n] >= cut]

    def _places(self) -> list[tuple[int, float]]:
        """Where the function may be cut, with the bytes that cross there."""
        found = []
        alive: dict[Node, None] = {}
        for k, n in enumerate(self.order):
            alive[n] = None
            for i in (*n.inputs, n):
                if i in alive and self.last[i] <= k:
                    del alive[i]
            if 0 < len(alive) <= MOST_CROSSING and all(isinstance(x.type, TensorType) for x in alive):
                found.append((k + 1, float(sum(nbytes(x.type) for x in alive))))
        inner = [(at, size) for at, size in found if at < len(self.order)]
        return sorted(sorted(inner, key=lambda p: p[1])[:MOST_PLACES])

    def narrowest(self) -> list[int]:
        """The places where as many bytes cross, the fewest for which that is so at `SEVERAL` places, or at as many as there are,
        and the longest piece between them takes at most `LONGER` times what it does for any other number of bytes."""
        by_size: dict[float, list[int]] = {}
        for at, size in self._places():
            by_size.setdefault(size, []).append(at)
        enough = min(SEVERAL, max(map(len, by_size.values()), default=0))
        total = np.concatenate(([0.0], np.cumsum(self.seconds)))
        longest = {size: float(np.diff(total[[0, *places, len(self.order)]]).max())
                   for size, places in sorted(by_size.items()) if len(places) >= enough}
        least = LONGER * min(longest.values(), default=0.0)
        return next((by_size[size] for size, seconds in longest.items() if seconds <= least), [])

    def cuts(self, count: int) -> list[int]:
        """The places of the best `count` - 1 cuts."""
        places = self._places()
        if len(places) < count - 1:
            hint = f"it can be cut at {len(places)} places, where at most {MOST_CROSSING} tensors cross"
            raise UsageError(Diagnostic(f"the program has no {count} stages", hint=hint))
        ends = [0, *(at for at, _ in places), len(self.order)]
        moved = [0.0, *(self.cluster.collective("collective_permute", ((0, 1),), size)[0] for _, size in places), 0.0]
        total = np.concatenate(([0.0], np.cumsum(self.seconds)))[ends]
        best = np.full(len(ends), np.inf)
        best[0] = 0.0
        origins = []
        for _ in range(count):
            longest = np.full((len(ends), len(ends)), np.inf)  # from, to
            for a in range(len(ends) - 1):
                longest[a, a + 1:] = np.maximum(best[a], total[a + 1:] - total[a] + moved[a])
            origins.append(longest.argmin(axis=0))
            best = longest.min(axis=0)
        at, found = len(ends) - 1, []
        for origin in reversed(origins[1:]):
            at = int(origin[at])
            found.append(ends[at])
        return found[::-1]

    def stages(self, cuts: Sequence[int]) -> list[PipelineStage]:
        """A function for each stretch between cuts."""
        bounds = [0, *cuts, len(self.order)]
        return [self._stage(k, bounds[k], bounds[k + 1], k == len(bounds) - 2) for k in range(len(bounds) - 1)]

    def _stage(self, number: int, start: int, end: int, is_last: bool) -> PipelineStage:
        inside = self.order[start:end]
        before = self.crossing(start)
        after = list(self.function.results) if is_last else self.crossing(end)
        used = {i for n in inside for i in n.inputs} | (set(after) if is_last else set())
        params = tuple(k for k, p in enumerate(self.function.params) if p in used)
        b = Builder()
        new: dict[Node, Node] = {}
        for k, old in enumerate([*(self.function.params[k] for k in params), *before]):
            name = old.name or f"value{old.serial}"
            new[old] = b.param(k, old.type, name if old.op is PARAM else f"{name}_{k}")
        given = tuple(new.values())
        members = set(inside) | self.everywhere
        rebuild([n for n in self.function.nodes if n in members], new)
        function = self.function.with_(name=f"stage{number}", params=given, results=tuple(new[n] for n in after),
                                       result_names=(), result_notes=(), attributes=())
        return PipelineStage(function, params, tuple(before), tuple(after), sum(self.seconds[start:end]), end)

    def scaled(self, cuts: Sequence[int], seconds: Sequence[float]) -> None:
        """The nodes of each stretch between cuts take so many seconds together from now on."""
        for start, end, whole in zip((0, *cuts), (*cuts, len(self.order)), seconds, strict=True):
            if before := sum(self.seconds[start:end]):
                self.seconds[start:end] = [s * whole / before for s in self.seconds[start:end]]


def _depth_first(function: Function) -> Iterator[Node]:
    """The nodes, each right before the first that needs it: what is made of weights alone stands where it is used."""
    done: set[Node] = set()
    stack = [*reversed(function.results)]
    while stack:
        node = stack[-1]
        missing = [i for i in node.inputs if i not in done]
        if missing:
            stack += reversed(missing)
            continue
        stack.pop()
        if node not in done:
            done.add(node)
            yield node
