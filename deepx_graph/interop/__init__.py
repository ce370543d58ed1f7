"""Programs that live as objects of other libraries in this process, and what plugins add. No library is imported here."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

GROUP = "deepx_graph.plugins"
"""The group of entry points of plugins."""


def load_plugins() -> None:
    """Loads the installed plugins, where there are any; once in a process."""
    if _has_plugins(tuple(sys.path)):
        from deepx_graph.interop import plugins

        plugins.load_installed(GROUP)


@cache
def _has_plugins(path: tuple[str, ...]) -> bool:
    """Whether some installed distribution names the group: `importlib.metadata`, which knows, takes longer to import than a program
    to read."""
    files = (f for folder in path for kind in ("dist-info", "egg-info") for f in Path(folder).glob(f"*.{kind}/entry_points.txt"))
    return any(f"[{GROUP}]" in f.read_text(encoding="utf-8", errors="replace") for f in files)
