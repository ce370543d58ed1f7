"""Functional programs of Relay with their results: what several tests run."""
# ruff: noqa: E501

from __future__ import annotations

LIST = "type List[A] { Cons(A, List[A]), Nil, }\n"
PROGRAMS = [
    ("def @main(%x: int32) { let %f = fn (%n: int32, %a: int32) -> int32 { if (%n == 0) { %a } else { %f(%n - 1, %a * %n) } }; %f(%x, 1) }",
     5, 120),
    ("def @even(%n: int32) -> bool { if (%n == 0) { True } else { @odd(%n - 1) } }\n"
     "def @odd(%n: int32) -> bool { if (%n == 0) { False } else { @even(%n - 1) } }\n"
     "def @main(%x: int32) { @even(%x) }", 7, False),
    ("def @main(%x: int32) { let %y = %x + 1; let %add = fn (%a) { fn (%b) { %a * %b + %y } }; %add(%x)(10) }", 4, 45),
    ("def @twice[A](%f: fn (A) -> A, %x: A) -> A { %f(%f(%x)) }\n"
     "def @main(%x: int32) { let %k = 3; (@twice(fn (%z) { %z * %k }, %x), @twice(fn (%b: bool) { %x > 2 }, True)) }", 2, (18, False)),
    (LIST + "def @map[A, B](%f: fn (A) -> B, %l: List[A]) -> List[B] { match (%l) { Cons(%h, %t) => Cons(%f(%h), @map(%f, %t)), Nil => Nil } }\n"
     "def @fold[A, B](%f: fn (B, A) -> B, %z: B, %l: List[A]) -> B { match (%l) { Nil => %z, Cons(%h, %t) => @fold(%f, %f(%z, %h), %t) } }\n"
     "def @main(%x: int32) { @fold(add, 0, @map(fn (%i) { %i * %i }, Cons(%x, Cons(3, Nil)))) }", 4, 25),
    (LIST + "def @last(%l: List[int32]) -> int32 { match? (%l) { Cons(%h, Nil) => %h, Cons(_, %t) => @last(%t) } }\n"
     "def @main(%x: int32) { @last(Cons(1, Cons(2, Cons(%x, Nil)))) }", 9, 9),
    (LIST + "def @zip(%a: List[int32], %b: List[int32]) -> int32 { match (%a, %b) { (Cons(%x, %s), Cons(%y, %t)) => %x * %y + @zip(%s, %t),"
     " _ => 100 } }\ndef @main(%x: int32) { @zip(Cons(%x, Cons(2, Nil)), Cons(3, Nil)) }", 4, 112),
    ("def @count(%r: ref(int32), %n: int32) -> () { if (%n == 0) { () } else { ref_write(%r, ref_read(%r) + %n); @count(%r, %n - 1) } }\n"
     "def @main(%x: int32) { let %r = ref(0); @count(%r, %x); ref_read(%r) }", 4, 10),
    ("def @main(%x: int32) { let %r = ref(fn (%n: int32) -> int32 { %n }); let %f = fn (%n: int32) -> int32"
     " { if (%n == 0) { 1 } else { %n * ref_read(%r)(%n - 1) } }; ref_write(%r, %f); %f(%x) }", 5, 120),
    ("def @apply(%f: fn (int32) -> int32) -> int32 { %f(1) }\n"
     "def @main(%x: int32) { let %r = ref(%x); let %a = @apply(fn (%i) { ref_write(%r, ref_read(%r) + %i); 7 });"
     " let %b = @apply(fn (%i) { %i + 40 }); (%a, %b, ref_read(%r)) }", 5, (7, 41, 6)),
    ("def @main(%x: int32) { %0 = (let %a = %x + 1; %a * 2); let %t = (%0, (%x,)); %t.1.0 + %t.0 }", 3, 11),
    ("type E { Num(int32), Add(E, E), Mul(E, E) }\n"
     "def @opt(%e: E) -> E { match (%e) { Add(Num(%a), Num(%b)) => Num(%a + %b), Mul(%l, %r) => Mul(@opt(%l), @opt(%r)), _ => %e } }\n"
     "def @run(%e: E) -> int32 { match (%e) { Num(%n) => %n, Add(%l, %r) => @run(%l) + @run(%r), Mul(%l, %r) => @run(%l) * @run(%r) } }\n"
     "def @main(%x: int32) { @run(@opt(Mul(Add(Num(%x), Num(2)), Num(10)))) }", 3, 50),
]  # fmt: skip
