"""Functional programs that derivatives are tested on, as Relay texts."""
# ruff: noqa: E501

from __future__ import annotations

from tests.support.relay_programs import LIST

PROGRAMS = {
"closure":"def @main(%x: float64) { let %f = fn (%a: float64) { fn (%b: float64) { %a * %b * %x } }; %f(%x)(%x + 1f64) }",
"branchclosure":"def @main(%x: float64) -> float64 { let %f = if (%x < 1f64) { fn (%a: float64) -> float64 { %a + %x } } else { fn (%a: float64) -> float64 { %a * %x * %x} }; %f(3f64) }",
"rec":"def @p(%x: float64, %n: int32) -> float64 { if (%n == 0) { 1f64 } else { %x * @p(%x * 1.1f64, %n - 1) } }\ndef @main(%x: float64) { @p(%x, 4) }",
"tail":"def @p(%x: float64, %n: int32, %a: float64) -> float64 { if (%n == 0) { %a } else { @p(%x, %n - 1, %a * tanh(%x)) } }\ndef @main(%x: float64) { @p(%x, 4, 1f64) }",
"ref":"def @main(%x: float64) { let %r = ref(%x); ref_write(%r, ref_read(%r) * %x); ref_write(%r, ref_read(%r) * %x); ref_read(%r) }",
"refloop":"def @count(%r: ref(float64), %n: int32) -> () { if (%n == 0) { () } else { ref_write(%r, ref_read(%r) * ref_read(%r)); @count(%r, %n - 1) } }\ndef @main(%x: float64) { let %r = ref(%x); @count(%r, 2); ref_read(%r) }",
"hof":"def @twice[A](%f: fn (A) -> A, %x: A) -> A { %f(%f(%x)) }\ndef @main(%x: float64) { @twice(fn (%z: float64) { %z * %z * %x }, %x) }",
"list":LIST+"def @sum(%l: List[float64]) -> float64 { match (%l) { Cons(%h, %t) => %h * %h + @sum(%t), Nil => 0f64 } }\ndef @main(%x: float64) { @sum(Cons(%x, Cons(%x * %x, Nil))) }",
"mapfold":LIST + "def @map[A, B](%f: fn (A) -> B, %l: List[A]) -> List[B] { match (%l) { Cons(%h, %t) => Cons(%f(%h), @map(%f, %t)), Nil => Nil } }\n"
     "def @fold[A, B](%f: fn (B, A) -> B, %z: B, %l: List[A]) -> B { match (%l) { Nil => %z, Cons(%h, %t) => @fold(%f, %f(%z, %h), %t) } }\n"
     "def @main(%x: float64) { @fold(fn (%a: float64, %b: float64) { %a * %b }, 1f64, @map(fn (%i: float64) { %i * %x }, Cons(%x, Cons(3f64, Nil)))) }",
"iter":"def @iter(%n: int32, %f: fn (float64) -> float64, %x: float64) -> float64 { if (%n == 0) { %x } else { @iter(%n - 1, %f, %f(%x)) } }\ndef @main(%x: float64) { @iter(3, fn (%a: float64) { %a * %x }, 1f64) }",
"mutual":"def @a(%x: float64, %n: int32) -> float64 { if (%n == 0) { %x } else { @b(%x * 2f64, %n - 1) } }\ndef @b(%x: float64, %n: int32) -> float64 { if (%n == 0) { %x } else { sin(@a(%x * %x, %n - 1)) } }\ndef @main(%x: float64) { @a(%x, 5) }",
"tuplefn":"def @both(%p: (fn (float64) -> float64, float64)) -> float64 { %p.0(%p.1) }\ndef @main(%x: float64) { @both((fn (%a: float64) { %a * %x }, %x)) }",
"reffn":"def @main(%x: float64) -> float64 { let %r = ref(fn (%n: float64) -> float64 { %n }); let %f = fn (%n: float64) -> float64 { %n * ref_read(%r)(%n) }; ref_write(%r, fn (%n: float64) -> float64 { %n * %x }); %f(%x) }",
}
