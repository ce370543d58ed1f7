"""Functions as values, algebraic data types and references: built, verified, run plain and optimised, and kept by the sea form."""

from __future__ import annotations

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import RunError, VerifyError
from deepx_graph.ir import Builder, Constructor, Data, Function, Module
from deepx_graph.ir.structure import REGION
from deepx_graph.ops import add, compare, construct, field, match_failed, multiply, ref_create, ref_read, ref_write, subtract, tag
from deepx_graph.ops.data.adt import DataValue
from deepx_graph.types import BOOL, F32, I32, STATE, DataType, FunctionType, TupleType, VarType, scalar, tensor
from deepx_graph.verify import verify

A = VarType("A")
LIST = Data("List", ("A",), (Constructor("Cons", (A, DataType("List", (A,)))), Constructor("Nil")))
F = scalar(F32)
LIST_F = DataType("List", (F,))


def fold_list() -> Module:
    """sum of (x, y, 2.5) as a list, by recursion over the list."""
    b = Builder()

    def total(xs):
        inner = ("total", FunctionType((LIST_F,), (F,)))
        head = b(field, xs, constructor="Cons", index=0, type=F)
        rest = b(field, xs, constructor="Cons", index=1, type=LIST_F)
        deeper = b.call(inner, rest)[0]
        return b.branch(b(tag, xs, cases=("Cons", "Nil")), [b(add, head, deeper)], [b.constant(0, F32)])

    def main(x, y):
        xs = b(construct, constructor="Nil", type=LIST_F)
        for item in (b.constant(2.5, F32), y, x):
            xs = b(construct, item, xs, constructor="Cons", type=LIST_F)
        return b.call(("total", FunctionType((LIST_F,), (F,))), xs)

    functions = (b.function("main", [("x", F), ("y", F)], main), b.function("total", [("xs", LIST_F)], total, public=False))
    return Module(functions, "main", datas=(LIST,))


def counter() -> Module:
    """A reference that a closure counts up, read after two calls."""
    b = Builder()
    ref = b.param(0, F).type

    def bump(r, by, state):
        old, state = b.items(b(ref_read, state, r))
        return old, b(ref_write, state, r, b(add, old, by))

    cell = b(ref_create, b.param(0, STATE), b.param(1, F)).type.items[0]
    bumper = b.function("bump", [("r", cell), ("by", ref), ("s", STATE)], bump, public=False)

    def main(x, state):
        r, state = b.items(b(ref_create, state, x))
        f = b.partial(bumper, r)
        first, state = b.call_value(f, b.constant(2, F32), state)
        second, state = b.call_value(f, b.constant(3, F32), state)
        last, state = b.items(b(ref_read, state, r))
        return first, second, last, state

    return Module((b.function("main", [("x", F), ("state", STATE)], main), bumper), "main")


def twice_generic() -> Module:
    """map over a list of a generic function given as a value; generic in both types."""
    b, bb = Builder(), VarType("B")
    list_b = DataType("List", (bb,))
    signature = FunctionType((FunctionType((A,), (bb,)), DataType("List", (A,))), (list_b,))

    def mapped(f, xs):
        head = b(field, xs, constructor="Cons", index=0, type=A)
        rest = b(field, xs, constructor="Cons", index=1, type=DataType("List", (A,)))
        made = b(construct, b.call_value(f, head)[0], b.call(("map", signature), f, rest)[0], constructor="Cons", type=list_b)
        return b.branch(b(tag, xs, cases=("Cons",)), [made], [b(construct, constructor="Nil", type=list_b)])

    vector = tensor(F32, (2,))
    list_v = DataType("List", (vector,))
    double = b.function("double", [("x", vector)], lambda x: [b(add, x, x)], public=False)

    def main(x):
        xs = b(construct, x, b(construct, constructor="Nil", type=list_v), constructor="Cons", type=list_v)
        of = FunctionType((FunctionType((vector,), (vector,)), list_v), (list_v,))
        ys = b.call(("map", of), b.partial(double), xs)[0]
        return [b(field, ys, constructor="Cons", index=0, type=vector)]

    functions = (b.function("main", [("x", vector)], main),
                 b.function("map", list(zip("fx", signature.params, strict=True)), mapped), double)
    return Module(functions, "main", datas=(LIST,))


PROGRAMS = {
    "list": (fold_list, (1.0, 2.0), (5.5,)),
    "counter": (counter, (1.0,), (1.0, 3.0, 6.0)),
    "generic": (twice_generic, (np.array([1, 2], np.float32),), (np.array([2, 4]),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_runs_plain_and_optimised(name: str) -> None:
    make, inputs, want = PROGRAMS[name]
    module = make()
    verify(module)
    for version in (module, dx.optimize(module), dx.optimize(dx.optimize(module), "cse,simplify,dce")):
        for engine in ("numpy", "numexpr"):
            outs = dx.compile(version, engine=engine, optimize=False)(*inputs)
            assert len(outs) == len(want)
            for got, expected in zip(outs, want, strict=True):
                np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_sea_form_keeps_it(name: str) -> None:
    module = PROGRAMS[name][0]()
    text = dx.dumps(module, "sea")
    again = dx.loads(text)
    assert again.datas == module.datas
    assert again.functions == module.functions
    assert dx.dumps(again, "sea") == text


def test_attributes_of_functions_are_kept() -> None:
    b = Builder()
    f = b.function("main", [("x", F)], lambda x: [x], attributes=(("Primitive", "1"), ("odd name", 'a "b"')))
    assert dx.loads(dx.dumps(Module((f,)), "sea")).entry.attributes == f.attributes


def test_a_field_of_another_constructor_is_some_value() -> None:
    b = Builder()
    pair = TupleType((tensor(I32, (2,)), LIST_F))
    data = Data("D", (), (Constructor("L", (pair,)), Constructor("R", (F,))))

    def main(x):
        value = b(construct, x, constructor="R", type=DataType("D"))
        item = b(field, value, constructor="L", index=0, type=pair)
        return [b.proj(item, 0), b(tag, b.proj(item, 1), cases=("Cons",))]

    outs = dx.compile(Module((b.function("main", [("x", F)], main),), datas=(data, LIST)), optimize=False)(1.0)
    assert [o.shape for o in outs] == [(2,), ()]


def test_calls_are_not_run_because_both_branches_have_them() -> None:
    """fact(n - 1) under two tests: merged, it would be computed before either test, and never end."""
    b = Builder()
    signature = FunctionType((scalar(I32), scalar(BOOL)), (scalar(I32),))

    def body(n, flip):
        def inner():
            return b.call(("f", signature), b(subtract, n, b.constant(1, I32)), flip)[0]

        stop = b(compare, n, b.constant(0, I32), direction="EQ")
        one = b.branch(stop, [b.constant(1, I32)], [b(multiply, n, inner())])[0]
        other = b.branch(b(compare, n, b.constant(1, I32), direction="LT"), [b.constant(0, I32)], [inner()])[0]
        return [b(add, one, other)]

    module = Module((b.function("f", [("n", scalar(I32)), ("flip", scalar(BOOL))], body),), "f")
    for version in (module, dx.optimize(module)):
        assert dx.compile(version, optimize=False)(2, True)[0] == 2 * (1 + 1) + (1 + 1)


def test_a_failed_match_ends_the_run_only_where_it_is_reached() -> None:
    b = Builder()

    def main(x):
        xs = b(construct, x, b(construct, constructor="Nil", type=LIST_F), constructor="Cons", type=LIST_F)
        rest = b(field, xs, constructor="Cons", index=1, type=LIST_F)

        def head(of):
            taken = b(field, of, constructor="Cons", index=0, type=F)
            return b.branch(b(tag, of, cases=("Cons",)), [taken], [b(match_failed, message="head of nothing", type=F)])[0]

        positive = b(compare, x, b.constant(0, F32), direction="GT")
        return b.branch(positive, [head(xs)], [head(rest)])

    run = dx.compile(dx.optimize(Module((b.function("main", [("x", F)], main),), datas=(LIST,)), "cse,dce"), optimize=False)
    assert run(2.0)[0] == 2
    with pytest.raises(RunError, match="head of nothing"):
        run(-2.0)


def test_data_are_results_as_they_are() -> None:
    b = Builder()
    module = Module((b.function("main", [("x", F)], lambda x: [
        b(construct, x, b(construct, constructor="Nil", type=LIST_F), constructor="Cons", type=LIST_F)]),), datas=(LIST,))
    (value,) = dx.compile(module, optimize=False)(3.0)
    assert isinstance(value, DataValue)
    assert value.constructor == "Cons"
    assert value.fields[0] == 3


def test_what_does_not_fit_the_declaration_is_found() -> None:
    b = Builder()
    x = b.param(0, F)
    wrong = [
        (b(construct, x, constructor="Cons", type=LIST_F), "2 fields and is given 1"),
        (b(construct, constructor="Nul", type=LIST_F), "no constructor of List"),
        (b(construct, constructor="Nil", type=DataType("Lisp")), "no data type 'Lisp'"),
        (b(field, b(construct, constructor="Nil", type=LIST_F), constructor="Cons", index=2, type=F), "no field 2"),
        (b(field, b(construct, constructor="Nil", type=LIST_F), constructor="Cons", index=0, type=scalar(I32)), "field 0"),
        (b(tag, b(construct, constructor="Nil", type=LIST_F), cases=("Corn",)), "'Corn' is no constructor"),
    ]
    for node, message in wrong:
        with pytest.raises(VerifyError, match=message):
            verify(Module((Function("main", (x,), (node,)),), datas=(LIST,)))


def test_a_region_over_a_tag_has_a_branch_for_each_case() -> None:
    module = dx.optimize(fold_list(), "simplify")
    regions = [n for f in module.functions for n in f.nodes if n.op is REGION]
    assert all(r.attrs[0] == 2 for r in regions)
