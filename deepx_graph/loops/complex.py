"""Complex scalars: pairs of reals, and what primitives make of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepx_graph.loops.scalar import NotExpressible, Scalar, ScalarConst
from deepx_graph.types import DType

if TYPE_CHECKING:
    from deepx_graph.loops.builder import LoopBuilder


@dataclass(frozen=True, slots=True)
class Complex:
    """A complex number in its two parts."""

    real: Scalar
    imag: Scalar

    @property
    def dtype(self) -> DType:
        """Of a part."""
        return self.real.dtype


def _part_by_part(primitive: str) -> Callable[..., Complex]:
    return lambda b, *xs: Complex(b.apply(primitive, *(x.real for x in xs)), b.apply(primitive, *(x.imag for x in xs)))


def _mul(b: LoopBuilder, x: Complex, y: Complex) -> Complex:
    """The sums of four products, also at infinities."""
    real = b.apply("sub", b.apply("mul", x.real, y.real), b.apply("mul", x.imag, y.imag))
    return Complex(real, b.apply("add", b.apply("mul", x.real, y.imag), b.apply("mul", x.imag, y.real)))


def _eq(b: LoopBuilder, x: Complex, y: Complex) -> Scalar:
    return b.both(b.apply("eq", x.real, y.real), b.apply("eq", x.imag, y.imag))


def _where(b: LoopBuilder, condition: Scalar, x: Complex, y: Complex) -> Complex:
    return Complex(b.apply("where", condition, x.real, y.real), b.apply("where", condition, x.imag, y.imag))


_RULES: dict[str, Callable[..., Any]] = {
    "copy": lambda b, x: x, "add": _part_by_part("add"), "sub": _part_by_part("sub"), "neg": _part_by_part("neg"), "mul": _mul,
    "eq": _eq, "ne": lambda b, x, y: b.apply("not", _eq(b, x, y)), "where": _where,
}  # fmt: skip


def apply(b: LoopBuilder, primitive: str, args: Sequence[Any]) -> Any:
    """A primitive of operands of which some are complex. Raises NotExpressible for one that is not written for them."""
    rule = _RULES.get(primitive)
    if rule is None:
        raise NotExpressible(f"{primitive} of complex numbers")
    if primitive == "where":
        return rule(b, args[0], *(whole(x) for x in args[1:]))
    return rule(b, *map(whole, args))


def whole(x: Any) -> Complex:
    """A number with its imaginary part."""
    return x if isinstance(x, Complex) else Complex(x, ScalarConst(x.dtype.np.type(0), x.dtype))
