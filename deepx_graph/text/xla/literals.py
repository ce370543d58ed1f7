"""Constants in nested lists, as both syntaxes have them: nesting is checked as one skeleton, elements are converted in bulk."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from deepx_graph.errors import an
from deepx_graph.literal import Array, Literal
from deepx_graph.text.xla.hlo_text import AttributeFault
from deepx_graph.types import F32, F64, DType, TensorType

_PAIR = re.compile(r"\(\s*([^(),]+?)\s*,\s*([^(),]+?)\s*\)")
_BOOLS = {"true": True, "false": False, "1": True, "0": False}
_WORD_BITS = (1 << 64) - 1


class LiteralSyntax:
    """Spelling of constants. `bits` gives the bit pattern of a float that is no decimal, None for any other word.

    A `strict` syntax has decimal integers within their range, no float that overflows, and no element that stands for all.
    """

    def __init__(self, brackets: str, noun: str, bits: Callable[[str, DType], int | None], strict: bool) -> None:
        self.brackets, self.noun, self.bits, self.strict = brackets, noun, bits, strict
        self._bare = re.compile(f"[^{re.escape(brackets)},]+")
        self._blank = str.maketrans(brackets, "  ")

    def parse(self, text: str, type: TensorType) -> Literal:
        """The constant of a static type. Raises AttributeFault."""
        if type.dtype.kind == "complex":
            text = _PAIR.sub(r"\1~\2", text)
        elif not type.dims and self._bare.fullmatch(text):
            return Literal(self._values([text.strip()], type.dtype).reshape(()))
        skeleton, bare = self._bare.sub("", text), text.translate(self._blank)
        if type.size == 0 and not bare.replace(",", " ").strip():
            return Literal(np.zeros(type.shape, type.dtype.np))
        if not (type.size and is_nested(skeleton, type.shape, self.brackets)) and (skeleton or self.strict):
            wanted = f"nested {self.noun} of {'x'.join(map(str, type.shape))}" if type.dims else "one number"
            raise AttributeFault(f"the {self.noun} do not have the shape of {type}", wanted)
        values = self._values([w.strip() for w in bare.split(",")], type.dtype)
        return Literal(values.reshape(type.shape)) if skeleton or not type.dims else Literal.splat(values[0], type)

    def _values(self, words: list[str], dtype: DType) -> Array:
        try:
            return self._converted(words, dtype)
        except AttributeFault:
            raise
        except (ValueError, KeyError, OverflowError):
            wrong = next((w for w in words if not self._is_value(w, dtype)), "")
            raise AttributeFault(f"'{wrong.replace('~', ', ')}' is not {an(dtype)} value", "numbers separated by commas") from None

    def _is_value(self, word: str, dtype: DType) -> bool:
        try:
            self._converted([word], dtype)
        except (ValueError, KeyError, OverflowError):
            return False
        return True

    def _converted(self, words: list[str], dtype: DType) -> Array:
        if dtype.kind == "bool":
            return np.array([_BOOLS[w] for w in words], np.bool_)
        if dtype.is_integer:
            return self._integers(words, dtype)
        if dtype.kind != "complex":
            return self._floats(words, dtype)
        parts, part = [w.partition("~") for w in words], F32 if dtype.bits == 64 else F64
        whole = np.empty(len(words), dtype.np)
        whole.real = self._floats([p[0] for p in parts], part)
        whole.imag = self._floats([p[2] or "0" for p in parts], part)
        return whole

    def _integers(self, words: list[str], dtype: DType) -> Array:
        half, is_signed = 1 << (dtype.bits - 1), dtype.kind == "int"
        low = 0 if self.strict and not is_signed else -half
        high = half - 1 if self.strict and is_signed else 2 * half - 1
        values = list(map(int, words)) if self.strict else [int(w, 0) for w in words]
        if wrong := next((v for v in values if not low <= v <= high), None):
            raise AttributeFault(f"{wrong} is out of the range of {dtype}", f"{low} to {high}")
        wide = np.array([v & _WORD_BITS for v in values], np.uint64)
        return (wide.view(np.int64) if is_signed else wide).astype(dtype.np)

    def _floats(self, words: list[str], dtype: DType) -> Array:
        odd = {k: bits for k, w in enumerate(words) if ("n" in w or "x" in w) and (bits := self.bits(w, dtype)) is not None}
        decimals = (0.0 if k in odd else float(w) for k, w in enumerate(words)) if odd else map(float, words)
        values = np.array(list(decimals), np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            result = values.astype(dtype.np)
        if self.strict and np.isinf(result).any():
            for k in np.flatnonzero(np.isinf(result)):
                if "inf" not in words[k].lower():
                    raise AttributeFault(f"{words[k]} is out of the range of {dtype}", "a number of that range")
        raw = result.view(f"u{dtype.itemsize}")
        for at, pattern in odd.items():
            raw[at] = pattern
        return result


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
