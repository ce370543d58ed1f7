"""Programs over the integers modulo a prime: whether two are equal as algebra, whatever rounding does to either.

A float is a residue, a complex number a residue with a root of -1 (there is none in the field: the prime is 3 modulo 4), a constant
the residue of the exact rational number that it is; integers and bools are themselves. Sums and products are exact, as products of
residues below 2^20 are summed in float64. Two different polynomials of degree d agree at random residues with probability d / p at
most (Schwartz, Zippel), so that a few primes and draws leave next to no doubt. What is no rational function is a random function of
the residues, the same in both programs; odd and even functions are so.

Residues stand between -p/2 and p/2 and are compared as the numbers they are written as. So `max(-x, -y) = -min(x, y)` holds, but
not `x < y` if and only if `x + 1 < y + 1`: where programs are *not* equal over residues and anything but rational functions takes
part, that shows nothing. Nor do residues see rounding, overflow and NaN. Infinite numbers stay what they are.

Source: Mirage (Wu et al., OSDI 2025) verifies tensor programs over finite fields so; Schwartz, Fast Probabilistic Algorithms for
Verification of Polynomial Identities, 1980.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deepx_graph.errors import DeepxGraphError
from deepx_graph.ir.scalar_expr import Apply, Expr, Immediate, Variable
from deepx_graph.literal import Array
from deepx_graph.types import BOOL, C128, F64, TensorType

PRIMES = (1048571, 1048559, 1048391)
"""Below 2^20, and 11 modulo 12: minus one is no square, and every number has one cube root."""

EXACT = float(1 << 53)
"""Whole numbers below this are exact in float64."""
_LEAST_EXPONENT = -1140
_WHOLE = 8
"""Integers that a float becomes lie below this, in size."""


class NoResidue(DeepxGraphError):
    """An operation, of floats, that has no meaning over residues, or whose sums are too long to be exact."""


@dataclass
class PrimeField:
    """Arithmetic of residues, given as float64 between -p/2 and p/2, of one prime; `seed` chooses the random functions."""

    prime: int
    seed: int = 0
    rational: bool = True
    """Whether only rational functions have been applied so far."""
    _powers: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        powers = [pow(2, _LEAST_EXPONENT, self.prime)]
        for _ in range(2300):
            powers.append(powers[-1] * 2 % self.prime)
        self._powers = np.array(powers, np.int64)

    def reduced(self, x: Any) -> Array:
        """The residues of whole numbers below 2^53; what is not finite stays."""
        x = np.asarray(x)
        if x.dtype.kind == "c":
            return _joined(self.reduced(x.real), self.reduced(x.imag))
        with np.errstate(invalid="ignore"):
            x = x.astype(np.float64, copy=False)
            r = np.fmod(x, self.prime)  # exact
            r = np.where(r > self.prime // 2, r - self.prime, np.where(r < -(self.prime // 2), r + self.prime, r)) + 0.0
        return np.asarray(np.where(np.isfinite(x), r, x))

    def number(self, value: Any) -> Array:
        """The residues of the exact values of float64 or complex128 numbers."""
        value = np.asarray(value)
        if value.dtype.kind == "c":
            return _joined(self.number(value.real), self.number(value.imag))
        value = value.astype(np.float64)
        mantissa, exponent = np.frexp(np.where(np.isfinite(value), value, 0))
        whole = (mantissa * EXACT).astype(np.int64) % self.prime
        scale = self._powers[exponent.astype(np.int64) - 53 - _LEAST_EXPONENT]
        return np.asarray(np.where(np.isfinite(value), self.reduced(whole * scale % self.prime), value))

    def times(self, x: Any, y: Any) -> Array:
        """Products."""
        return self.reduced(np.multiply(x, y))

    def power(self, x: Any, exponent: int) -> Array:
        """A fixed whole power, not negative; of zero to the zero one."""
        result, square = np.asarray(np.ones_like(x)), np.asarray(x)
        while exponent:
            if exponent & 1:
                result = self.times(result, square)
            square = self.times(square, square)
            exponent >>= 1
        return result

    def inverse(self, x: Any) -> Array:
        """One over x; of zero, and of what is not finite, as IEEE has it."""
        x = np.asarray(x)
        if x.dtype.kind == "c":
            norm = self.reduced(self.times(x.real, x.real) + self.times(x.imag, x.imag))
            return self.times(np.conj(x), self.inverse(norm))
        with np.errstate(divide="ignore"):
            usual = np.isfinite(x) & (x != 0)
            return np.asarray(np.where(usual, self.power(np.where(usual, x, 1), self.prime - 2), 1 / x))

    def root(self, x: Any) -> Array:
        """A square root of x or of -x: of a product that of its factors' product."""
        self.rational = False
        usual = np.isfinite(x)
        with np.errstate(invalid="ignore"):
            return np.asarray(np.where(usual, self.power(np.where(usual, x, 0), (self.prime + 1) // 4), np.sqrt(x)))

    def random(self, name: str, *xs: Any) -> Array:
        """A random function of that name."""
        self.rational = False
        mixed: Any = np.uint64(zlib.crc32(name.encode()) | (self.seed + 1) << 32)
        for x in xs:
            for part in (np.real(x), np.imag(x)) if np.iscomplexobj(x) else (x,):
                bits = np.ascontiguousarray(np.asarray(part, np.float64) + 0.0).view(np.uint64).reshape(np.shape(part))
                mixed = _scrambled(mixed ^ bits)
        return self.reduced(_scrambled(mixed + np.uint64(self.prime)) >> np.uint64(20))

    def function(self, name: str, true: Callable[..., Any], *xs: Any) -> Array:
        """A random function, whose values at infinite numbers are true."""
        if any(np.iscomplexobj(x) for x in xs):
            raise NoResidue(f"{name} of complex numbers")
        usual = np.logical_and.reduce([np.isfinite(x) for x in np.broadcast_arrays(*xs)])
        with np.errstate(all="ignore"):
            return np.asarray(np.where(usual, self.random(name, *xs), true(*xs)))


def _joined(real: Array, imag: Array) -> Array:
    """Complex numbers of their parts, infinite ones, too."""
    whole = np.empty(np.shape(real), np.complex128)
    whole.real, whole.imag = real, imag
    return whole


def _scrambled(x: Any) -> Any:
    """SplitMix64's finaliser (Steele, Lea and Flood, 2014)."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


# --- the kernel vocabulary -------------------------------------------------------------------------------------------

Meaning = Callable[..., Any]
"""`meaning(field, *operands)` of a primitive: arrays of residues, integers or bools."""


def _ordered(function: np.ufunc) -> Meaning:
    def meaning(field: PrimeField, *xs: Any) -> Any:
        field.rational = field.rational and not any(x.dtype.kind == "f" for x in map(np.asarray, xs))
        return function(*xs)

    return meaning


def _plain(function: np.ufunc) -> Meaning:
    return lambda field, *xs: function(*xs)


def _added(function: np.ufunc) -> Meaning:
    return lambda field, *xs: field.reduced(function(*xs))


def _divided(field: PrimeField, x: Any, y: Any) -> Any:
    return field.times(x, field.inverse(y))


def _magnitude(field: PrimeField, x: Any) -> Any:
    if np.iscomplexobj(x):
        return field.root(field.reduced(field.times(x.real, x.real) + field.times(x.imag, x.imag)))
    field.rational = False
    return np.abs(x)


def _sign(field: PrimeField, x: Any) -> Any:
    if np.iscomplexobj(x):
        return field.times(x, field.inverse(_magnitude(field, x)))
    field.rational = False
    return np.sign(x)


def _odd(name: str, true: Callable[..., Any]) -> Meaning:
    return lambda field, x: field.reduced(np.sign(x) * field.function(name, true, np.abs(x)))


def _even(name: str, true: Callable[..., Any]) -> Meaning:
    return lambda field, x: field.function(name, true, np.abs(x))


def _any(name: str, true: Callable[..., Any]) -> Meaning:
    return lambda field, *xs: field.function(name, true, *xs)


_SINE, _COSINE = _odd("sin", np.sin), _even("cos", np.cos)
_EXP, _LOG = _any("exp", np.exp), _any("log", np.log)


def _to_the(field: PrimeField, x: Any, y: Any) -> Any:
    """Small powers, halves among them, as products and roots; others at random."""
    exponents = np.unique(y)
    if exponents.size > _EXPONENTS or np.iscomplexobj(y):
        return field.function("pow", np.power, x, y)
    found = np.zeros(np.broadcast_shapes(np.shape(x), np.shape(y)), np.result_type(x))
    for exponent in exponents:
        found = np.where(np.equal(y, exponent), _fixed_power(field, x, exponent), found)
    return found


_EXPONENTS = 16
"""Different exponents that are looked at one by one, and the largest of which powers are products."""


def _fixed_power(field: PrimeField, x: Any, exponent: Any) -> Any:
    twice = float(field.reduced(exponent * 2))  # of a half, the residue of its double is small
    if not abs(twice) <= 2 * _EXPONENTS:
        return field.function("pow", np.power, x, exponent)
    whole = twice % 2 == 0
    power = field.power(x if whole else field.root(x), int(abs(twice)) // (2 if whole else 1))
    return field.inverse(power) if twice < 0 else power


def _chosen(field: PrimeField, condition: Any, x: Any, y: Any) -> Any:
    return np.where(condition, x, y)


POLYNOMIAL: dict[str, Meaning] = {"add": _added(np.add), "mul": lambda field, x, y: field.times(x, y)}

RING: dict[str, Meaning] = {
    **POLYNOMIAL,
    "max": _ordered(np.maximum), "min": _ordered(np.minimum), "eq": _ordered(np.equal), "ne": _ordered(np.not_equal),
    "lt": _ordered(np.less), "le": _ordered(np.less_equal), "gt": _ordered(np.greater), "ge": _ordered(np.greater_equal),
    "where": _chosen, "and": _plain(np.bitwise_and), "or": _plain(np.bitwise_or), "xor": _plain(np.bitwise_xor),
    "not": _plain(np.invert),
}  # fmt: skip
"""Primitives that move, compare, add and multiply: of none can a result be exact and what it was made of not be."""

PRIMITIVES: dict[str, Meaning] = {
    **RING, "sub": _added(np.subtract), "neg": _plain(np.negative), "div": _divided, "abs": _magnitude, "sign": _sign,
    "pow": _to_the, "sqrt": lambda field, x: field.root(x), "cbrt": lambda field, x: field.power(x, (2 * field.prime - 1) // 3),
    "exp": _EXP, "expm1": lambda field, x: field.reduced(_EXP(field, x) - 1),
    "log": _LOG, "log1p": lambda field, x: _LOG(field, field.reduced(x + 1)),
    "sin": _SINE, "cos": _COSINE, "tan": lambda field, x: _divided(field, _SINE(field, x), _COSINE(field, x)),
    "tanh": _odd("tanh", np.tanh), "erf": _odd("erf", np.sign),
    "erfc": lambda field, x: field.reduced(1 - _odd("erf", np.sign)(field, x)),
    "floor": _any("floor", np.floor), "ceil": _any("ceil", np.ceil), "rint": _odd("rint", np.rint),
    "floor_mod": _any("floor_mod", np.mod),
}  # fmt: skip
"""What the primitives of kernels mean, but for `cast`, which its node decides, and shifts, which are of integers alone."""


def cast(field: PrimeField, x: Any, type: TensorType) -> Any:
    """Floats from anything; bools by comparing with zero; small integers at random."""
    if type.dtype is F64 or type.dtype is C128:
        wide = x.real if np.iscomplexobj(x) and type.dtype is F64 else x
        if wide.dtype.kind in "fc":
            return wide.astype(type.dtype.np)
        return np.asarray(field.reduced(wide.astype(np.int64) % field.prime)).astype(type.dtype.np)
    if type.dtype is BOOL:
        return np.asarray(x != 0)
    drawn = field.random("cast", x)
    return np.fmod(drawn if type.dtype.kind == "int" else np.abs(drawn), _WHOLE).astype(type.dtype.np)


def expression(field: PrimeField, tree: Expr, operands: Sequence[Any], type: TensorType) -> Any:
    """What a kernel gives for these operands; `type` is that of the result. Raises NoResidue for a primitive without meaning."""
    match tree:
        case Variable(index):
            return operands[index]
        case Immediate(value):
            return field.number(value)
        case Apply("cast", args):
            return cast(field, expression(field, args[0], operands, type), type)
        case Apply(primitive, args) if primitive in PRIMITIVES:
            return PRIMITIVES[primitive](field, *(expression(field, a, operands, type) for a in args))
    raise NoResidue(f"the primitive {tree.primitive}")
