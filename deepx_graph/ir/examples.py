"""Programs in the sea form that show the operations which samples of arrays cannot: structure, calls, effects, data types.

Each is the `example` of the declarations that use it; a test reads, verifies and runs them.
"""

from __future__ import annotations


def program(head: str, *lines: str) -> str:
    """The text of a program of one function, `main`."""
    body = "".join(f"  {line}\n" for line in lines)
    return f"sea 1\nentry @main\nfunc public @main{head} {{\n{body}}}\n"


LEAVES = program("(%x: f32[2]) -> (%y: f32[2])", "%one = constant dense<1.0> : f32[]", "%y = add %x, %one : f32[2]", "return %y")

TUPLES = program(
    "(%x: f32[2], %n: i32[]) -> (%y: f32[2])", "%pair = tuple %x, %n : (f32[2], i32[])", "%y = proj %pair[0] : f32[2]", "return %y")

BRANCH = program(
    "(%p: bool[], %x: f32[2]) -> (%y: f32[2])", "%minus = negate %x : f32[2]", "%either = region %p, %x, %minus : (f32[2])",
    "%y = phi %either[0] : f32[2]", "return %y")

LOOP = program(
    "(%n: i32[]) -> (%sum: i32[])",
    "%zero = constant dense<0> : i32[]",
    "%one = constant dense<1> : i32[]",
    "%loop = loop_begin %zero, %zero {loop = 0} : (i32[], i32[])",
    "%k = phi %loop[0] : i32[]",
    "%total = phi %loop[1] : i32[]",
    "%more = compare LT, %k, %n : bool[]",
    "%next = add %k, %one : i32[]",
    "%added = add %total, %k : i32[]",
    "%end = loop_end %loop, %more, %next, %added : (i32[], i32[])",
    "%sum = proj %end[1] : i32[]",
    "return %sum")

_SCALE = """func @scale(%by: f32[], %x: f32[2]) -> (%y: f32[2]) {
  %y = multiply %x, %by : f32[2]
  return %y
}
"""

CALLS = program(
    "(%by: f32[], %x: f32[2]) -> (%y: f32[2])",
    '%all = call %by, %x {callee = "scale", signature = (f32[], f32[2]) -> (f32[2])} : (f32[2])', "%y = proj %all[0] : f32[2]",
    "return %y") + _SCALE

CLOSURES = program(
    "(%by: f32[], %x: f32[2]) -> (%y: f32[2])",
    '%scaled = partial %by {callee = "scale", signature = (f32[], f32[2]) -> (f32[2])} : (f32[2]) -> (f32[2])',
    "%all = call_value %scaled, %x : (f32[2])", "%y = proj %all[0] : f32[2]", "return %y") + _SCALE

PRINT = program("(%x: f32[2], %before: state) -> (%after: state)",
                '%after = print %before, %x {format = "%.2f"} : state', "return %after")

SAVE = program("(%x: f32[2], %before: state) -> (%after: state)",
               '%after = save %before, %x {path = "x"} : state', "return %after")

LOAD = program(
    "(%before: state) -> (%x: f32[2], %after: state)", '%both = load %before {path = "x", type = f32[2]} : (f32[2], state)',
    "%x = proj %both[0] : f32[2]", "%after = proj %both[1] : state", "return %x, %after")

REFERENCES = program(
    "(%x: f32[2], %before: state) -> (%y: f32[2], %after: state)",
    "%made = ref_create %before, %x : (ref(f32[2]), state)",
    "%cell = proj %made[0] : ref(f32[2])",
    "%s = proj %made[1] : state",
    "%minus = negate %x : f32[2]",
    "%written = ref_write %s, %cell, %minus : state",
    "%both = ref_read %written, %cell : (f32[2], state)",
    "%y = proj %both[0] : f32[2]",
    "%after = proj %both[1] : state",
    "return %y, %after")

FUSED = program(
    "(%x: f32[2]) -> (%y: f32[2])",
    "%y = fusion %x {body = func @body(%a: f32[2]) -> (%r: f32[2]) {\n    %e = exponential %a : f32[2]\n"
    "    %r = add %e, %a : f32[2]\n    return %r\n  }} : f32[2]", "return %y")

UNKNOWN = program(
    "(%x: f32[2]) -> (%y: f32[2])", '%y = opaque %x {name = "vendor.op", type = f32[2]} : f32[2]', "return %y")


def check(name: str, attributes: str = "") -> str:
    """A program that checks two arrays by the op of that name."""
    return program("(%x: f32[2], %y: f32[2], %before: state) -> (%after: state)",
                   f"%after = {name} %before, %x, %y{attributes} : state", "return %after")


DATA = program(
    "(%x: f32[2]) -> (%y: f32[2])",
    '%made = construct %x {constructor = "Some", type = @Maybe} : @Maybe',
    '%which = tag %made {cases = ["Some"]} : i32[]',
    '%inner = field %made {constructor = "Some", index = 0, type = f32[2]} : f32[2]',
    '%never = match_failed {message = "None has no value", type = f32[2]} : f32[2]',
    "%either = region %which, %inner, %never : (f32[2])",
    "%y = phi %either[0] : f32[2]",
    "return %y").replace("entry @main\n", "entry @main\ndata @Maybe { Some(f32[2]), None() }\n")

TAPE = program(
    "(%x: f32[2]) -> (%y: f32[2])", "%none = tape_empty : tape", "%one = tape_push %none, %x : tape",
    "%sum = tape_add %one, %one : tape", "%both = tape_pop %sum {type = f32[2]} : (tape, f32[2])", "%y = proj %both[1] : f32[2]",
    "return %y")

_SUM = "computation = func @add(%a: f32[], %b: f32[]) -> (%sum: f32[]) {\n    %sum = add %a, %b : f32[]\n    return %sum\n  }"


def collective(name: str, attributes: str) -> str:
    """A program in which devices meet by the op of that name; `SUM` stands for the sum as its computation."""
    return program(
        "(%x: f32[4], %before: state) -> (%y: f32[4], %after: state)",
        f"%both = {name} %before, %x {{{attributes.replace('SUM', _SUM)}}} : (f32[4], state)",
        "%y = proj %both[0] : f32[4]", "%after = proj %both[1] : state", "return %y, %after")


def spmd_collective(name: str, attributes: str) -> str:
    """As `collective`, without the state."""
    return program("(%x: f32[4]) -> (%y: f32[4])", f"%y = {name} %x {{{attributes.replace('SUM', _SUM)}}} : f32[4]", "return %y")
