"""What others add from outside: operations, rules, passes, engines, readers, printers and views, as if they stood in this package.

A plugin is a Python file that registers them, named by `--plugin FILE.py`, or an installed distribution with an entry point of the
group `deepx_graph.plugins` that names a module, or a function without arguments. Plugins run with all rights of the user.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib.metadata import entry_points
from types import SimpleNamespace
from typing import Any, TypeVar

from deepx_graph import ops
from deepx_graph.errors import Diagnostic, Source, UsageError, is_interrupt, printable
from deepx_graph.interop.public import public
from deepx_graph.interop.python_file import run_file
from deepx_graph.ir import Module, Node, Op, fingerprint
from deepx_graph.passes import REGISTRY
from deepx_graph.passes.scalar.simplify import EXTENSIONS
from deepx_graph.rewrite.base import Pass
from deepx_graph.rewrite.engine import Rule
from deepx_graph.runtime.engines import ENGINES
from deepx_graph.runtime.engines.base import Engine
from deepx_graph.session.show.views import PLUGIN_VIEWS, TextView
from deepx_graph.text.common.options import ReadOptions, ReadResult
from deepx_graph.text.formats import FORMATS, Format

P = TypeVar("P", bound=type[Pass])
_VIEW_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_OWN_VIEWS = frozenset({"list", "map", "passes", "pipeline", "run", "value-view", "compare"})


def _taken(what: str, name: str, old: object, new: object) -> None:
    """Raises UsageError where a name stands for something else. What is added has no place in the fingerprints of programs."""
    fingerprint.add(name)
    if old is not None and old is not new:
        raise UsageError(Diagnostic(f"there is {what} '{name}' already", hint="choose another name"))


@public
def register_op(op: Op, family: str = "plugin") -> Op:
    """Makes the operation `op` known: it is read and printed (in `sea`; elsewhere by its kernel or decomposition), listed under
    `family`, and found as `deepx_graph.ops.NAME`. It runs, fuses and differentiates from its declaration alone, which says the
    shapes and dtypes that it takes and gives. The operation itself is given back.

    Raises UsageError for a name that another operation has.

    >>> from deepx_graph.ops.helpers import unary, widened
    >>> cubed = dx.register_op(unary("cubed", "x^3.", widened(lambda x: x ** 3), kernel="x * x * x", kinds=("float",),
    ...                              source="arithmetic"))
    >>> b = dx.Builder()
    >>> m = dx.Module((b.function("main", [("x", "f32[2]")], lambda x: [b(cubed, x)]),))
    >>> dx.run(m, np.float32([1, 2]))
    (array([1., 8.], dtype=float32),)
    """
    _taken("an operation", op.name, ops.OPS.get(op.name), op)
    if op.name not in ops.OPS:
        ops.OPS[op.name] = op
        ops.FAMILIES[family] = (*ops.FAMILIES.get(family, ()), op)
        ops.FAMILY_OF[op] = family
        setattr(ops, op.name, op)
    return op


@public
def register_rule(rule: Rule) -> Rule:
    """Makes the pass `simplify` apply a rewrite rule, behind its own. The rule itself is given back, so that this is a decorator.

    Raises UsageError for a name that another rule of a plugin has.

    >>> from deepx_graph import ops
    >>> from deepx_graph.rewrite.engine import rule
    >>> from deepx_graph.rewrite.pattern import X, op_of
    >>> @dx.register_rule
    ... @rule(op_of(ops.cosine, op_of(ops.negate, X)))
    ... def cosine_is_even(b, x):
    ...     "cos(-x) = cos(x)"
    ...     return b(ops.cosine, x)
    >>> dx.optimize(dx.trace(lambda x: dx.xp.cos(-x), "f32[2]"), "simplify,dce").find("op:negate")
    []
    """
    _taken("a rule", rule.name, next((r for r in EXTENSIONS if r.name == rule.name), None), rule)
    if rule not in EXTENSIONS:
        EXTENSIONS.append(rule)
    return rule


@public
def register_pass(pass_: P) -> P:
    """Makes the class of a pass, `pass_`, known to pipelines by its `name`, with its fields as options. It is given back: this is
    a decorator.

    Raises UsageError for a name that another pass has.

    >>> from dataclasses import dataclass
    >>> from typing import ClassVar
    >>> from deepx_graph.rewrite.base import Pass
    >>> @dx.register_pass
    ... @dataclass(frozen=True)
    ... class Nothing(Pass):
    ...     "Leaves everything as it is."
    ...     name: ClassVar[str] = "nothing"
    ...     def run_under(self, module, control):
    ...         return module
    >>> m = dx.trace(abs, "f32[2]")
    >>> dx.optimize(m, "nothing") is m
    True
    """
    _taken("a pass", pass_.name, REGISTRY.get(pass_.name), pass_)
    REGISTRY.added[pass_.name] = pass_
    return pass_


@public
def register_engine(name: str, make: Callable[[int | None], Engine]) -> None:
    """Makes an engine known by `name`: `make(threads)` gives it, with as many threads as asked for, or None.

    Its kernels get numpy arrays of the shapes and dtypes that the types of nodes say, and give such. Raises UsageError for a name
    that another engine has.

    >>> from deepx_graph.runtime import engines
    >>> dx.register_engine("mine", lambda threads: engines.get("numpy", threads))
    >>> dx.run(dx.trace(lambda x: x + x, "f32[2]"), np.float32([1, 2]), engine="mine")
    (array([2., 4.], dtype=float32),)
    """
    _taken("an engine", name, ENGINES.get(name), make)
    ENGINES[name] = make


def _language(name: str, summary: str, suffixes: tuple[str, ...]) -> Format:
    """The format of that name that plugins have made, or a new one. Raises UsageError for one of this package."""
    known = FORMATS.get(name)
    if known is not None and known.language is None:
        raise UsageError(Diagnostic(f"there is a format '{name}' already", hint="choose another name"))
    nothing = SimpleNamespace(detect=lambda text: 0.0, read=None, write=None)
    return known or Format(name, summary, suffixes, __name__, reads=False, writes=False, language=nothing)


@public
def register_reader(name: str, read: Callable[[Source, ReadOptions], ReadResult | Module], *,
                    detect: Callable[[str], float] = lambda text: 0.0, suffixes: tuple[str, ...] = (), summary: str = "") -> None:
    """Makes the language `name` readable: `read(source, options)` gives the module, `detect(text)` how likely a text is of it, 0
    to 1.

    `suffixes`, such as `.rpn`, tell files whose text does not; `summary` describes it in lists. Raises UsageError for a language of
    this package.

    >>> dx.register_reader("squares", lambda source, options: dx.trace(lambda x: x * x, source.text.strip()))
    >>> dx.loads("f32[3]", "squares").entry
    <function main: (f32[3]) -> (f32[3])>
    """
    def result(source: Source, options: ReadOptions) -> ReadResult:
        found = read(source, options)
        return ReadResult(found) if isinstance(found, Module) else found

    known = _language(name, summary, suffixes)
    language = SimpleNamespace(detect=detect, read=result, write=getattr(known.language, "write", None))
    FORMATS[name] = replace(known, reads=True, suffixes=suffixes or known.suffixes, language=language)


@public
def register_printer(name: str, write: Callable[[Module], str], *, suffixes: tuple[str, ...] = (), summary: str = "") -> None:
    """Makes the language `name` writable: `write(module)` gives the text. `suffixes` and `summary` are as in `register_reader`.

    Raises UsageError for a language of this package.

    >>> dx.register_printer("names", lambda module: " ".join(n.op.name for n in module.entry.nodes))
    >>> dx.dumps(dx.trace(lambda x: x * x, "f32[3]"), "names")
    'param multiply'
    """
    known = _language(name, summary, suffixes)
    language = SimpleNamespace(**{**vars(known.language), "write": write})
    FORMATS[name] = replace(known, writes=True, suffixes=suffixes or known.suffixes, language=language)


@public
def register_view(name: str, show: Callable[[Module, Node], str | Iterable[str]], *, title: str = "") -> None:
    """Makes a view of the program and a node: `show(module, node)` gives the text, as one or as lines; `title` is by default the
    name.

    In the terminal browser it stands behind a key and a tab of its own, and tells of the selected node; on pages it is a part of
    what is told of a node, in pictures of its tooltip, in programs of up to 2,000 nodes. Browsers that are opened afterwards have
    it, and what is drawn afterwards. Raises UsageError for a name that another view has, or that is no word.

    >>> dx.register_view("inputs", lambda module, node: [i.name for i in node.inputs])
    """
    if not _VIEW_NAME.fullmatch(name) or name in _OWN_VIEWS:
        raise UsageError(Diagnostic(f"'{printable(name)}' cannot name a view", expected="letters, digits and -, another name than "
                                    + ", ".join(sorted(_OWN_VIEWS))))
    view = TextView(title or name, show)
    old = PLUGIN_VIEWS.get(name)
    _taken("a view", name, old and old.show, show)
    PLUGIN_VIEWS[name] = view


def load_file(path: str) -> None:
    """Runs a plugin's file. Raises UsageError, with its line, where it fails."""
    run_file(path)


@functools.cache
def load_installed(group: str) -> None:
    """Loads every plugin of a group of entry points, once in a process. One that fails is a warning."""
    for point in entry_points(group=group):
        try:
            found: Any = point.load()
            if callable(found):
                found()
        except Exception as e:  # whatever a plugin raises
            if is_interrupt(e):
                raise
            warnings.warn(f"the plugin '{point.name}' ({point.value}) was not loaded: {type(e).__name__}: {e}", stacklevel=2)
