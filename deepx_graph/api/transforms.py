"""Programs made of programs: passes, the search for a wrong one, and derivatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deepx_graph.api.arguments import names, natural
from deepx_graph.interop.public import public
from deepx_graph.ir import Module

if TYPE_CHECKING:
    from deepx_graph.session.diagnose.bisection import Bisection
    from deepx_graph.session.programs import Watch


@public
def optimize(module: Module, pipeline: str | Sequence[Any] = "default", *, verify: bool | str = True,
             fast_math: bool = False) -> Module:
    """The module after a pipeline of passes: a name such as `default`, a text such as `cse,fuse{max-ops=64}`, or passes as objects.

    It is verified after every pass unless `verify` is false; with `verify="values"` every rewrite is checked by values, too, and a
    PassError names the first that changes what is computed. `fast_math` allows rewrites that change floating-point results
    slightly. Raises UsageError for an unknown pass or option, PassError when a pass fails, which leaves a file that
    `deepx-graph replay` takes and names it in a note.

    >>> dx.optimize(dx.trace(lambda x: (x + 0) * 1, "i32[3]")).entry.nodes
    (<param x: i32[3]>,)
    """
    from deepx_graph.session import programs

    return optimised(module, pipeline, programs.Watch(bool(verify), verify == "values", fast_math=fast_math))


def optimised(module: Module, pipeline: str | Sequence[Any], watch: Watch | None = None) -> Module:
    """The module after a pipeline; an internal error leaves a file that `deepx-graph replay` takes."""
    from deepx_graph.passes.pipeline import format_pipeline
    from deepx_graph.session import programs
    from deepx_graph.session.diagnose.reproducer import reproducible

    def command(path: str) -> list[str]:
        passes: Any = pipeline
        text = passes if isinstance(passes, str) else format_pipeline(passes)
        return ["opt", path, "-p", text, *(["--fast-math"] if watch and watch.fast_math else [])]

    with reproducible(module, command):
        return programs.optimise(module, pipeline, watch).module


@public
def bisect(program: object, *args: Any, pipeline: str | None = None, inputs: Mapping[str, Any] | None = None, samples: int = 20,
           seed: int = 0, max_bytes: int | None = None, **kwargs: Any) -> Bisection:
    """Which pass of a compiler changed what a program computes, and at which operation; `.lines()` of the result reports it.

    `program` is a function made by `jax.jit`, with arguments for it: jaxlib compiles it in a child process (the Python that the
    environment variable DEEPX_GRAPH_JAX_PYTHON names, else this one). Or a module: then the passes of `pipeline` (`default`) are
    searched. Or the path of one module's dumps, or a list of files, the stages in order.

    Stages are run on the arguments, on `inputs` (arrays by name, of the shapes and dtypes of the parameters), or on `samples` sets
    drawn from `seed`, at the edges of types and sizes too; none may take more memory than `max_bytes`. The result has `.found`,
    `.kind` (such as `"wrong element"` or `"code generation"`), `.wrong` (the stage), `.departure` (the operations before and
    after), `.reproducer()` (the least module, and its inputs). Raises UsageError for a program that is none of these, RunError
    where XLA refuses it.

    >>> dx.bisect(dx.trace(lambda x: x * 2 + 1, "f32[4]"), samples=2).found
    False
    """
    from deepx_graph.session.diagnose import bisection

    drawn = bisection.Inputs(None if inputs is None else dict(inputs), samples, natural("seed", seed))
    return bisection.bisect(program, args, kwargs, drawn, pipeline, max_bytes)


@public
def grad(module: Module, wrt: str | Sequence[str] | None = None, *, loop: str = "auto", budget: int | None = None) -> Module:
    """The gradient program: the entry's inputs, then one cotangent per floating or complex output, to the gradient of each floating
    or complex input (or those named in `wrt`), in order. Cotangents have the shapes and dtypes of their outputs, gradients those of
    their inputs.

    `loop` says how the backward part of a loop gets the values that it needs: `keep` stores those of every iteration; `recompute`
    stores only the loop's variables; `sqrt` recomputes in runs, with memory that grows with the square root of the number of
    iterations; `auto` is the first of them that stores at most `budget` bytes (1 GiB). Raises UsageError for an unknown input,
    VerifyError, with the place, for an operation without a gradient.

    >>> g = dx.grad(dx.trace(lambda x: x * x, "f32[2]"))
    >>> dx.run(g, np.float32([1, 2]), np.float32([1, 1]))
    (array([2., 4.], dtype=float32),)
    """
    from deepx_graph.session import programs
    from deepx_graph.session.diagnose.reproducer import reproducible

    chosen = names(wrt)
    options = ["--loop", loop, *([] if chosen is None else ["--wrt", ",".join(chosen)]),
               *([] if budget is None else ["--loop-budget", str(budget)])]
    with reproducible(module, lambda path: ["grad", path, *options]):
        return programs.gradient(module, chosen, loop, budget)


@public
def custom_vjp(module: Module, name: str, vjp_name: str) -> Module:
    """The module in which the function `name` names the function `vjp_name` as its derivative.

    The derivative takes the arguments of the function and one cotangent for each floating or complex result, and gives one for each
    floating or complex argument; `grad` checks that. Raises UsageError when there is no function of that name.

    >>> m = dx.trace(lambda x: x * x, "f32[3]")
    >>> twice = dx.Function("twice", *(lambda f: (f.params, f.results))(dx.grad(m).entry))
    >>> dx.custom_vjp(dx.Module((*m.functions, twice)), "main", "twice")["main"].vjp
    'twice'
    """
    from deepx_graph.session import programs

    return programs.with_derivative(module, name, vjp_name)


@public
def jvp(module: Module, wrt: str | Sequence[str] | None = None) -> Module:
    """The program of tangents: the entry's inputs, then one tangent per floating or complex input (or those named in `wrt`), to the
    tangent of each floating or complex output, in order. A tangent has the shape and dtype of its input or output.

    Raises UsageError for an unknown input, VerifyError, with the place, for an operation without a derivative.

    >>> t = dx.jvp(dx.trace(lambda x: x * x, "f32[2]"))
    >>> dx.run(t, np.float32([1, 2]), np.float32([1, 0]))
    (array([2., 0.], dtype=float32),)
    """
    from deepx_graph.passes.autodiff import jvp

    return jvp.jvp(module, names(wrt))


@public
def hvp(module: Module, wrt: str | Sequence[str] | None = None) -> Module:
    """The program of Hessian-vector products: the inputs of the gradient program, then one tangent per input (or those named in
    `wrt`) as in `jvp`, to the tangents of the gradients, each of the shape and dtype of its input.

    Raises UsageError for an unknown input, VerifyError, with the place, for an operation without a second derivative.

    >>> h = dx.hvp(dx.trace(lambda x: x * x * x, "f32[]"))
    >>> dx.run(h, np.float32(2), np.float32(1), np.float32(1))
    (array(12., dtype=float32),)
    """
    from deepx_graph.passes.autodiff import jvp

    return jvp.hvp(module, names(wrt))
