"""Folders that compilers dump as time lines: of each module its stages, and what each pass changed.

Of XLA (`--xla_dump_to`, with `--xla_dump_hlo_pass_re` for every pass) a stage is a file, text or protocol buffer; of two with the
same name the protocol buffer is taken, which has all constants. Any other compiler's stages, those of our own among them, are files
whose names begin with a number (`0003_fuse.sea`, `12-FoldConstant.relay`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deepx_graph.errors import Diagnostic, UsageError, printable, suggest
from deepx_graph.files import naming
from deepx_graph.ir import Module
from deepx_graph.progress import stage
from deepx_graph.session.programs import load
from deepx_graph.session.report.diff import Difference, diff
from deepx_graph.text import ReadOptions

_FILE = re.compile(r"module_(\d+)\.(.+?)\.(?:(\d{4,})\.(.+?)\.after_(.+?)(?:\.before_(.+?))?|(before_optimizations)|"
                   r"(\w+_after_optimizations))\.(hlo\.pb|txt|hlo)")
_NUMBERED = re.compile(r"(\d+)[_.\- ]+(.+?)\.(\w+)")
_FIRST, _LAST = -1, 1 << 60


@dataclass(frozen=True)
class DumpedStage:
    """A module after a pass of XLA; `order` numbers the passes of one module."""

    order: int
    pipeline: str
    title: str
    path: Path


@dataclass(frozen=True)
class DumpedModule:
    """The stages of one module, in order."""

    number: int
    name: str
    stages: tuple[DumpedStage, ...]


@dataclass(frozen=True)
class DumpedStep:
    """One stage beside the one before it."""

    stage: DumpedStage
    nodes: int
    difference: Difference | None

    def __str__(self) -> str:
        number = "" if self.stage.order in (_FIRST, _LAST) else f"{self.stage.order:04}"
        return f"{number:>6}  {self.nodes:>7}  {self.change:<22} {printable(self.stage.title)}"

    @property
    def change(self) -> str:
        """How many operations came and went."""
        if self.difference is None:
            return ""
        kinds = [c.kind for c in self.difference.changes]
        return " ".join(f"{sign}{kinds.count(kind)}" for kind, sign in (("removed", "-"), ("added", "+"), ("changed", "~"))
                        if kind in kinds)


def dumped_modules(folder: Path) -> list[DumpedModule]:
    """The modules of a folder. Raises UsageError where there are none."""
    found: dict[tuple[int, str], dict[int, DumpedStage]] = {}
    with naming("read the folder", folder):
        names = sorted((p.name for p in folder.iterdir()), key=lambda name: not name.endswith(".pb"))
    for name in names:
        if m := _FILE.fullmatch(name):
            order = int(m[3]) if m[3] else _FIRST if m[7] else _LAST
            title = m[5] if m[3] else (m[7] or m[8]).replace("_", " ")
            stages = found.setdefault((int(m[1]), m[2]), {})
            stages.setdefault(order, DumpedStage(order, m[4] or "", f"{m[4]}: {title}" if m[3] else title, folder / name))
    found = found or {(0, folder.name): _numbered(folder, names)}
    if not any(found.values()):
        raise UsageError(Diagnostic(f"the folder '{printable(str(folder))}' holds no dumped module",
                                    expected="module_0000.NAME.before_optimizations.txt, or 0000_NAME.hlo, and the like",
                                    hint="XLA_FLAGS='--xla_dump_to=FOLDER --xla_dump_hlo_as_proto --xla_dump_hlo_pass_re=.*'"))
    ordered = ((number, name, tuple(stages[k] for k in sorted(stages))) for (number, name), stages in sorted(found.items()))
    return [DumpedModule(*row) for row in ordered]


def _numbered(folder: Path, names: list[str]) -> dict[int, DumpedStage]:
    """The stages of a folder whose files are numbered."""
    matches = ((m, name) for name in names if (m := _NUMBERED.fullmatch(name)))
    return {int(m[1]): DumpedStage(int(m[1]), "", m[2], folder / name) for m, name in matches if (folder / name).is_file()}


def chosen(modules: list[DumpedModule], name: str | None) -> list[DumpedModule]:
    """Those of a name or number, all where none is given. Raises UsageError for one that is not there."""
    if name is None:
        return modules
    found = [m for m in modules if name in (m.name, str(m.number))]
    if not found:
        known = [m.name for m in modules]
        raise UsageError(Diagnostic(f"no module '{printable(name)}' in the folder", expected=", ".join(map(printable, known)),
                                    hint=suggest(name, known)))
    return found


def steps(module: DumpedModule, options: ReadOptions | None = None) -> Iterator[DumpedStep]:
    """Each stage with what it changed. Raises as `load`."""
    before: Module | None = None
    for k, at in enumerate(module.stages):
        stage("compare", k, len(module.stages))
        after = load(at.path, options=options).module
        yield DumpedStep(at, sum(len(f.nodes) for f in after.functions), None if before is None else diff(before, after))
        before = after
