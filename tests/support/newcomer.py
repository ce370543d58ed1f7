"""pytest where docs/adding-an-op.md was followed: `python -m tests.support.newcomer ARGUMENTS`.

The families that the guide names are imported with the guide's declarations behind their last lines; no other file differs.
"""

from __future__ import annotations

import re
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType

import pytest

from tests.support.paths import ROOT

GUIDE = (ROOT / "docs" / "adding-an-op.md").read_text(encoding="utf-8")


def _declarations() -> dict[str, str]:
    """What the guide adds to each family: examples stand behind the file that they are said to go to."""
    found: dict[str, str] = {}
    for part in re.split(r"the end of\s`", GUIDE)[1:]:
        family = part.partition(".py`")[0].replace("/", ".")
        found[family] = "\n\n".join(re.findall(r"<!-- example: run .*?```python\n(.*?)```", part, re.DOTALL))
    return found


DECLARATIONS = _declarations()


class _Extended(SourceFileLoader):
    """Nothing is read from or written to the cache of bytecode."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return compile(self.get_data(path).decode() + DECLARATIONS[fullname], path, "exec", dont_inherit=True)


class Finder(PathFinder):
    """Finds the family with one more declaration."""

    @classmethod
    def find_spec(cls, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname not in DECLARATIONS:
            return None
        spec = super().find_spec(fullname, path, target)  # type: ignore[arg-type]
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Extended(fullname, spec.origin)
        return spec


if __name__ == "__main__":
    sys.meta_path.insert(0, Finder)
    sys.exit(pytest.main(sys.argv[1:]))
