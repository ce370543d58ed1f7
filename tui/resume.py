"""Where the browser was left, kept for each file: with `--resume` it goes on there.

Kept are the pipelines that were run, the view, the panes, the selected node and the query, as JSON in the user's folder of states
(`XDG_STATE_HOME`, else `~/.local/state`). What cannot be read, or does not fit the program any more, is left out.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from deepx_graph.errors import DeepxGraphError
from deepx_graph.files import write_file

MAX_BYTES = 1 << 16
"""Bytes of a state that are read."""


@dataclass(frozen=True)
class State:
    """How the browser stood: `node` as queries name it, texts as they were entered."""

    view: str = "list"
    node: str = ""
    query: str = ""
    theme: str = ""
    panes: tuple[str, ...] = ()
    pipelines: tuple[str, ...] = ()


def location(path: str) -> Path:
    """The file of the state of a program's file."""
    root = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    name = hashlib.sha256(os.path.realpath(path).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return Path(root) / "deepx_graph" / "browser" / f"{name}.json"


def saved(path: str) -> State:
    """The state that a file was left in; the first one where there is none."""
    try:
        with open(location(path), "rb") as file:
            found = json.loads(file.read(MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return State()
    if not isinstance(found, dict):
        return State()
    known: dict[str, str | tuple[str, ...]] = {}
    for f in fields(State):
        value = found.get(f.name)
        if isinstance(f.default, str) and isinstance(value, str):
            known[f.name] = value
        elif isinstance(f.default, tuple) and isinstance(value, list):
            known[f.name] = tuple(v for v in value if isinstance(v, str))
    return State(**known)  # type: ignore[arg-type]


def save(path: str, state: State) -> None:
    """Keeps a state; where it cannot be written nothing is kept."""
    target = location(path)
    with contextlib.suppress(OSError, DeepxGraphError):
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(str(target), json.dumps(asdict(state)).encode())
