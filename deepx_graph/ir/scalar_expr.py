"""The kernel vocabulary: the scalar expression of an elementwise op, which every engine lowers.

A declaration writes it as text in Python's syntax over its operand names, `expr("x / (1 + exp(-x))", "x")`; it is parsed
once, at declaration, into a tree. Only our own declarations are ever parsed here, never text of an IR file.
`PRIMITIVES` is the closed list of what an engine may spell; what it leaves out is done by the op's eval. A part that stands in
an expression twice is computed once.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache

PRIMITIVES: dict[str, int] = {
    "add": 2, "sub": 2, "mul": 2, "div": 2, "neg": 1, "abs": 1, "sign": 1, "floor": 1, "ceil": 1, "pow": 2,
    "floor_mod": 2, "max": 2, "min": 2, "exp": 1, "expm1": 1, "log": 1, "log1p": 1, "sqrt": 1, "sin": 1, "cos": 1, "tan": 1,
    "tanh": 1, "and": 2, "or": 2, "xor": 2, "not": 1, "eq": 2, "ne": 2, "lt": 2, "le": 2, "gt": 2, "ge": 2, "where": 3,
    "cast": 1, "rint": 1, "cbrt": 1, "erf": 1, "erfc": 1, "shl": 2, "lshr": 2, "ashr": 2,
}  # fmt: skip
"""Name and arity. `max` and `min` propagate NaN; `and or xor not` are bitwise on integers, logical on bool; `div` is
true division (floats only); `cast` converts to the dtype of its node; comparisons give bool. `rint` rounds halves to the even
number; a shift by a negative amount or by the width or more leaves zeros (`shl`, `lshr`) or signs (`ashr`, of signed integers)."""

PRICES: dict[str, int] = {
    "sign": 2, "shl": 2, "lshr": 2, "ashr": 2, "div": 6, "sqrt": 9, "floor_mod": 16, "exp": 35, "expm1": 42, "tanh": 35, "log": 56,
    "log1p": 70, "sin": 43, "cos": 45, "cbrt": 69, "tan": 51, "erf": 52, "erfc": 56, "pow": 155,
}  # fmt: skip
"""What a primitive costs an element, in additions; those left out cost one. Measured as vector code of float32 in registers of 256
bits, in chains that a core overlaps, on a machine without AVX-512 (an addition: 0.019 ns); what an addition costs is the business
of who runs it."""

EXACT = frozenset({"neg", "abs", "sign", "floor", "ceil", "rint", "max", "min", "where", "and", "or", "xor", "not", "eq", "ne",
                   "lt", "le", "gt", "ge"})  # fmt: skip
"""What gives real numbers as they are, none of them rounded."""

FUNCTION_PRICE = 20
"""From this price on a primitive is a polynomial of many steps, and no single instruction."""


def price(primitive: str) -> int:
    """What a primitive, or an operation that is none (""), costs an element, in additions."""
    return PRICES.get(primitive, 1)


@dataclass(frozen=True)
class Variable:
    """The k-th operand of the op."""

    index: int


@dataclass(frozen=True)
class Immediate:
    """A number, of the dtype of the op's first operand."""

    value: float


@dataclass(frozen=True)
class Apply:
    """A primitive applied to expressions."""

    primitive: str
    args: tuple[Expr, ...]


Expr = Variable | Immediate | Apply


def rounds(tree: Expr) -> bool:
    """Whether what is computed of real numbers is rounded on the way."""
    return isinstance(tree, Apply) and (tree.primitive not in EXACT or any(map(rounds, tree.args)))


_BINARY: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow", ast.BitAnd: "and", ast.BitOr: "or",
    ast.BitXor: "xor",
}  # fmt: skip
_UNARY: dict[type[ast.AST], str] = {ast.USub: "neg", ast.Invert: "not"}
_COMPARE: dict[type[ast.AST], str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
}  # fmt: skip


@cache
def expr(text: str, *operands: str) -> Expr:
    """The expression tree of `text` over the named operands.

    Raises ValueError for anything outside the vocabulary: a declaration is checked when it is made.
    """

    def build(node: ast.AST) -> Expr:
        match node:
            case ast.Name(id=name) if name in operands:
                return Variable(operands.index(name))
            case ast.Constant(value=value) if isinstance(value, (int, float)):
                return Immediate(float(value))
            case ast.BinOp(left=a, op=op, right=b) if type(op) in _BINARY:
                return Apply(_BINARY[type(op)], (build(a), build(b)))
            case ast.UnaryOp(op=op, operand=a) if type(op) in _UNARY:
                return Apply(_UNARY[type(op)], (build(a),))
            case ast.Compare(left=a, ops=[op], comparators=[b]) if type(op) in _COMPARE:
                return Apply(_COMPARE[type(op)], (build(a), build(b)))
            case ast.Call(func=ast.Name(id=name), args=args) if PRIMITIVES.get(name.rstrip("_")) == len(args):
                return Apply(name.rstrip("_"), tuple(map(build, args)))
        raise ValueError(f"not in the kernel vocabulary: {ast.unparse(node)!r} in {text!r}")

    return build(ast.parse(text, mode="eval").body)
