"""A picture of a program in any form: a page to explore where HTML is wanted, else what `viz.draw` draws."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from deepx_graph.files import write_file
from deepx_graph.ir import Module
from deepx_graph.session.session import Session
from deepx_graph.session.show.explore import Choice, explore
from deepx_graph.viz.draw import Drawing, draw


def picture(module: Module, path: str | os.PathLike[str] | None = None, *, format: str | None = None, **options: Any) -> Drawing:
    """As `viz.draw`, with all that is known of every node in an HTML page. Raises as `viz.draw`."""
    form = format or (Path(path).suffix.lstrip(".").lower() if path is not None else None)
    if form != "html":
        return draw(module, path, format=format, **options)
    title = options.pop("title", None)
    options.pop("legend", None)
    name = title if title is not None else module.source.name if module.source else ""
    found = explore([("", Session(module, path=name))], Choice(**options), title=name)
    if path is not None:
        write_file(Path(path), found.data)
    return found
