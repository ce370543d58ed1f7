"""Reading meshes and shardings as texts write them: Shardy's notation, and XLA's tiles.

    <["data"=4, "model"=2], device_ids=[...]>        a mesh
    <@mesh, [{"data"}, {"model":(1)2, ?}p1], replicated={"x"}>     a sharding
    {devices=[4,1,2]<=[8] last_tile_dim_replicate}   a sharding as HLO writes it

Every mistake is a ParseError that points into the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from deepx_graph.errors import Diagnostic, ParseError, Source, Span, UsageError, counted
from deepx_graph.sharding.mesh import Axes, AxisRef, DimSharding, Mesh, TensorSharding, merged, split
from deepx_graph.types import STATE, TensorType, Type

_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|\d+|[\w$.\-]+|[@<>\[\]{}(),=?:])')
_TILES = re.compile(r"\{\s*devices=\[([\d,]+)\](?:<=\[([\d,]+)\](?:T\(([\d,]+)\))?|([\d,]+))?(.*)\}\s*$")
_WORDS = re.compile(r"#sdy\.sharding(?:_per_value)?(?=<)")
_MOST = 18
"""The most digits of a number."""

T = TypeVar("T")


class _Notation:
    """A cursor over one text."""

    def __init__(self, text: str, source: Source | None = None, start: int = 0, end: int | None = None) -> None:
        self.source = source or Source("<sharding>", text)
        self.at, self.end = start, len(self.source.text) if end is None else end

    def fail(self, message: str, expected: str | None = None) -> ParseError:
        found = _TOKEN.match(self.source.text, self.at, self.end)
        start = found.start(1) if found else self.at
        return ParseError(Diagnostic(message, Span(self.source, start, found.end() if found else self.end), expected))

    def peek(self) -> str:
        found = _TOKEN.match(self.source.text, self.at, self.end)
        return found[1] if found else ""

    def accept(self, token: str) -> bool:
        found = _TOKEN.match(self.source.text, self.at, self.end)
        if found is None or found[1] != token:
            return False
        self.at = found.end()
        return True

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.fail(f"expected '{token}'", token)

    def number(self) -> int:
        token = self.peek()
        if not token.isdecimal() or len(token) > _MOST:
            raise self.fail("expected a number", "a number")
        self.accept(token)
        return int(token)

    def string(self) -> str:
        token = self.peek()
        if not token.startswith('"'):
            raise self.fail("expected the name of an axis", '"name"')
        self.accept(token)
        return token[1:-1]

    def word(self) -> str:
        token = self.peek()
        if not re.fullmatch(r'[\w$.\-]+|"[^"]*"', token):
            raise self.fail("expected a name", "a name")
        self.accept(token)
        return token.strip('"')

    def ended(self) -> None:
        if self.source.text[self.at : self.end].strip():
            raise self.fail("the text goes on", "the end")

    # --- the grammar

    def mesh(self, name: str) -> Mesh:
        start = self.at
        self.expect("<")
        self.expect("[")
        axes: list[tuple[str, int]] = []
        while not self.accept("]"):
            if axes:
                self.expect(",")
            axis = self.string()
            self.expect("=")
            axes.append((axis, self.number()))
        ids: list[int] = []
        if self.accept(","):
            self.expect("device_ids")
            self.expect("=")
            self.expect("[")
            while not self.accept("]"):
                if ids:
                    self.expect(",")
                ids.append(self.number())
        self.expect(">")
        return self._made(start, lambda: Mesh(tuple(axes), () if axes and ids == list(range(len(ids))) else tuple(ids), name))

    def _made(self, start: int, make: Callable[[], T]) -> T:
        try:
            return make()
        except UsageError as e:
            raise ParseError(Diagnostic(e.diagnostics[0].message, Span(self.source, start, self.at))) from None

    def axis(self, mesh: Mesh) -> AxisRef:
        start = self.at
        name = self.string()
        whole = self._made(start, lambda: mesh.axis(name))
        if not self.accept(":"):
            return whole
        self.expect("(")
        pre = self.number()
        self.expect(")")
        part = AxisRef(name, pre, self.number())
        if part.pre < 1 or part.size < 2 or whole.size % part.post:
            self.at = start
            raise self.fail(f"{part} is no part of an axis of {whole.size}", "factors of its size")
        return part

    def axes(self, mesh: Mesh) -> Axes:
        self.expect("{")
        found: list[AxisRef] = []
        while not self.accept("}"):
            if found:
                self.expect(",")
            found.append(self.axis(mesh))
        return tuple(found)

    def dimension(self, mesh: Mesh) -> DimSharding:
        self.expect("{")
        found: list[AxisRef] = []
        is_open = False
        while not self.accept("}"):
            if found or is_open:
                self.expect(",")
            if self.accept("?"):
                is_open = True
            else:
                found.append(self.axis(mesh))
        priority = re.fullmatch(r"p(0|[1-9]\d{0,8})", self.peek())
        if priority:
            self.accept(priority[0])
        return DimSharding(tuple(found), is_open, int(priority[1]) if priority else 0)

    def sharding(self, mesh: Mesh) -> TensorSharding:
        """`[{..}, ..], replicated={..}`."""
        start = self.at
        self.expect("[")
        dims: list[DimSharding] = []
        while not self.accept("]"):
            if dims:
                self.expect(",")
            dims.append(self.dimension(mesh))
        said: dict[str, Axes] = {}
        by = ""
        while self.peek() == ",":
            self.expect(",")
            word = self.word()
            if word not in ("replicated", "unreduced") or word in said:
                raise self.fail("expected 'replicated' or 'unreduced'", "replicated={..}")
            self.expect("=")
            if word == "unreduced" and self.peek() in ("max", "min"):
                by = self.word()
            said[word] = self.axes(mesh)
        found = TensorSharding(tuple(dims), said.get("replicated", ()), said.get("unreduced", ()), by)
        for axes in found.axes:
            if merged(axes) != axes:
                message = f"two consecutive sub-axes can be merged: {', '.join(map(mesh.shown, axes))}"
                raise ParseError(Diagnostic(message, Span(self.source, start, self.at)))
        for word, stated in (("replicated", found.replicated), ("unreduced", found.unreduced)):
            if not mesh.orders(stated):
                raise ParseError(Diagnostic(f"{word} axes are not ordered w.r.t. mesh", Span(self.source, start, self.at)))
        used = found.every_axis
        for k, a in enumerate(used):
            if clash := next((b for b in used[:k] if a.overlaps(b)), None):
                message = f"{mesh.shown(a)} and {mesh.shown(clash)} overlap: an axis splits one dimension"
                raise ParseError(Diagnostic(message, Span(self.source, start, self.at)))
        return found


def read_mesh(text: str, name: str = "mesh", source: Source | None = None, start: int = 0, end: int | None = None) -> Mesh:
    """`<["a"=2, "b"=2]>`; the text itself, or a part of a source."""
    c = _Notation(text, source, start, end)
    mesh = c.mesh(name)
    c.ended()
    return mesh


def read_sharding(text: str, mesh: Mesh, source: Source | None = None, start: int = 0, end: int | None = None) -> TensorSharding:
    """`[{"a"}, {?}], replicated={"b"}`; the text itself, or a part of a source."""
    c = _Notation(text, source, start, end)
    found = c.sharding(mesh)
    c.ended()
    return found


def read_annotation(text: str, meshes: dict[str, Mesh]) -> list[tuple[Mesh, TensorSharding]]:
    """The shardings of `#sdy.sharding<@mesh, [..]>` or `#sdy.sharding_per_value<[<@mesh, [..]>, ..]>`, with the words or without.

    The mesh may stand in the text itself, `<mesh<["a"=2]>, [..]>`.
    """
    c = _Notation(_WORDS.sub("", text))
    found: list[tuple[Mesh, TensorSharding]] = []
    c.expect("<")
    if not c.accept("["):
        found.append(_placed(c, meshes))
        c.expect(">")
    else:
        while not c.accept("]"):
            if found:
                c.expect(",")
            c.expect("<")
            found.append(_placed(c, meshes))
            c.expect(">")
        c.expect(">")
    c.ended()
    return found


def read_fitting(text: str, meshes: dict[str, Mesh], types: Sequence[Type]) -> list[tuple[Mesh, TensorSharding]]:
    """As `read_annotation`, of values of those types: one for each, of as many dimensions; of none on a mesh without axes, which is
    one device. Raises ParseError for others.
    """
    found = read_annotation(text, meshes)
    whole = Span(Source("<sharding>", text), 0, len(text))
    if len(found) != len(types):
        raise ParseError(Diagnostic(f"{counted(len(found), 'sharding')} for {counted(len(types), 'value')}", whole))
    for (mesh, sharding), type in zip(found, types, strict=True):
        rank = len(sharding.dims)
        if type == STATE and (rank or sharding.replicated or sharding.unreduced):
            message = "non-shaped tensors can only have a sharding with rank 0 and no replicated or unreduced axes"
            raise ParseError(Diagnostic(message, whole))
        if (rank or mesh.axes) and isinstance(type, TensorType) and type.dims is not None and rank != len(type.dims):
            raise ParseError(Diagnostic(f"a sharding of {counted(rank, 'dimension')} of a value of {len(type.dims)}: {type}", whole,
                                        f"{{..}} for each of {len(type.dims)}"))
    return found


def _placed(c: _Notation, meshes: dict[str, Mesh]) -> tuple[Mesh, TensorSharding]:
    if c.accept("mesh"):
        mesh = c.mesh("mesh")
    else:
        c.expect("@")
        name = c.word()
        if name not in meshes:
            raise c.fail(f"no mesh '@{name}'", f"one of {', '.join(meshes) or 'none'}")
        mesh = meshes[name]
    c.expect(",")
    return mesh, c.sharding(mesh)


# --- HLO ----------------------------------------------------------------------------------------------------------

DEVICES = "devices"
"""The one axis of the mesh over which a text lies that knows tiles alone."""


def read_tiles(text: str, rank: int) -> tuple[Mesh, TensorSharding] | None:
    """A sharding as HLO writes it, over a mesh of one axis `devices`; None for one that names no devices (`{replicated}`).

    Raises ParseError for tiles that are assigned to devices in an order that sub-axes do not have.
    """
    source = Source("<sharding>", text)
    whole = Span(source, 0, len(text))
    if re.fullmatch(r"\{\s*(replicated|manual|maximal device=\d+)\s*\}", text.strip()):
        return None
    found = _TILES.match(text.strip())
    if found is None or found[4]:
        raise ParseError(Diagnostic("a sharding that is not read", whole, "{devices=[2,1]<=[2]} or {replicated}"))
    tiles, iota = _ints(found[1]), _ints(found[2] or "")
    order = _ints(found[3] or "") or list(range(len(iota)))
    used, rest = tiles[:rank], tiles[rank:]
    total = 1
    for n in tiles:
        total *= n
    product = 1
    for n in iota:
        product *= n
    if len(used) < rank or (rest and "last_tile" not in found[5]) or total != product or sorted(order) != list(range(len(iota))):
        raise ParseError(Diagnostic(f"tiles that do not fit a tensor of rank {rank} over as many devices", whole))
    mesh = Mesh(((DEVICES, total),))
    pres = [1]
    for n in iota:
        pres.append(pres[-1] * n)
    pieces = [[pres[k], iota[k]] for k in order if iota[k] > 1]
    dims = [_tile(n, pieces, whole) for n in used]
    return mesh, split(*dims)


def _ints(text: str) -> list[int]:
    return [int(n[:_MOST]) for n in text.split(",") if n]


def _tile(count: int, pieces: list[list[int]], whole: Span) -> Axes:
    """The next sub-axes of together that size, taken from what is left of the axis."""
    found: list[AxisRef] = []
    while count > 1:
        if not pieces:
            raise ParseError(Diagnostic("more tiles than devices", whole))
        pre, size = pieces[0]
        taken = min(count, size)
        if size % taken or count % taken:
            raise ParseError(Diagnostic("tiles in an order of devices that sub-axes do not have", whole))
        found.append(AxisRef(DEVICES, pre, taken))
        count //= taken
        if taken == size:
            del pieces[0]
        else:
            pieces[0] = [pre * taken, size // taken]
    return tuple(found)


def mesh_from_option(text: str) -> Mesh:
    """`data=4 model:2`, separated by commas or blanks, as a command line or an option of a pass has it. Raises UsageError."""
    axes: list[tuple[str, int]] = []
    for item in re.split(r"[\s,]+", text.strip()):
        name, equals, size = item.partition("=" if "=" in item else ":")
        if not (name and equals and size.isdecimal() and len(size) <= 9):
            raise UsageError(Diagnostic(f"'{item}' is no axis of a mesh", expected="NAME=SIZE or NAME:SIZE, as in data=4,model=2",
                                        hint=f"--plan {item}, if it is a file" if item.endswith(".plan") else None))
        axes.append((name, int(size)))
    return Mesh(tuple(axes))
