"""Functions of Python, written line by line: calls, assignments, loops and branches.

No name in them comes from a program: values have the names that the writer gives them, and the objects that are called are bound to
names of the function's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class PythonFunction:
    """A function under construction. Its statements are marked with the number `at`, which a traceback tells."""

    def __init__(self, params: Sequence[str]) -> None:
        self.params, self.at, self.depth = params, 0, 1
        self._lines: list[str] = []
        self._numbers: list[int] = [0]
        self._bound: dict[str, Any] = {}
        self._names: dict[int, str] = {}

    def bind(self, value: Any) -> str:
        """The name of an object; the same one always for the same object."""
        if id(value) not in self._names:
            self._names[id(value)] = f"k{len(self._names)}"
            self._bound[self._names[id(value)]] = value
        return self._names[id(value)]

    def add(self, line: str) -> None:
        """A statement of names that were given or bound here."""
        self._lines.append("    " * self.depth + line)
        self._numbers.append(self.at)

    def call(self, target: str | None, function: Any, *args: str) -> None:
        """`target = function(args)`; nothing is assigned where there is no target."""
        assigned = "" if target is None else f"{target} = "
        self.add(f"{assigned}{self.bind(function)}({', '.join(args)})")

    def move(self, targets: Sequence[str], sources: Sequence[str]) -> None:
        """Assigns all at once."""
        if targets:
            self.add(f"{', '.join(targets)} = {', '.join(sources)}")

    def drop(self, names: Sequence[str]) -> None:
        """Forgets values."""
        if names:
            self.add(f"{' = '.join(names)} = None")

    def give(self, sources: Sequence[str], *, one: bool = False) -> None:
        """Ends the function with these results: a tuple, or the `one` that there is."""
        self.add(f"return {sources[0]}" if one else f"return ({''.join(f'{s}, ' for s in sources)})")

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """A block that begins with a line, such as `if v1`."""
        self.add(f"{header}:")
        self.depth += 1
        self.add("pass")
        yield
        self.depth -= 1

    def finished(self) -> Callable[..., Any]:
        """The function. Raises SyntaxError for more blocks in one another than Python compiles."""
        bound = [f"{name}={name}" for name in self._bound]  # as defaults they are local names, which are read fastest
        text = "\n".join([f"def function({', '.join([*self.params, *bound])}):", *(self._lines or ["    pass"])])
        names = dict(self._bound)
        exec(compile(text, FILE, "exec"), names)
        function: Callable[..., Any] = names["function"]
        function.__dict__["numbers"] = self._numbers
        return function


FILE = "<function of kernels>"


def statement_at(error: BaseException, function: Callable[..., Any]) -> int | None:
    """The number of the statement of such a function in which an exception was raised; None where it came from elsewhere."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is function.__code__:
            return int(function.__dict__["numbers"][trace.tb_lineno - 1])
        trace = trace.tb_next
    return None
