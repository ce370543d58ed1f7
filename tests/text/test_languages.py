"""Every language that is written, through its reader, on every engine: the same entry, inputs and outputs, the same values.

The programs are of the kinds that languages tend to lose: an entry that does not stand first and has an odd name, functions
that are named `main` and are not it, branches, loops, several results, none, effects, shapes that are not known, and constants of
every element type with the values that texts write badly. What a language cannot say it refuses, with the node and its place, and
the table below says which: a refusal that is not in it fails, and so does an entry that is no longer needed.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import DeepxGraphError, Source, Span
from deepx_graph.ir import Builder, Function, Module, Node, Origin
from deepx_graph.ir.structure import CALL
from deepx_graph.literal import Literal
from deepx_graph.text import FORMATS
from deepx_graph.types import DTYPES, TupleType, Type, compatible, is_state, is_static

Arrays = Sequence[np.ndarray[Any, Any]]

LANGUAGES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in ("sea", "hlo", "stablehlo", "relay", "anf", "deepx")},
    **{f"deepx {dialect}": ("deepx", {"dialect": dialect}) for dialect in ("seed", "wire", "function")},
}

BY_NAME = {d.name: d for d in DTYPES}

X = np.array([[1.5, -2.0, 0.25], [3.0, -0.5, 8.0]], "f4")

HLO = {
    "entry last": ("""
helper.1 {
  p = f32[2,3] parameter(0)
  ROOT r = f32[2,3] negate(p)
}
ENTRY main.7 {
  x = f32[2,3] parameter(0)
  c = f32[2,3] call(x), to_apply=helper.1
  ROOT y = f32[2,3] multiply(c, c)
}""", [X]),
    "another function is called main": ("""
main {
  p = f32[2,3] parameter(0)
  ROOT r = f32[2,3] negate(p)
}
helper {
  q = f32[2,3] parameter(0)
  ROOT s = f32[2,3] call(q), to_apply=main
}
ENTRY jit_step.12 {
  x = f32[2,3] parameter(0)
  a = f32[2,3] call(x), to_apply=helper
  b = f32[2,3] call(a), to_apply=main
  ROOT y = f32[2,3] subtract(a, b)
}""", [X]),
    "several results, one of them an input": ("""
ENTRY main.3 {
  x = f32[2,3] parameter(0)
  k = s32[3] parameter(1)
  y = f32[2,3] multiply(x, x)
  z = f32[2,3] add(y, x)
  ROOT t = (f32[2,3], s32[3], f32[2,3], f32[2,3]) tuple(z, k, y, z)
}""", [X, np.array([1, -2, 3], "i4")]),
    "branches": ("""
then {
  p = f32[2,3] parameter(0)
  ROOT r = f32[2,3] negate(p)
}
otherwise {
  q = f32[2,3] parameter(0)
  ROOT s = f32[2,3] multiply(q, q)
}
ENTRY main.9 {
  x = f32[2,3] parameter(0)
  c = pred[] parameter(1)
  ROOT y = f32[2,3] conditional(c, x, x), true_computation=then, false_computation=otherwise
}""", [X, np.array(False)]),
    "a loop of two variables": ("""
test {
  p = (s32[], f32[2,3]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT less = pred[] compare(i, n), direction=LT
}
body {
  q = (s32[], f32[2,3]) parameter(0)
  j = s32[] get-tuple-element(q), index=0
  one = s32[] constant(1)
  next = s32[] add(j, one)
  v = f32[2,3] get-tuple-element(q), index=1
  w = f32[2,3] add(v, v)
  ROOT r = (s32[], f32[2,3]) tuple(next, w)
}
ENTRY loop.4 {
  x = f32[2,3] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[2,3]) tuple(zero, x)
  end = (s32[], f32[2,3]) while(start), condition=test, body=body
  iterations = s32[] get-tuple-element(end), index=0
  value = f32[2,3] get-tuple-element(end), index=1
  ROOT t = (f32[2,3], s32[]) tuple(value, iterations)
}""", [X]),
    "a reduction": ("""
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY main.5 {
  x = f32[2,3] parameter(0)
  zero = f32[] constant(0)
  ROOT y = f32[2] reduce(x, zero), dimensions={1}, to_apply=sum
}""", [X]),
    "an unused input": ("""
ENTRY main.2 {
  x = f32[2,3] parameter(0)
  unused = s8[4] parameter(1)
  ROOT y = f32[2,3] exponential(x)
}""", [X, np.zeros(4, "i1")]),
    "an input is the result": ("ENTRY main.1 {\n  ROOT x = f32[2,3] parameter(0)\n}", [X]),
    "no results": ("ENTRY main.1 {\n  x = f32[2,3] parameter(0)\n  ROOT t = () tuple()\n}", [X]),
}  # fmt: skip

SEA = {
    "an effect": ("""sea 1
entry @main.7
func public @main.7(%x: f32[2,3], %state: state) -> (%y: f32[2,3], %state: state) {
  %0 = print %state, %x : state
  %y = add %x, %x : f32[2,3]
  %1 = print %0, %y : state
  return %y, %1
}
""", [X]),
    "a symbolic size": ("""sea 1
entry @main.7
func public @main.7(%x: f32[n,3]) -> (%y: f32[n,3]) {
  %y = add %x, %x : f32[n,3]
  return %y
}
""", [X]),
    "an unknown rank": ("""sea 1
entry @main.7
func public @main.7(%x: f32[*]) -> (%y: f32[*]) {
  %y = multiply %x, %x : f32[*]
  return %y
}
""", [X]),
    "a tuple for an input": ("""sea 1
entry @main.7
func public @main.7(%p: (f32[2,3], i32[])) -> (%y: f32[2,3], %k: i32[]) {
  %a = proj %p[0] : f32[2,3]
  %y = add %a, %a : f32[2,3]
  %k = proj %p[1] : i32[]
  return %y, %k
}
""", [X, np.array(5, "i4")]),
    "recursion and closures": ("""sea 1
entry @begin
func @twice(%f: (f32[2,3]) -> (f32[2,3]), %v: f32[2,3]) -> (%r: f32[2,3]) {
  %a = call_value %f, %v : (f32[2,3])
  %b = proj %a[0] : f32[2,3]
  %c = call_value %f, %b : (f32[2,3])
  %r = proj %c[0] : f32[2,3]
  return %r
}
func @scaled(%k: f32[2,3], %u: f32[2,3]) -> (%s: f32[2,3]) {
  %s = multiply %k, %u : f32[2,3]
  return %s
}
func public @begin(%x: f32[2,3]) -> (%y: f32[2,3]) {
  %g = partial %x {callee = "scaled", signature = (f32[2,3], f32[2,3]) -> (f32[2,3])} : (f32[2,3]) -> (f32[2,3])
  %h = call %g, %x {callee = "twice", signature = ((f32[2,3]) -> (f32[2,3]), f32[2,3]) -> (f32[2,3])} : (f32[2,3])
  %y = proj %h[0] : f32[2,3]
  return %y
}
""", [X]),
}  # fmt: skip


def numbers(name: str) -> np.ndarray[Any, Any]:
    """Values of an element type that a text may lose: limits, not-a-number, infinities, both zeros."""
    dtype = BY_NAME[name]
    assert dtype.np is not None
    if dtype.kind == "bool":
        return np.array([True, False])
    if dtype.is_integer:
        info = ml_dtypes.iinfo(dtype.np)
        return np.array([info.min, info.max, 0, 1], dtype.np)
    if dtype.kind == "complex":
        parts = [1.5, -0.0, np.nan, np.inf, -2.25]
        made = np.empty(len(parts), dtype.np)
        made.real, made.imag = parts, parts[::-1]
        return made
    info = ml_dtypes.finfo(dtype.np)
    with np.errstate(all="ignore"):
        return np.array([0.0, -0.0, np.nan, np.inf, -np.inf, float(info.max), float(info.tiny), 1 / 3, -1.0]).astype(dtype.np)


def constants(name: str) -> tuple[Module, Arrays]:
    """All of `numbers` as one constant; one number alone; one everywhere; none."""
    values, b = numbers(name), Builder()
    made = [values, values[-1:].reshape(()), np.broadcast_to(values[:1], (2, 3)), values[:0].reshape(0, 3)]
    nodes = []
    for k, array in enumerate(made):
        b.origin = Origin(f"c{k}", (Span(Source("constants", "constants"), 0, 9),))
        nodes.append(b.literal(Literal(array)))
    return Module((Function("main.7", (), tuple(nodes), tuple(f"c{k}" for k in range(len(made)))),), "main.7"), []


RELAY = {
    "data and recursion": ("""#[version = "0.0.5"]
type List[A] { Cons(A, List[A]), Nil, }
def @sum(%l: List[float32]) -> float32 {
  match (%l) {
    Cons(%h, %t) => add(%h, @sum(%t)),
    Nil => 0f,
  }
}
def @main(%x: float32) -> float32 { @sum(Cons(%x, Cons(2f, Nil))) }
""", [np.float32(0.5)]),
    "references": ("""#[version = "0.0.5"]
def @main(%x: float32) -> (float32, float32) {
  let %r = ref(%x);
  let %a = ref_read(%r);
  ref_write(%r, multiply(%a, 3f));
  let %b = ref_read(%r);
  (%a, %b)
}
""", [np.float32(0.5)]),
    "a text of one expression": ("free_var %x: float32; let %y = add(%x, 1f); multiply(%y, %y)", [np.float32(0.5)]),
}  # fmt: skip


def renamed() -> tuple[Module, Arrays]:
    """Names that hardly any language has as they are, two of them alike where they are made legal."""
    module, inputs = read(HLO["entry last"][0], "hlo"), HLO["entry last"][1]
    names = {"helper.1": 'a "b" \n%', "main.7": "é!", "third": "è!"}

    functions = []
    for f in (*module.functions, module["helper.1"].with_(name="third")):
        new: dict[Node, Node] = {}
        for n in f.nodes:
            attrs = (names[n.attrs[0]], *n.attrs[1:]) if n.op is CALL else n.attrs
            new[n] = Node(n.op, tuple(new[i] for i in n.inputs), attrs, n.type, n.origin)
        params, results = (tuple(new[n] for n in side) for side in (f.params, f.results))
        functions.append(f.with_(name=names[f.name], params=params, results=results, public=True))
    return Module(tuple(functions), "é!"), inputs


def gradient() -> tuple[Module, Arrays]:
    """What `grad` adds functions and inputs to, made from a text of one expression."""
    text, inputs = RELAY["a text of one expression"]
    return dx.grad(read(text, "relay")), [*inputs, np.float32(1)]


def read(text: str, format: str) -> Module:
    return dx.loads(f"HloModule m\n{text}\n" if format == "hlo" else text, format)


Program = Callable[[], tuple[Module, Arrays]]


def _texts() -> Iterator[tuple[str, Program]]:
    for format, texts in (("hlo", HLO), ("sea", SEA), ("relay", RELAY)):
        for name, (text, inputs) in texts.items():
            yield name, lambda text=text, format=format, inputs=inputs: (read(text, format), inputs)  # type: ignore[misc]


PROGRAMS: dict[str, Program] = {
    **dict(_texts()), "odd names": renamed, "a gradient": gradient,
    **{f"constants of {name}": lambda name=name: constants(name) for name, d in BY_NAME.items() if d.np is not None},  # type: ignore[misc]
}  # fmt: skip

ONE_FUNCTION = {"deepx seed", "deepx wire"}
CALLS_MAIN = {"stablehlo", "relay", *ONE_FUNCTION}
"""The languages whose entry has one name, which other tools look for, or none."""
DEEPX = {"deepx", "deepx function", *ONE_FUNCTION}

REFUSED: dict[str, set[str]] = {
    "entry last": ONE_FUNCTION,
    "another function is called main": ONE_FUNCTION,
    "odd names": ONE_FUNCTION,
    "branches": DEEPX,
    "a loop of two variables": DEEPX,
    "an effect": {"hlo", "relay"},
    "an unknown rank": {"hlo", "stablehlo"},
    "a tuple for an input": DEEPX,
    "recursion and closures": {"hlo", "stablehlo", *DEEPX},
    "data and recursion": {"hlo", "stablehlo", *DEEPX},
    "references": {"hlo", "stablehlo", *DEEPX},
}
"""Which languages have no words for which programs."""

HAVE = {
    "relay": {"bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64"},
    "deepx": {"bool", "i8", "i16", "i32", "i64", "u8", "f8e5m2", "f16", "bf16", "f32", "f64"},
    "deepx function": {"bool", "i8", "i16", "i32", "i64", "u8", "f8e5m2", "f16", "bf16", "f32", "f64"},
    "deepx seed": {"bool", "i4", "i8", "i16", "i32", "i64", "f8e5m2", "f8e4m3fn", "f16", "bf16", "f32", "f64"},
    "deepx wire": {"bool", "i4", "i8", "i16", "i32", "i64", "f8e5m2", "f8e4m3fn", "f16", "bf16", "f32", "f64"},
}
"""The element types of the languages that do not have them all."""


def refuses(language: str, name: str) -> bool:
    if name.startswith("constants of "):
        return name.rpartition(" ")[2] not in HAVE.get(language, BY_NAME)
    return language in REFUSED.get(name, ())


def written(module: Module, language: str, name: str) -> str | None:
    """The text; None where the language refuses the program as the tables say, with the nodes and their places."""
    format, options = LANGUAGES[language]
    if not refuses(language, name):
        return dx.dumps(module, format, **options)
    with pytest.raises(DeepxGraphError) as refused:
        dx.dumps(module, format, **options)
    assert all(d.span for d in refused.value.diagnostics), f"{language} does not say where: {refused.value}"
    return None


def leaves(types: Iterable[Type]) -> list[Type]:
    """The types of values as a caller sees them: the items of tuples, and no states."""
    found: list[Type] = []
    for t in types:
        found += leaves(t.items) if isinstance(t, TupleType) else [] if is_state(t) else [t]
    return found


def same(a: Any, b: Any) -> bool:
    """Equal to the bit, whichever not-a-number it is."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape or not np.array_equal(a != a, b != b):
        return False
    return np.where(a != a, np.zeros((), a.dtype), a).tobytes() == np.where(b != b, np.zeros((), b.dtype), b).tobytes()


def values(module: Module, engine: str, inputs: Arrays) -> tuple[list[Any], str]:
    """The results, and what the program printed."""
    out = io.StringIO()
    with redirect_stdout(out):
        found = list(dx.compile(module, engine=engine, optimize=False)(*inputs))
    return found, out.getvalue()


def check_same(module: Module, again: Module, language: str, inputs: Arrays, engines: Sequence[str]) -> None:
    """The same entry, inputs, outputs and values."""
    if module.entry_name.isascii():  # else it is spelled as the language can, and the values tell which function it is
        assert again.entry_name == module.entry_name or (again.entry_name == "main" and language in CALLS_MAIN), language
    for side in ("params", "results"):
        before, after = (leaves(n.type for n in getattr(m.entry, side)) for m in (module, again))
        assert len(before) == len(after), (language, side)
        for a, b in zip(before, after, strict=True):
            assert a == b if is_static(a) else compatible(a, b), (language, side, a, b)
    for engine in engines:
        (wanted, said), (found, says) = (values(m, engine, inputs) for m in (module, again))
        assert said == says, (language, engine)
        assert len(wanted) == len(found) and all(map(same, wanted, found)), (language, engine, wanted, found)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_the_same_after_every_language(name: str) -> None:
    module, inputs = PROGRAMS[name]()
    engines = ["numpy"] if name.startswith("constants") else ["numpy", "numexpr", "native"]
    for language, (format, _) in LANGUAGES.items():
        text = written(module, language, name)
        if text is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                again = dx.loads(text, format)
            check_same(module, again, language, inputs, engines)


@pytest.mark.parametrize("name", PROGRAMS)
def test_continuation_passing_style_is_written_of_every_program(name: str) -> None:
    assert dx.dumps(PROGRAMS[name]()[0], "cps").startswith("; cps")


def test_every_language_that_is_written_is_tried() -> None:
    texts = {f.name for f in FORMATS.values() if f.writes and not f.binary}
    assert {format for format, _ in LANGUAGES.values()} == texts - {"cps", "onnxtxt"}
