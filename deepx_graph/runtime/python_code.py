"""Functions of Python's own byte code, assembled from syntax trees: no text is written or read.

What a function calls are objects that are bound to names of its own; its statements are calls, assignments, loops and branches.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any

Statements = list[ast.stmt]


class PythonFunction:
    """A function under construction. Statements go where `block` says, marked with the number `at`, which a traceback tells."""

    def __init__(self, name: str, params: Sequence[str]) -> None:
        self.name, self.params = name, params
        self.body: Statements = []
        self.block = self.body
        self.at = 0
        self._bound: dict[str, Any] = {}
        self._names: dict[int, str] = {}

    def bind(self, value: Any) -> str:
        """The name of an object; the same one always for the same object."""
        if id(value) not in self._names:
            self._names[id(value)] = f"k{len(self._names)}"
            self._bound[self._names[id(value)]] = value
        return self._names[id(value)]

    def call(self, target: str | None, function: Any, *args: str) -> None:
        """`target = function(args)`; nothing is assigned where there is no target."""
        called = ast.Call(_read(self.bind(function)), [_read(a) for a in args], [])
        self._emit(ast.Expr(called) if target is None else ast.Assign([_write(target)], called))

    def move(self, targets: Sequence[str], sources: Sequence[str]) -> None:
        """Assigns all at once."""
        if len(targets) == 1:
            self._emit(ast.Assign([_write(targets[0])], _read(sources[0])))
        elif targets:
            self._emit(ast.Assign([ast.Tuple([_write(t) for t in targets], ast.Store())], _tuple(sources)))

    def pack(self, target: str, sources: Sequence[str]) -> None:
        """`target = [sources]`."""
        self._emit(ast.Assign([_write(target)], ast.List([_read(s) for s in sources], ast.Load())))

    def drop(self, names: Sequence[str]) -> None:
        """Forgets values."""
        if names:
            self._emit(ast.Assign([_write(n) for n in names], ast.Constant(None)))

    def leave_unless(self, condition: str) -> None:
        """Ends the innermost loop."""
        self._emit(ast.If(ast.UnaryOp(ast.Not(), _read(condition)), [ast.Break()], []))

    def give(self, sources: Sequence[str], *, one: bool = False) -> None:
        """Ends the function with these results: a tuple, or the `one` that there is."""
        self._emit(ast.Return(_read(sources[0]) if one else _tuple(sources)))

    @contextmanager
    def loop(self) -> Iterator[None]:
        """Statements again and again."""
        body: Statements = []
        self._emit(ast.While(ast.Constant(True), body, []))
        with self.within(body):
            yield

    def choice(self, condition: str) -> tuple[Statements, Statements]:
        """Where the statements go for a true condition, and for a false one."""
        then, otherwise = [_nothing()], [_nothing()]
        self._emit(ast.If(_read(condition), then, otherwise))
        return then, otherwise

    @contextmanager
    def within(self, block: Statements) -> Iterator[None]:
        """Puts statements there meanwhile."""
        outer, self.block = self.block, block
        yield
        self.block = outer

    def finished(self) -> Callable[..., Any]:
        """The function."""
        given = [ast.arg(p) for p in self.params]
        bound = [ast.arg(n) for n in self._bound]  # as defaults they are local names, which are read fastest
        defaults: list[ast.expr] = [ast.Name(n, ast.Load()) for n in self._bound]
        args = ast.arguments([], [*given, *bound], None, [], [], None, defaults)
        made = ast.FunctionDef(self.name, args, self.body, [])
        tree = ast.fix_missing_locations(ast.Module([made], []))
        code: CodeType = compile(tree, f"<{self.name}>", "exec")
        names = dict(self._bound)
        exec(code, names)
        return names[self.name]  # type: ignore[no-any-return]

    def _emit(self, statement: ast.stmt) -> None:
        for node in ast.walk(statement):
            if isinstance(node, (ast.stmt, ast.expr)):
                node.lineno = node.end_lineno = self.at + 1
                node.col_offset = node.end_col_offset = 0
        self.block.append(statement)


def statement_at(error: BaseException, function: Callable[..., Any]) -> int | None:
    """The number of the statement of such a function in which an exception was raised; None where it came from elsewhere."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is function.__code__:
            return trace.tb_lineno - 1
        trace = trace.tb_next
    return None


def _read(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _write(name: str) -> ast.expr:
    return ast.Name(name, ast.Store())


def _tuple(names: Sequence[str]) -> ast.expr:
    return ast.Tuple([_read(n) for n in names], ast.Load())


def _nothing() -> ast.stmt:
    return ast.Pass()
