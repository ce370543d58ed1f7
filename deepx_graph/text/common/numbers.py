"""Numbers of texts, bounded before they are read or made anything of: Python reads no decimal of thousands of digits, and knows
other digits; a shape may ask for any number of brackets.
"""

from __future__ import annotations

from functools import lru_cache


def whole(text: str, digits: int = 18) -> int | None:
    """The number that decimal digits are; None for any other text, and for more digits than that."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= digits else None


def is_nested(skeleton: str, shape: tuple[int, ...], pair: str) -> bool:
    """Whether brackets and commas, all that is left of a constant without its elements, are those of nested lists of the shape."""
    shape = shape[: shape.index(0) + 1] if 0 in shape else shape
    length = 0
    for size in reversed(shape):
        length = len(pair) + size * length + max(0, size - 1)
    return length == len(skeleton) and skeleton == _nested(shape, pair)


@lru_cache(maxsize=4096)
def _nested(shape: tuple[int, ...], pair: str) -> str:
    inner = ""
    for size in reversed(shape):
        inner = pair[0] + ",".join([inner] * size) + pair[1]
    return inner
