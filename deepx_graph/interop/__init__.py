"""Programs that live as objects of other libraries in this process, and what plugins add. No library is imported here."""

from __future__ import annotations

from importlib.metadata import entry_points

GROUP = "deepx_graph.plugins"
"""The group of entry points of plugins."""


def load_plugins() -> None:
    """Loads the installed plugins, where there are any; once in a process."""
    if entry_points(group=GROUP):
        from deepx_graph.interop import plugins

        plugins.load_installed(GROUP)
