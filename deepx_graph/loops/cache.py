"""The first-level cache, for which loops are tiled: that of the processors of today."""

from __future__ import annotations

import math

LINE = 64
"""The bytes of a line."""

SET_LINES, SET_STRIDE = 8, 1 << 12
"""Lines that lie a multiple of `SET_STRIDE` apart share a set, which holds `SET_LINES` of them."""


def share_sets(count: int, distance: int) -> bool:
    """Whether so many lines so many bytes apart share few sets, which do not hold as many of them."""
    return count * math.gcd(distance, SET_STRIDE) > SET_LINES * SET_STRIDE
