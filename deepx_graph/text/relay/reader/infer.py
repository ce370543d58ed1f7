"""Types of every expression of a Relay program, by unification (Hindley-Milner; generic functions state their parameters).

The type of an operator's call is the type of what the operator's rule builds from operands of the given types: there is no second
table of type relations. A call whose operands are not known yet waits until they are; operands that nothing ever tells are
tensors of any type. In a text that is an expression and no program, calls that do not fit are kept as they stand, with a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from deepx_graph.errors import DeepxGraphError, Diagnostic, InferError, ParseError, Source, Span, VerifyError, an, suggest
from deepx_graph.ir import Builder, Constructor, Data, Node
from deepx_graph.literal import Literal
from deepx_graph.text.common.steps import Unsupported
from deepx_graph.text.relay import syntax as ast
from deepx_graph.text.relay.reader.unify import Effect, Fun, Unknown, find, is_known, rebuilt, settled, shown, unify
from deepx_graph.text.relay.rules import RULES, build
from deepx_graph.types import ANY, BOOL, DataType, RefType, TensorType, TupleType, Type, scalar, tensor

REFERENCES = {"ref": 1, "ref_read": 1, "ref_write": 2}
"""The operators that touch references, and how many operands each takes."""

MAX_NESTED = 20
"""How many definitions are inferred within one another, each where the one before uses it; beyond, in their own turn."""


class Inference:
    """Fills in the types of a program. `eta` gives, for an operator or constructor used as a value, the function it stands for."""

    def __init__(self, source: Source, program: ast.Program) -> None:
        self.source, self.program = source, program
        self.lenient = program.expression is not None
        self.datas = {t.name: Data(t.name, t.params, tuple(Constructor(c.name, tuple(c.fields)) for c in t.constructors), t.extern)
                      for t in program.types}
        self.constructors = {c.name: (d, c) for d in self.datas.values() for c in d.constructors}
        self.functions: dict[str, tuple[ast.Fn, Fun]] = {}
        self.eta: dict[ast.OpRef, ast.Fn] = {}
        self.pending: list[ast.Call] = []
        self.warnings: list[Diagnostic] = list(program.warnings)
        self.marked: list[Effect] = []
        self._begun: set[str] = set()
        self._open: list[str] = []

    def run(self) -> None:
        """Infers everything. Raises VerifyError with a place for what does not fit."""
        for t in self.program.types:
            for f in (f for made in t.constructors for f in made.fields):
                self.check_type(f, t)
        for d in self.program.definitions:
            self.functions[d.name] = d.fn, self.signature(d.fn)
        for d in self.program.definitions:
            self.define(d.name)
        if self.program.expression is not None:
            self.expr(self.program.expression, Effect())
        self.resolve()
        while self.pending:
            self._default()
            self.resolve()
        for effect in self.marked:
            effect.root().mark()

    # --- errors

    def span(self, where: Any) -> Span:
        return Span(self.source, where.start, where.end)

    def error(self, message: str, where: Any, expected: str | None = None, hint: str | None = None) -> DeepxGraphError:
        return VerifyError(Diagnostic(message, self.span(where), expected=expected, hint=hint))

    def unify(self, found: Type, wanted: Type, where: Any, what: str = "") -> None:
        """Makes two types one. Raises VerifyError at `where`; a warning in a text that is no program."""
        try:
            unify(found, wanted)
        except InferError as e:
            message = f"{what}{': ' if what else ''}{e.message}"
            diagnostic = Diagnostic(message, self.span(where), expected=e.expected or shown(wanted))
            if not self.lenient:
                raise VerifyError(diagnostic) from None
            self.warnings.append(diagnostic)

    def check_type(self, type: Type, where: Any) -> None:
        """Raises ParseError for a data type that is not defined, or is applied to too many or few types."""
        stack = [type]
        while stack:
            part = stack.pop()
            stack += part.parts
            if isinstance(part, DataType):
                data = self.datas.get(part.name)
                if data is None:
                    hint = suggest(part.name, self.datas)
                    raise ParseError(Diagnostic(f"no type '{part.name}' is defined", self.span(where), hint=hint))
                if len(part.args) != len(data.params) and not data.extern:
                    message = f"'{part.name}' takes {len(data.params)} types and is given {len(part.args)}"
                    raise ParseError(Diagnostic(message, self.span(where)))

    def stated(self, type: Type | None, where: Any) -> Type:
        if type is None:
            return Unknown()
        found = rebuilt(type, {})
        self.check_type(found, where)
        return found

    # --- functions

    def signature(self, fn: ast.Fn) -> Fun:
        for p in fn.params:
            p.type = self.stated(p.stated, p)
        fn.instance = type = Fun((p.type for p in fn.params), self.stated(fn.result, fn))
        return type

    def define(self, name: str) -> None:
        """Infers a definition, unless that was done or begun: where it is first used, so that its result is known there."""
        if name in self._begun or len(self._open) > MAX_NESTED:
            return
        self._begun.add(name)
        self._open.append(name)
        fn, type = self.functions[name]
        self.body(fn, type)
        self.resolve()
        self._open.pop()

    def body(self, fn: ast.Fn, type: Fun) -> None:
        found = self.expr(fn.body, type.effect)
        result = fn.body.result if isinstance(fn.body, ast.BlockExpression) else fn.body
        self.unify(found, type.result, result, "the result")
        if isinstance(exact := find(found), TensorType) and exact.is_static:
            type.result = exact

    def instance(self, type: Type, names: Sequence[str]) -> Type:
        """A generic type with fresh unknowns for its parameters; functions keep their effects."""
        return rebuilt(type, {n: Unknown() for n in names}) if names else type

    # --- expressions

    def expr(self, e: ast.Expr, effect: Effect) -> Type:
        """Infers an expression in a function of that effect."""
        e.type = self._expr(e, effect)
        found: Type = e.type
        return found

    def _expr(self, e: ast.Expr, effect: Effect) -> Type:
        match e:
            case ast.Constant():
                return e.value.type
            case ast.VariableUse():
                return self.instance(e.binder.type, e.binder.scheme)
            case ast.Global():
                return self._global(e)
            case ast.OpRef():
                return self._value_of(e, effect)
            case ast.TupleOf():
                return TupleType(tuple(self.expr(i, effect) for i in e.items))
            case ast.Item():
                return self._item(e, effect)
            case ast.If():
                self.unify(self.expr(e.condition, effect), scalar(BOOL), e.condition, "the condition")
                then = self.expr(e.then, effect)
                self.unify(self.expr(e.otherwise, effect), then, e.otherwise, "the other branch")
                return then
            case ast.BlockExpression():
                return self._block(e, effect)
            case ast.Fn():
                type = self.signature(e)
                self.body(e, type)
                return self.instance(type, e.type_params)
            case ast.Match():
                return self._match(e, effect)
        assert isinstance(e, ast.Call)
        return self._call(e, effect)

    def _global(self, e: ast.Global) -> Type:
        known = self.functions.get(e.name)
        if known is None:
            message = f"no function '@{e.name}' is defined"
            if not self.lenient:
                raise self.error(message, e, hint=suggest(e.name, self.functions))
            self.warnings.append(Diagnostic(message, self.span(e), severity="warning"))
            return Unknown()
        self.define(e.name)
        return self.instance(known[1], known[0].type_params)

    def _block(self, e: ast.BlockExpression, effect: Effect) -> Type:
        for s in e.statements:
            if s.binder is None:
                self.expr(s.value, effect)
                continue
            s.binder.type = self.stated(s.binder.stated, s.binder)
            if isinstance(s.value, ast.Fn):
                s.value.type = type = self.signature(s.value)
                self.unify(type, s.binder.type, s.binder)
                s.binder.type = type
                self.body(s.value, type)
                s.binder.scheme = s.value.type_params
            else:
                found = self.expr(s.value, effect)
                self.unify(found, s.binder.type, s.value, f"%{s.binder.name}" if s.binder.name else "")
                s.binder.type = found
        return self.expr(e.result, effect)

    def _item(self, e: ast.Item, effect: Effect) -> Type:
        whole = self.expr(e.whole, effect)
        if isinstance(find(whole), Unknown):
            self.resolve()
        whole = find(whole)
        if not isinstance(whole, TupleType):
            raise self.error(f"cannot take item {e.index} of {shown(whole)}", e, expected="a tuple of known type")
        if e.index >= len(whole.items):
            raise self.error(f"item {e.index} of a tuple of {len(whole.items)}", e)
        return whole.items[e.index]

    def _value_of(self, e: ast.OpRef, effect: Effect) -> Type:
        """An operator or constructor where a value is wanted: the function that calls it."""
        if e.name in self.constructors:
            fields, type = self._constructed(e.name)
            if not fields:
                return type
            count = len(fields)
        elif e.name in RULES:
            count = RULES[e.name].arity
        else:
            raise self.error(f"'{e.name}' is neither an operator nor a constructor", e,
                             hint=suggest(e.name, [*self.constructors, *RULES]))
        params = [ast.Binder(f"a{k}", e.start, e.end) for k in range(count)]
        call = ast.Call(e.start, e.end, ast.OpRef(e.start, e.end, e.name), [ast.VariableUse(e.start, e.end, p) for p in params], {})
        fn = self.eta[e] = ast.Fn(e.start, e.end, params, call, None)
        return self.expr(fn, effect)

    # --- calls

    def _call(self, e: ast.Call, effect: Effect) -> Type:
        if isinstance(e.callee, ast.OpRef):
            return self._operator(e, e.callee, effect)
        callee = find(self.expr(e.callee, effect))
        if e.type_args and isinstance(e.callee, ast.Global) and e.callee.name in self.functions:
            callee = e.callee.type = self._applied(e, *self.functions[e.callee.name])
        args = [self.expr(a, effect) for a in e.args]
        return self._apply(e, callee, args, effect)

    def _applied(self, e: ast.Call, fn: ast.Fn, type: Fun) -> Type:
        """A generic function for the types that the call states."""
        if len(e.type_args) != len(fn.type_params):
            raise self.error(f"{len(e.type_args)} types for {len(fn.type_params)} type parameters", e)
        return rebuilt(type, {n: self.stated(t, e) for n, t in zip(fn.type_params, e.type_args, strict=True)})

    def _apply(self, e: ast.Call, callee: Type, args: Sequence[Type], effect: Effect) -> Type:
        if isinstance(callee, Unknown):
            function = Fun(args, Unknown())
            self.unify(callee, function, e.callee, "the function")
        elif isinstance(callee, Fun):
            function = callee
        elif self.lenient:
            self.warnings.append(Diagnostic(f"this calls {an(shown(callee))}", self.span(e), severity="warning"))
            e.kept = True
            return Unknown()
        else:
            raise self.error(f"cannot call {an(shown(callee))}", e.callee, expected="a function")
        if len(args) != len(function.params):
            raise self.error(f"{len(args)} arguments for {len(function.params)} parameters", e)
        for k, (arg, param) in enumerate(zip(args, function.params, strict=True)):
            self.unify(arg, param, e.args[k] if k < len(e.args) else e, f"argument {k}")
        function.effect.root().implies.append(effect)
        return function.result

    def _operator(self, e: ast.Call, op: ast.OpRef, effect: Effect) -> Type:
        args = [self.expr(a, effect) for a in e.args]
        if op.name in REFERENCES:
            return self._reference(e, op.name, args, effect)
        if op.name in self.constructors:
            return self._construct(e, op.name, args)
        if op.name == "call_lowered" and len(args) == 2:
            whole = find(args[1])
            if isinstance(whole, TupleType):
                return self._apply(e, find(args[0]), whole.items, effect)
        if op.name not in RULES and op.name[:1].isupper():
            raise self.error(f"no constructor '{op.name}' is defined", op, hint=suggest(op.name, self.constructors))
        e.type = Unknown()
        if not self._try(e):
            self.pending.append(e)
        return find(e.type)

    def _reference(self, e: ast.Call, name: str, args: list[Type], effect: Effect) -> Type:
        if len(args) != REFERENCES[name]:
            raise self.error(f"{name} takes {REFERENCES[name]} operands and got {len(args)}", e)
        self.marked.append(effect)
        if name == "ref":
            return RefType(args[0])
        item: Type = args[1] if name == "ref_write" else Unknown()
        self.unify(args[0], RefType(item), e.args[0], "the reference")
        return item if name == "ref_read" else TupleType(())

    def _constructed(self, name: str) -> tuple[tuple[Type, ...], Type]:
        """The types of the fields and of the value of a constructor, with fresh unknowns."""
        data, made = self.constructors[name]
        known: dict[str, Type] = {p: Unknown() for p in data.params}
        return tuple(rebuilt(f, known) for f in made.fields), DataType(data.name, tuple(known[p] for p in data.params))

    def _construct(self, e: ast.Call, name: str, args: list[Type]) -> Type:
        fields, type = self._constructed(name)
        if len(fields) != len(args):
            raise self.error(f"{name} has {len(fields)} fields and is given {len(args)}", e)
        for k, (arg, f) in enumerate(zip(args, fields, strict=True)):
            self.unify(arg, f, e.args[k], f"field {k} of {name}")
        if e.type_args:
            made = DataType(self.constructors[name][0].name, tuple(self.stated(t, e) for t in e.type_args))
            self.unify(made, type, e, name)
        return type

    # --- operators: what waits, and what never comes

    def resolve(self) -> None:
        """Tries the calls that wait, until none can be told."""
        while True:
            waiting = [e for e in self.pending if not self._try(e)]
            if len(waiting) == len(self.pending):
                return
            self.pending = waiting

    def _try(self, e: ast.Call) -> bool:
        if not all(is_known(a.type) for a in e.args):
            return False
        assert isinstance(e.callee, ast.OpRef)
        try:
            found = relation(e)
        except (InferError, VerifyError) as error:
            found = self._unfit(e, error)
        if found is None:  # an operator that is not known here
            e.kept = True
            found = Unknown() if e.stated is None else rebuilt(e.stated, {})
        self.unify(found, e.type, e)
        return True

    def _unfit(self, e: ast.Call, error: InferError | VerifyError) -> Type | None:
        """What becomes of a call whose operands do not fit: an error, unless nothing is known of them or the text is no program."""
        diagnostic = error.diagnostics[0] if isinstance(error, VerifyError) else error.diagnostic(None, "")
        assert isinstance(e.callee, ast.OpRef)
        message = f"{e.callee.name}: {diagnostic.message.removeprefix(e.callee.name + ': ')}"
        span = self.span(e)
        vague = any(isinstance(t := find(a.type), TensorType) and t.rank is None for a in e.args)
        if not vague and not self.lenient:
            raise VerifyError(Diagnostic(message, span, expected=diagnostic.expected, hint=diagnostic.hint))
        self.warnings.append(Diagnostic(message, span, severity="warning"))
        return None

    def _default(self) -> None:
        """Takes the operands of the first call that waits for tensors of any type, and what is unknown inside others for `()`."""
        stack: list[tuple[Type, bool]] = [(a.type, True) for a in self.pending[0].args]
        while stack:
            part, is_operand = stack.pop()
            part = find(part)
            if isinstance(part, Unknown):
                part.bound = tensor(ANY, None) if is_operand else TupleType(())
            else:
                stack += ((p, is_operand and isinstance(part, TupleType)) for p in part.parts)

    # --- match

    def _match(self, e: ast.Match, effect: Effect) -> Type:
        value = self.expr(e.value, effect)
        result: Type = Unknown()
        for clause in e.clauses:
            self.pattern(clause.pattern, value)
            found = self.expr(clause.body, effect)
            self.unify(found, result, clause.body, "the clause")
        return result

    def pattern(self, p: ast.Pattern, type: Type) -> None:
        """Infers a pattern for values of that type."""
        match p:
            case ast.AnyPattern():
                if p.binder is not None:
                    p.binder.type = self.stated(p.binder.stated, p)
                    self.unify(type, p.binder.type, p)
            case ast.TuplePattern():
                items: list[Type] = [Unknown() for _ in p.items]
                self.unify(type, TupleType(tuple(items)), p, "the pattern")
                for inner, item in zip(p.items, items, strict=True):
                    self.pattern(inner, item)
            case ast.ConstructorPattern():
                if p.name not in self.constructors:
                    raise self.error(f"'{p.name}' is no constructor", p, hint=suggest(p.name, self.constructors))
                fields, made = self._constructed(p.name)
                self.unify(type, made, p, "the pattern")
                if len(fields) != len(p.items):
                    raise self.error(f"{p.name} has {len(fields)} fields and the pattern {len(p.items)}", p)
                for inner, item in zip(p.items, fields, strict=True):
                    self.pattern(inner, item)


# --- operators ------------------------------------------------------------------------------------------------------

Known = Type | Literal | tuple["Known", ...]
"""What is known of an operand: its type, or its value."""


def relation(call: ast.Call) -> Type | None:
    """The type of a call whose operands' types are known; None for an operator, or a form of one, that is not known.

    Raises InferError, VerifyError.
    """
    assert isinstance(call.callee, ast.OpRef)
    if call.callee.name not in RULES:
        return None
    known = tuple(map(_known, call.args))
    try:
        return _result(call.callee.name, known, tuple(call.attrs.items()))
    except Unsupported:
        return None
    except (TypeError, LookupError, ValueError, ArithmeticError, AssertionError) as e:  # values of a form that no rule expects
        raise InferError(f"the operands or attributes do not fit: {e or type(e).__name__}") from None


def _known(e: ast.Expr) -> Known:
    if isinstance(e, ast.VariableUse) and e.binder.value is not None and isinstance(e.binder.value, (ast.Constant, ast.TupleOf)):
        e = e.binder.value
    if isinstance(e, ast.Constant):
        return e.value
    if isinstance(e, ast.TupleOf):
        return tuple(map(_known, e.items))
    return settled(e.type, {})


@lru_cache(maxsize=4096)
def _result(name: str, known: tuple[Known, ...], attrs: tuple[tuple[str, object], ...]) -> Type:
    b = Builder()
    return build(b, name, [_operand(b, k, v) for k, v in enumerate(known)], dict(attrs)).type


def _operand(b: Builder, index: int, known: Known) -> Node:
    if isinstance(known, Literal):
        return b.literal(known)
    if isinstance(known, tuple):
        return b.pack(*(_operand(b, index, k) for k in known))
    return b.param(index, known)
