"""Writing certificates: what passes did, as it is recorded while they run, for a checker that has none of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from deepx_graph.errors import DeepxGraphError, Source
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.structure import PARAM
from deepx_graph.passes.observer import Observer
from deepx_graph.passes.pipeline import format_pass
from deepx_graph.rewrite.base import Pass, Rewrite
from deepx_graph.text import sea
from deepx_graph.validation.certificate import SCHEMA, TRACE, chained, digest_of
from deepx_graph.version import __version__


class WriteCertificate(Observer):
    """Records a pipeline; `text` is its certificate then."""

    def __init__(self, module: Module) -> None:
        self.input = self.output = module
        self._rewrites: list[Rewrite] = []
        self._steps: list[dict[str, Any]] = []
        self._names: list[str] = []

    def before_pass(self, pass_: Pass, module: Module) -> None:
        self._rewrites = []

    def on_rewrite(self, rewrite: Rewrite) -> None:
        self._rewrites.append(rewrite)

    def after_pass(self, pass_: Pass, before: Module, after: Module) -> None:
        self._names.append(format_pass(pass_))
        if after is before:
            return
        traces = list(_traces(before, after, self._rewrites))
        self.output = after
        text = sea.write(after.with_functions([*after.functions, *(f for f, _ in traces)]))
        if not _reads(text):  # functions that call others of other signatures, or thread the state of effects twice
            traces, text = [], sea.write(after)
        self._steps.append({"pass": format_pass(pass_), "text": text,
                            "traces": {f.name: [[r.number, r.rule] for r in rewrites] for f, rewrites in traces}})

    @property
    def text(self) -> str:
        """The lines of the certificate."""
        header = {"schema": SCHEMA, "version": __version__, "pipeline": ",".join(self._names), "input": digest_of(self.input),
                  "output": digest_of(self.output)}  # fmt: skip
        return chained([header, *self._steps])


def _reads(text: str) -> bool:
    try:
        sea.read(Source("<trace>", text))
    except DeepxGraphError:
        return False
    return True


def _traces(before: Module, after: Module, rewrites: Iterable[Rewrite]) -> Iterator[tuple[Function, list[Rewrite]]]:
    """A function for each that was rewritten, those in attributes first, as others hold them; with its rewrites."""
    pairs = list(_pairs(before, after))
    owner = {n: k for k, (_, old, _) in reversed(list(enumerate(pairs))) for n in old.nodes}
    owned: dict[int, list[Rewrite]] = {}
    for rewrite in rewrites:
        k = _owner(rewrite.before, owner)
        if k is not None and _owner(rewrite.after, owner) in (k, None):
            owned.setdefault(k, []).append(rewrite)
    for k, (name, old, new) in enumerate(pairs):
        if old.results != new.results:
            sides = [n for r in owned.get(k, ()) for n in (r.before, r.after)]
            results = (*old.results, *sides, *new.results)
            names = tuple(f"r{i}" for i in range(len(results)))
            yield Function(f"{TRACE}{name}", old.params, results, names, public=False), owned.get(k, [])


def _pairs(before: Module, after: Module) -> Iterator[tuple[str, Function, Function]]:
    """Functions before and after with the same parameters: bodies in attributes, inner ones first, then those of the module."""
    then = {f.params: f for f in _bodies(after) if f.params}
    for k, body in enumerate(_bodies(before)):
        if body.params in then:
            yield f"body {k}", body, then[body.params]
    for f in before.functions:
        if f.name in after and after[f.name].params == f.params:
            yield f.name, f, after[f.name]


def _bodies(module: Module) -> list[Function]:
    """The functions in attributes, each after those in it."""
    found: dict[int, Function] = {}
    stack = [(f, False) for f in reversed(module.functions)]
    while stack:
        function, done = stack.pop()
        if done:
            found.setdefault(id(function), function)
            continue
        for body in [a for n in function.nodes for a in n.attrs if isinstance(a, Function) and id(a) not in found]:
            stack += [(body, True), (body, False)]
    return list(found.values())


def _owner(node: Node, owner: dict[Node, int]) -> int | None:
    """The number of the function that a node is part of, by the first node below it that is known; it is known then, too."""
    stack, seen, found = [node], list[Node](), None
    met = set[Node]()
    while stack and found is None:
        at = stack.pop()
        found = owner.get(at)
        if at not in met and at.op is not PARAM:
            met.add(at)
            seen.append(at)
            stack += at.inputs
    if found is not None:
        owner[node] = found
    return found
