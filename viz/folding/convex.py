"""Boxes that no path leaves to come back, so that a picture has no cycle between them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def convex_rows(same: Sequence[int], order: Sequence[int], inputs: Sequence[Sequence[int]]) -> list[list[int]]:
    """Runs of these items, which are in the order of data, that can be one box: no path leaves a run and comes back."""
    wanted = set(same)
    rows: list[list[int]] = [[]]
    reached: set[int] = set()
    """The row at hand, and what a path leads to from it."""
    behind: set[int] = set()
    """What of that lies outside of the row."""
    for k in order[order.index(same[0]) :]:
        if k in wanted:
            if not behind.isdisjoint(inputs[k]):
                rows.append([])
                reached, behind = set(), set()
            rows[-1].append(k)
            reached.add(k)
            if k == same[-1]:
                break
        elif not reached.isdisjoint(inputs[k]):
            behind.add(k)
            reached.add(k)
    return rows


def joined_boxes(boxes: dict[tuple[K, int], list[int]], inputs: Sequence[Sequence[int]],
                 names: dict[int, K]) -> list[tuple[K, list[int]]]:
    """Boxes of one name made one where no path leads from the one to the other through a third.

    A box is a name and a level, which grows along every path from box to box.
    """
    ordered = sorted(boxes, key=lambda b: b[1])
    number = {b: i for i, b in enumerate(ordered)}
    of = {k: number[b] for b, members in boxes.items() for k in members}
    after: list[set[int]] = [set() for _ in ordered]
    before: list[set[int]] = [set() for _ in ordered]
    for k in names:
        own = of[k]
        for i in inputs[k]:
            given = of.get(i, own)
            if given != own:
                after[given].add(own)
                before[own].add(given)
    members = [boxes[b] for b in ordered]
    path, previous = _paths(before)
    last: dict[K, int] = {}
    latest = list(range(len(ordered)))
    alive = [True] * len(ordered)
    for b in ordered:
        j = number[b]
        i = last.get(b[0], j)
        apart = path[latest[i]] == path[j] and latest[i] != previous[j]  # the box before on the path lies between the two
        if i != j and not apart and not _reaches(after, after[i] - {j}, j):
            for x in after[j]:
                before[x].discard(j)
            for x in before[j]:
                after[x].discard(j)
            after[i] |= after[j] - {i}
            before[i] |= before[j] - {i}
            for x in after[j] - {i}:
                before[x].add(i)
            for x in before[j] - {i}:
                after[x].add(i)
            after[i].discard(j)
            members[i] = members[i] + members[j]
            alive[j] = False
            latest[i] = j
        else:
            last[b[0]] = j
    return [(b[0], members[number[b]]) for b in ordered if alive[number[b]]]


def _paths(before: Sequence[set[int]]) -> tuple[list[int], list[int]]:
    """The boxes on paths, each on one: for each box the first of its path, and the box before it there, -1 for none."""
    path, previous, ends = list(range(len(before))), [-1] * len(before), [True] * len(before)
    for k, some in enumerate(before):
        last = max([b for b in some if ends[b]], default=-1)
        if last >= 0:
            path[k], previous[k], ends[last] = path[last], last, False
    return path, previous


def _reaches(after: Sequence[set[int]], starts: Iterable[int], goal: int) -> bool:
    """Whether a path leads to the goal. No path leads to it from a box of a higher number, as none of these has been joined."""
    seen = {k for k in starts if k <= goal}
    stack = list(seen)
    while stack:
        for k in after[stack.pop()]:
            if k <= goal and k not in seen:
                seen.add(k)
                stack.append(k)
        if goal in seen:
            return True
    return False
