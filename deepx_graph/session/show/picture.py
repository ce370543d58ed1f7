"""A picture of a program in any form: a page to explore where HTML is wanted, else what `viz.draw` draws; and what notebooks show.

In a notebook a module or function is a picture with its facts as text, a profile bars with its table. Such a picture is small and
quick: large programs are folded, and what cannot be drawn is shown as text alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deepx_graph.errors import DeepxGraphError, printable
from deepx_graph.files import write_file
from deepx_graph.ir import Function, Module
from deepx_graph.runtime.profile import KernelProfile, Profile
from deepx_graph.session.report.info import function_info, module_info
from deepx_graph.session.session import Session
from deepx_graph.session.show.explore import PageOptions, explore
from deepx_graph.viz.draw import Drawing, draw
from deepx_graph.viz.picture.bars import Bar, bars


def picture(module: Module, path: str | os.PathLike[str] | None = None, *, format: str | None = None, **options: Any) -> Drawing:
    """As `viz.draw`, with all that is known of every node in an HTML page. Raises as `viz.draw`."""
    form = format or (Path(path).suffix.lstrip(".").lower() if path is not None else None)
    if form != "html":
        return draw(module, path, format=format, **options)
    title = options.pop("title", None)
    options.pop("legend", None)
    name = title if title is not None else module.source.name if module.source else ""
    found = explore([("", Session(module, path=name))], PageOptions(**options), title=name)
    if path is not None:
        write_file(Path(path), found.data)
    return found


BOXES = 120
SECONDS = 8.0
KERNELS = 25
"""Of a profile."""


def bundle(value: object) -> dict[str, str]:
    """The parts by MIME type: text for all, SVG where it can be drawn."""
    if isinstance(value, Module):
        return _drawn(value, str(module_info(value)))
    if isinstance(value, Function):
        return _drawn(Module((value,), value.name), str(function_info(value)))
    if isinstance(value, Profile):
        rows = value.rows()
        return {"text/plain": str(value)} | ({"image/svg+xml": _profile(rows)} if rows else {})
    return {"text/plain": repr(value)}


def _drawn(module: Module, text: str) -> dict[str, str]:
    shown = {"text/plain": "\n".join(map(printable, text.split("\n")))}
    try:
        picture = draw(module, format="svg", max_nodes=BOXES, timeout=SECONDS, title="")
    except DeepxGraphError as e:
        return shown | {"text/plain": f"{shown['text/plain']}\nno picture: {e}"}
    return shown | {"image/svg+xml": picture.data.decode("utf-8").partition("?>")[2].lstrip()}


def _profile(rows: Sequence[KernelProfile]) -> str:
    found = [Bar(f"{r.kernel}: {r.type}", r.seconds, f"{r.seconds * 1e3:.3f} ms, {r.share:.1%}, {r.gb_per_s:.1f} GB/s")
             for r in rows[:KERNELS]]  # fmt: skip
    rest = sum(r.seconds for r in rows[KERNELS:])
    more = [Bar(f"{len(rows) - KERNELS} more kernels", rest, f"{rest * 1e3:.3f} ms")] if len(rows) > KERNELS else []
    return bars([*found, *more]).decode("utf-8")
