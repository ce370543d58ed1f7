"""Programs with calls and recursion that derivatives are tested on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ops import add, compare, exponential, logistic, multiply, sine, subtract
from deepx_graph.types import I32, FunctionType, tensor
from tests.support.grad_programs import M, S, counted, less, real, total

N = tensor(I32)


def minus_one(b: Builder, n: Node) -> Node:
    return b(subtract, n, b.constant(1, I32))


def positive(b: Builder, n: Node) -> Node:
    return b(compare, n, b.constant(0, I32), direction="GT")


def main_of(*rest: Function, types: Sequence[object] = (M, M), body: Callable[..., Sequence[Node]]) -> Module:
    b = Builder()
    return Module((b.function("main", [(f"x{k}", t) for k, t in enumerate(types)], lambda *x: body(b, *x)), *rest))  # type: ignore[misc]


def recursion(depth: int = 3) -> Module:
    """f(x, w, n) = n > 0 ? sin(w * f(x * w, w, n - 1)) : x"""
    b = Builder()
    type = FunctionType((M, M, N), (M,))

    def f(x: Node, w: Node, n: Node) -> Sequence[Node]:
        inner, = b.call(("f", type), b(multiply, x, w), w, minus_one(b, n))
        return b.branch(positive(b, n), [b(sine, b(multiply, w, inner))], [x])

    made = b.function("f", [("x", M), ("w", M), ("n", N)], f, public=False)
    return main_of(made, body=lambda b, x, w: b.call(("f", type), x, b(logistic, w), b.constant(depth, I32)))


def doubly_recursive() -> Module:
    """f(x, n) = n > 0 ? f(sin x, n - 1) * f(x, n - 2) : x"""
    b = Builder()
    type = FunctionType((M, N), (M,))

    def f(x: Node, n: Node) -> Sequence[Node]:
        one, = b.call(("f", type), b(sine, x), minus_one(b, n))
        two, = b.call(("f", type), x, minus_one(b, minus_one(b, n)))
        return b.branch(positive(b, n), [b(multiply, one, two)], [b(add, x, b.like(0.5, x))])

    made = b.function("f", [("x", M), ("n", N)], f, public=False)
    return main_of(made, body=lambda b, x, w: [b(multiply, w, b.call(("f", type), x, b.constant(3, I32))[0])])


def mutually_recursive() -> Module:
    """even(x, n) = n > 0 ? sin(odd(x, n - 1)) : x;  odd(x, n) = n > 0 ? x * even(x, n - 1) : x"""
    b = Builder()
    type = FunctionType((M, N), (M, S))

    def side(name: str, other: str, join: Callable[[Node, Node], Node]) -> Function:
        def body(x: Node, n: Node) -> Sequence[Node]:
            y, s = b.call((other, type), x, minus_one(b, n))
            return b.branch(positive(b, n), [join(x, y), b(sine, s)], [x, total(b, x)])

        return b.function(name, [("x", M), ("n", N)], body, public=False)

    even = side("even", "odd", lambda x, y: b(sine, y))
    odd = side("odd", "even", lambda x, y: b(multiply, x, y))
    return main_of(even, odd, body=lambda b, x, w: [
        b(multiply, w, y) for y in b.call(("even", type), x, b.constant(5, I32))[:1]])


def recursion_in_a_loop() -> Module:
    m = recursion()
    f = m["f"]
    return main_of(f, body=lambda b, x, w: counted(b, 3, [x], lambda i, y: b.call(f, b(sine, y), w, i)))


def loop_in_recursion() -> Module:
    b = Builder()
    type = FunctionType((M, N), (M,))

    def f(x: Node, n: Node) -> Sequence[Node]:
        y, = counted(b, 3, [x], lambda i, y: [b(sine, b(multiply, y, real(b, i)))])
        z, = b.loop([y], lambda v: (less(b, total(b, v[0]), b.constant(4.0)), [b(add, v[0], b(multiply, x, x))]))
        return b.branch(positive(b, n), b.call(("f", type), b(logistic, z), minus_one(b, n)), [b(multiply, z, x)])

    made = b.function("f", [("x", M), ("n", N)], f, public=False)
    return main_of(made, body=lambda b, x, w: b.call(("f", type), b(multiply, x, w), b.constant(2, I32)))


def chosen_closure() -> Module:
    """A function value that a branch chooses, called twice."""
    b = Builder()
    f = b.function("f", [("w", M), ("x", M)], lambda w, x: [b(sine, b(multiply, w, x))], public=False)
    g = b.function("g", [("v", S), ("n", N), ("x", M)], lambda v, n, x: [b(multiply, x, v)], public=False)

    def body(b: Builder, x: Node, w: Node) -> Sequence[Node]:
        value, = b.branch(less(b, total(b, x), b.constant(5.0)), [b.partial(f, w)],
                          [b.partial(g, total(b, w), b.constant(1, I32))])
        return b.call_value(value, b.call_value(value, x)[0])

    return main_of(f, g, body=body)


def closure_as_argument() -> Module:
    """twice(h, x, n) = n > 0 ? twice(h, h(h(x)), n - 1) : x"""
    b = Builder()
    h_type = FunctionType((M,), (M,))
    type = FunctionType((h_type, M, N), (M,))

    def twice(h: Node, x: Node, n: Node) -> Sequence[Node]:
        y, = b.call_value(h, b.call_value(h, x)[0])
        return b.branch(positive(b, n), b.call(("twice", type), h, y, minus_one(b, n)), [x])

    f = b.function("f", [("w", M), ("x", M)], lambda w, x: [b(sine, b(multiply, w, x))], public=False)
    made = b.function("twice", [("h", h_type), ("x", M), ("n", N)], twice, public=False)
    return main_of(made, f, body=lambda b, x, w: b.call(made, b.partial(f, w), x, b.constant(2, I32)))

PROGRAMS = {
    "recursion": recursion, "doubly": doubly_recursive, "mutually": mutually_recursive, "in a loop": recursion_in_a_loop,
    "loop inside": loop_in_recursion, "chosen closure": chosen_closure, "closure as argument": closure_as_argument,
}  # fmt: skip


def own(vjp: str = "f_vjp") -> Module:
    """f(x, n) = exp(x), which says that its derivative is 7 times the cotangent."""
    b = Builder()
    f = b.function("f", [("x", M), ("n", N)], lambda x, n: [b(exponential, x)], vjp=vjp, public=False)
    back = b.function("f_vjp", [("x", M), ("n", N), ("ct", M)], lambda x, n, ct: [b(multiply, ct, b.like(7, x))], public=False)
    return main_of(f, back, body=lambda b, x, w: [b(multiply, w, b.call(f, b(sine, x), b.constant(1, I32))[0])])
