"""What is told of programs: figures, pictures, differences, reasons, and where their numbers come from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from deepx_graph.api.arguments import names, natural
from deepx_graph.api.transforms import optimize
from deepx_graph.errors import Diagnostic, UsageError, printable, suggest
from deepx_graph.interop.public import public
from deepx_graph.ir import Module, Node

if TYPE_CHECKING:
    from deepx_graph.numerics.nonfinite import NonfiniteReport
    from deepx_graph.numerics.rounding import RoundingReport
    from deepx_graph.passes.fusion.reason import Reason
    from deepx_graph.session.equivalence import Equivalence
    from deepx_graph.session.gradcheck import GradCheck
    from deepx_graph.session.report.diff import Difference
    from deepx_graph.session.report.figures import Judgement
    from deepx_graph.session.report.fusion import FusionReport
    from deepx_graph.session.report.info import ModuleInfo
    from deepx_graph.session.report.meaning import Meaning
    from deepx_graph.session.report.provenance import Provenance
    from deepx_graph.viz.draw import Drawing


@public
def info(module: Module) -> ModuleInfo:
    """What a program takes, gives and is made of: `.functions`, each with inputs, outputs, operations and costs; `str` is the text.

    Sizes are in bytes, work in operations of arithmetic.

    Raises UsageError for what is no module.

    >>> dx.info(dx.trace(lambda x: x * x, "f32[3]")).flops
    3
    """
    from deepx_graph.session.report.info import module_info

    return module_info(module)


@public
def draw(module: Module, path: str | os.PathLike[str] | None = None, *, format: str | None = None, **options: Any) -> Drawing:
    """A picture of the module, written to `path` when given: DOT, SVG, PNG or HTML by `format`, or by the suffix of `path`.

    Of `options`, `function` draws one function, `around` (a name of the source, or an address such as `#17`) with `depth` only what
    lies near a node, `keep` only the nodes of these addresses. Above `max_nodes` boxes (by default 40) the picture is folded to so
    many; `collapse` draws a fused kernel as one box, `sideways` from left to right. `theme` is `light` or
    `dark`, for a page also `auto`; `title` and `legend` stand above the graph; `overlay` colours by `bytes`, `moved` or `flops`.

    Raises UsageError for an unknown format, theme, function or node, and for PNG without a layout engine; LayoutError when a PNG is
    not done within `timeout` seconds (20), where an SVG or a page falls back to a simple layout.

    >>> dx.draw(dx.trace(lambda x: x * x, "f32[3]"), format="dot").data[:7]
    b'digraph'
    """
    from deepx_graph.session.show.picture import picture

    return picture(module, path, format=format, **options)


@public
def diff(a: Module, b: Module, *, as_written: bool = False) -> Meaning | Difference:
    """What is different in the program `b` from the program `a`; false where nothing is.

    They are inlined, unfused and simplified first: `.verdict` says whether they are known to mean the same, `.difference` what is
    left. With `as_written` they are compared as they stand, and the result is the difference alone: `.changes`, `.same` (how many
    nodes correspond). `lines()` of either is the report.

    Raises UsageError for what is no module.

    >>> a, b = (dx.trace(lambda x: x * k, "f32[3]") for k in (2, 3))
    >>> bool(dx.diff(a, a)), len(dx.diff(a, b).difference.changes) > 0
    (False, True)
    """
    from deepx_graph.session.report import diff as as_they_stand
    from deepx_graph.session.report.meaning import compare_meaning

    return as_they_stand.diff(a, b) if as_written else compare_meaning(a, b)


@public
def equivalent(a: Module, b: Module, inputs: Mapping[str, Any] | None = None, *, count: int = 8, seed: int = 0,
               max_bytes: int | None = None) -> Equivalence:
    """Whether two programs compute the same; false where they do not. `.kind` and `.evidence` say what that rests on.

    Equal canonical forms come first (`identical`). Then numbers: on `inputs` (arrays by name, of the shapes and dtypes of the
    parameters, within `max_bytes` of memory) and on `count` samples drawn from
    `seed`, at the edges of types too, in the programs' own precision and in double precision. Floats may differ by what rounding in
    every operation can make of an output, which is tried; no tolerance is chosen. `.witness` has inputs that show a difference,
    `.departure` the operation at which `b` departs from `a`. Raises UsageError where inputs or outputs do not correspond.

    >>> f, g, h = (dx.trace(f, "f32[4]") for f in (lambda x: x * 2, lambda x: x + x, lambda x: x * 2.001))
    >>> bool(dx.equivalent(f, g)), dx.equivalent(f, h).kind
    (True, 'different')
    """
    from deepx_graph.session.equivalence import equivalent as session_equivalent

    return session_equivalent(a, b, inputs, count=count, seed=seed, max_bytes=max_bytes)


@overload
def why(module: Module, a: None = None, b: None = None, *, pipeline: str = "clean", engine: str = "auto",
        threads: int | None = None) -> FusionReport: ...


@overload
def why(module: Module, a: str | Node, b: str | Node, *, pipeline: str = "clean", engine: str = "auto",
        threads: int | None = None) -> Reason: ...


@overload
def why(module: Module, *, made: str, pipeline: str = "clean") -> Provenance: ...


@public
def why(module: Module, a: str | Node | None = None, b: str | Node | None = None, *, made: str | None = None,
        pipeline: str = "clean", engine: str = "auto", threads: int | None = None) -> Reason | FusionReport | Provenance:
    """Why two nodes, `a` and `b`, are, or are not, in one kernel: `.fused`, `.kind`, `.message`. Without nodes, all kernels and
    refusals; `lines()` is the report.

    With `made`, a name or an address after the pipeline: which rewrites made that node, `.steps`, each with its sides.

    A node is one of the module, its name, or an address such as `#17`. `pipeline` are the passes before fusion, as long as they
    leave both nodes; `engine` and `threads` are those that run the kernels, as in `compile`. Raises UsageError for one node alone,
    and for one that there is not.

    >>> m = dx.trace(lambda x: dx.xp.sin(x * x), "f32[8]")
    >>> (product,), (sine,) = m.find("op:multiply"), m.find("op:sine")
    >>> dx.why(m, product, sine, pipeline="").fused
    True
    """
    from deepx_graph.session.report.fusion import fusion_report
    from deepx_graph.session.report.placing import Placing

    if made is not None:
        from deepx_graph.session.report.provenance import provenance

        return provenance(module, made, pipeline)
    passed = optimize(module, pipeline) if pipeline else module
    if a is None and b is None:
        return fusion_report(passed, engine, threads)
    if a is None or b is None:
        raise UsageError(Diagnostic("why takes two nodes, or none", hint="without nodes it reports on all kernels"))
    there = {n.name for f in passed.functions for n in f.nodes}
    stays = all(x in there or x.startswith("#") for x in (a, b) if isinstance(x, str)) and isinstance(a, str) and isinstance(b, str)
    return Placing(passed if stays else module, engine, threads).why(a, b)


@public
def check(module: Module, budget: str | Sequence[str], *, pipeline: str = "default") -> Judgement:
    """Whether a program stays within budgets after a pipeline: true when all hold; `.verdicts` has each with its value.

    A budget bounds a figure: `ops<=120`, `peak_bytes<=64M`, `ops.dot_general<=4`. Raises UsageError, with the nearest name, for
    an unknown figure, and for one that open sizes leave unknown.

    >>> m = dx.trace(lambda x: dx.xp.sin(x * x), "f32[8]")
    >>> bool(dx.check(m, budget="ops<=10")), bool(dx.check(m, budget=["ops<=10", "ops<1"]))
    (True, False)
    """
    from deepx_graph.session.report import figures

    budgets = [figures.parse_budget(text) for text in ([budget] if isinstance(budget, str) else budget)]
    if not budgets:
        raise UsageError(Diagnostic("nothing to check", expected="a budget, such as ops<=120"))
    on_mesh = None
    if any(b.figure in figures.MESH_FIGURES for b in budgets):
        from deepx_graph.session.plans import STATED, figures_on_mesh

        on_mesh = figures_on_mesh(module, STATED)
    return figures.Judgement(tuple(figures.judge(module, optimize(module, pipeline), budgets, on_mesh)))


@public
def check_grad(module: Module, wrt: str | Sequence[str] | None = None, *, seed: int = 0, samples: int = 3,
               data_root: str | Path | None = None) -> GradCheck:
    """The gradients of a program beside finite differences, along random directions; true where all agree, `str` is the table.

    `samples` sets of inputs, arrays of the shapes and dtypes of the parameters, are drawn from `seed`; floats are computed in
    double precision where that is possible. `wrt` is as in `grad`, `data_root` as in `compile`. `.inputs` has each input with its
    largest error.

    Raises UsageError for an unknown input and for open sizes, VerifyError, with the place, for an operation without a gradient.

    >>> bool(dx.check_grad(dx.trace(lambda x: dx.xp.sum(dx.xp.sin(x)), "f32[4]")))
    True
    """
    from deepx_graph.session.gradcheck import check_gradient

    root = None if data_root is None else Path(data_root)
    return check_gradient(module, names(wrt), seed=natural("seed", seed), samples=samples, data_root=root)


@public
def explain_nan(module: Module, inputs: Mapping[str, Any], *, seed: int = 0, max_bytes: int | None = None) -> NonfiniteReport:
    """Runs the program, on `inputs`, and says which operations made the NaN and infinities of its outputs.

    `inputs` are arrays by name, of the shapes and dtypes of the parameters; `seed` and `max_bytes` are as in `compile`.

    `.origins` are these, in the order of the run, with element, operands, iteration and causes; `.harmless` counts those that
    reach no output; `.lines()` is the report. Raises what running raises.

    >>> f = dx.trace(lambda x: dx.xp.log(x) * 0, "f32[2]")
    >>> [o.node.op.name for o in dx.explain_nan(f, {"x": np.float32([1, 0])}).origins]
    ['multiply']
    """
    from deepx_graph.numerics.nonfinite import explain_nonfinite

    return explain_nonfinite(module, inputs, seed=seed, max_bytes=max_bytes)


@public
def explain_error(module: Module, inputs: Mapping[str, Any], *, store_as: str | None = None, seed: int = 0,
                  max_bytes: int | None = None) -> RoundingReport:
    """Runs the program, on `inputs`, beside itself in double precision, and says which operations lose digits.

    `inputs` are arrays by name, of the shapes and dtypes of the parameters; `seed` and `max_bytes` are as in `compile`.

    `.outputs` are names with relative errors, `.cancellations` the operations that make errors large, `.nodes` all operations with
    their own errors and what each adds to those of the outputs. `store_as` is an element type such as `bf16`: `.stored` of a node
    is then what storing that one value in it would do. Raises UsageError for a program that has nothing narrower than f64, and for
    an unknown element type.

    >>> f = dx.trace(lambda x: (x + 1000) - 1000, "f32[3]")
    >>> [n.node.op.name for n in dx.explain_error(f, {"x": np.float32([0.1, 0.2, 0.3])}).cancellations]
    ['subtract']
    """
    from deepx_graph.numerics.rounding import explain_rounding
    from deepx_graph.types import dtype_named, dtype_names

    if store_as is not None and store_as not in dtype_names():
        raise UsageError(Diagnostic(f"no element type '{printable(store_as)}'", expected="such as bf16 or f16",
                                    hint=suggest(store_as, dtype_names())))
    format = None if store_as is None else dtype_named(store_as)
    return explain_rounding(module, inputs, format=format, seed=seed, max_bytes=max_bytes)
