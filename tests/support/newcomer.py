"""pytest where docs/adding-an-op.md was followed: `python -m tests.support.newcomer ARGUMENTS`.

The family that the guide names is imported with the guide's declaration behind its last line; no other file differs.
"""

from __future__ import annotations

import re
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType

import pytest

from tests.support.paths import ROOT

GUIDE = (ROOT / "docs" / "adding-an-op.md").read_text(encoding="utf-8")
(FILE, DECLARATION) = re.findall(r"the end of `([\w/]+\.py)`:.*?```python\n(.*?)```", GUIDE, re.DOTALL)[0]
FAMILY = FILE.removesuffix(".py").replace("/", ".")


class _Extended(SourceFileLoader):
    """Nothing is read from or written to the cache of bytecode."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return compile(self.get_data(path).decode() + DECLARATION, path, "exec", dont_inherit=True)


class Finder(PathFinder):
    """Finds the family with one more declaration."""

    @classmethod
    def find_spec(cls, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname != FAMILY:
            return None
        spec = super().find_spec(fullname, path, target)  # type: ignore[arg-type]
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Extended(fullname, spec.origin)
        return spec


if __name__ == "__main__":
    sys.meta_path.insert(0, Finder)
    sys.exit(pytest.main(sys.argv[1:]))
