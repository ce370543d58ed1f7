"""Whether a table of calls with their results would notice a reader that got an attribute wrong.

The rules of a reader ask for attributes by one method, `method(..., name, default)` of an object that has the operator's name.
While the table is read it is noted who asks for what; then each attribute is kept from its rule in turn, or another default put
in the place of the one that a rule states, and some row has to fail.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pytest

Attribute = tuple[str, str]
"""An operator, and the name of one of its attributes."""

ABSENT: Any = object()

Instead = Callable[[Attribute, Any, Any], Any]
"""What a rule is given: by the attribute, its value (or ABSENT), and the default."""


@dataclass
class Use:
    """The numbers of the rows that give an attribute, and of those that do not, each with the default that the rule states."""

    given: list[int] = field(default_factory=list)
    absent: list[tuple[int, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class AttributeLaw:
    """`rows` say each whether they give what they should; `forget` drops what the reader remembers of earlier calls."""

    owner: type
    method: str
    rows: Sequence[Callable[[], bool]]
    forget: Callable[[], object] = lambda: None

    @contextmanager
    def _reading(self, instead: Instead) -> Iterator[None]:
        plain = getattr(self.owner, self.method)
        signature = inspect.signature(plain)

        def asked(*args: Any, **named: Any) -> Any:
            bound = signature.bind(*args, **named)
            bound.apply_defaults()
            default, bound.arguments["default"] = bound.arguments["default"], ABSENT
            return instead((args[0].name, bound.arguments["name"]), plain(*bound.args, **bound.kwargs), default)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.owner, self.method, asked)
            self.forget()
            yield
        self.forget()

    @cached_property
    def uses(self) -> dict[Attribute, Use]:
        """The uses of all attributes that are asked for."""
        found: dict[Attribute, Use] = {}
        row = 0

        def note(of: Attribute, value: Any, default: Any) -> Any:
            use = found.setdefault(of, Use())
            if value is ABSENT:
                use.absent.append((row, default))
                return default
            use.given.append(row)
            return value

        with self._reading(note):
            for k, gives in enumerate(self.rows):
                row = k
                assert gives(), f"row {k} gives something else"
        return found

    def _is_seen(self, rows: Iterator[int], instead: Instead) -> bool:
        with self._reading(instead):
            return not all(self.rows[k]() for k in rows)

    def without_effect(self) -> list[Attribute]:
        """The attributes that may be taken for absent, and all rows give what they should."""

        def kept_from(of: Attribute) -> Instead:
            return lambda asked, value, default: default if value is ABSENT or asked == of else value

        return [of for of, use in self.uses.items() if not self._is_seen(reversed(use.given), kept_from(of))]

    def defaults_without_effect(self) -> list[Attribute]:
        """The attributes with another default than a rule states, and all rows give what they should."""

        def changed(of: Attribute) -> Instead:
            return lambda asked, value, default: value if value is not ABSENT else other(default) if asked == of else default

        uses = {of: [k for k, default in use.absent if other(default) != default] for of, use in self.uses.items()}
        return [of for of, rows in uses.items() if rows and not self._is_seen(iter(rows), changed(of))]


def other(default: Any) -> Any:
    """A value near a default that is a number, a flag, or several; any other itself."""
    match default:
        case bool():
            return not default
        case int() | float():
            return default + 1
        case tuple():
            return tuple(map(other, default))
    return default
