"""What can reach one another: the components of a graph, such as that of calls."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def components(edges: Mapping[K, Sequence[K]]) -> list[list[K]]:
    """The strongly connected components, callees first (Tarjan's algorithm on a stack of its own). Takes time linear in the edges.

    Every name that an edge leads to has edges of its own, if none. Source: Tarjan, Depth-first search and linear graph algorithms.
    """
    index: dict[K, int] = {}
    low: dict[K, int] = {}
    path: list[K] = []
    on_path: set[K] = set()
    found: list[list[K]] = []
    for root in edges:
        work = [] if root in index else [(root, 0)]
        while work:
            name, at = work.pop()
            if at == 0:
                index[name] = low[name] = len(index)
                path.append(name)
                on_path.add(name)
            if at < len(edges[name]):
                work.append((name, at + 1))
                after = edges[name][at]
                if after not in index:
                    work.append((after, 0))
                elif after in on_path:
                    low[name] = min(low[name], index[after])
                continue
            for after in edges[name]:
                if after in on_path:
                    low[name] = min(low[name], low[after])
            if low[name] == index[name]:
                component = [path.pop()]
                while component[-1] != name:
                    component.append(path.pop())
                found.append(component[::-1])
                on_path.difference_update(component)
    return found


def on_cycles(edges: Mapping[K, Sequence[K]], found: Sequence[Sequence[K]]) -> set[K]:
    """What can reach itself, of the components that were found: those of several, and what has an edge to itself."""
    return {k for component in found if len(component) > 1 or component[0] in edges[component[0]] for k in component}
