"""Names in a Relay text: legal, and each for one thing. Bindings without a name are numbered."""

from __future__ import annotations

import re

_ILLEGAL = re.compile(r"\W", re.ASCII)
_ILLEGAL_GLOBAL = re.compile(r"[^\w.]", re.ASCII)


class Names:
    """Local names and numbers of one definition."""

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self.count = 0

    def local(self, wish: str) -> str:
        """A local variable `%name` that is not taken; `wish` as near as it can be."""
        name = _ILLEGAL.sub("_", wish) or "v"
        if not name[0].isalpha() and name[0] != "_":
            name = f"v{name}"
        found, k = name, 0
        while found in self.taken and found != "_":
            k += 1
            found = f"{name}_{k}"
        self.taken.add(found)
        return f"%{found}"

    def number(self) -> str:
        """The next graph binding, `%0`, `%1`, ..."""
        self.count += 1
        return f"%{self.count - 1}"


def global_names(wishes: list[str], main: str) -> dict[str, str]:
    """Legal and distinct names of functions, without `@`. The one of the name `main` is `@main`, and no other."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for wish in sorted(wishes, key=lambda wish: wish != main):
        name = "main" if wish == main else _ILLEGAL_GLOBAL.sub("_", wish)
        if not name or not (name[0].isalpha() or name[0] == "_"):
            name = f"f{name}"
        made, k = name, 0
        while made in taken:
            k += 1
            made = f"{name}_{k}"
        taken.add(made)
        found[wish] = made
    return found
