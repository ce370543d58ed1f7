"""Programs in and out: load and verify, optimise under observers, print, differentiate. What the library and every front end call.

Each function takes a module and gives one; nothing here prints. Warnings of a reader come back beside the module.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepx_graph.errors import DeepxGraphError, Diagnostic, Source, UsageError, VerifyError
from deepx_graph.ir import Module
from deepx_graph.passes import REGISTRY
from deepx_graph.passes.interprocedural.inline import call_order
from deepx_graph.passes.observer import STANDING, Observer, Print, Record, Timing, Verify
from deepx_graph.passes.pipeline import (
    PIPELINES,
    Fix,
    describe_options,
    flattened,
    format_pass,
    format_pipeline,
    option_types,
    parse_pipeline,
    run_pipeline,
)
from deepx_graph.progress import stage
from deepx_graph.rewrite.base import Pass, RewriteControl
from deepx_graph.text import (
    FORMATS,
    ReadOptions,
    decode_source,
    encode,
    format_named,
    open_source,
    read,
    read_source,
    recognise,
    write,
)
from deepx_graph.types import DataType, FunctionType, RefType
from deepx_graph.verify import verify
from deepx_graph.verify.meetings import unmet

if TYPE_CHECKING:
    from deepx_graph.text.common.options import Exported, Recorded
    from deepx_graph.validation.rewrites import ValidateRewrites


STDIN = "-"


@dataclass(frozen=True)
class Loaded:
    """A verified module, and what its reader put up with."""

    module: Module
    warnings: tuple[Diagnostic, ...] = ()
    recorded: Recorded | None = None
    """What the file tells of a run of the program."""
    exported: Exported | None = None
    """What a file of jax.export says of the program."""


TAKEN_FROM_STDIN: list[Source] = []
"""What was read from standard input, which gives it only once: a reproducer takes it along."""


def load(path: str | Path, format: str | None = None, options: ReadOptions | None = None) -> Loaded:
    """The program in a file, or on standard input for `-`.

    Raises UsageError when it cannot be opened, ParseError, VerifyError or LimitError when it is no valid program.
    """
    stage("read")
    return loads(source(path, options), format, options)


def source(path: str | Path, options: ReadOptions | None = None) -> Source:
    """The text or the bytes of a file, or of standard input for `-`. Raises UsageError when it cannot be opened, LimitError."""
    options = options or ReadOptions()
    if str(path) != STDIN:
        return open_source(path, options)
    if sys.stdin is None:
        raise UsageError("standard input is closed")
    found = read_source(sys.stdin.buffer, "<stdin>", options.max_file_bytes)
    TAKEN_FROM_STDIN[:] = [found]
    return found


LARGE = 1 << 20
"""Letters or bytes of what is read for long enough to show its beginning meanwhile."""

BEGINNING = 100
"""Instructions of it."""


def beginning(path: str | Path, options: ReadOptions | None = None) -> Module | None:
    """A program of the first instructions of a large one, to be seen until all of it is read; None where none can be told."""
    try:
        whole = open_source(path, options)
        if len(whole.text if whole.data is None else whole.data) < LARGE:
            return None
        format = format_named(recognise(whole))
        first = format.beginning(whole, BEGINNING)
        return None if first is None else format.read(first, options or ReadOptions()).module
    except DeepxGraphError:  # what is wrong with the whole is told when it is read
        return None


def loads(source: Source | str | bytes | bytearray | memoryview, format: str | None = None,
          options: ReadOptions | None = None) -> Loaded:
    """The program in a text. Raises as `load`."""
    options = options or ReadOptions()
    if isinstance(source, (bytes, bytearray, memoryview)):
        source = decode_source(bytes(source), "<bytes>", options.max_file_bytes)
    source = Source("<text>", source) if isinstance(source, str) else source
    found = read(source, format, options)
    stage("verify")
    verify(found.module)
    return Loaded(found.module, found.warnings, found.recorded, found.exported)


def dumps(module: Module, format: str | None = None, **options: Any) -> str:
    """The module as text in a format, by default the one it was read in. Raises VerifyError for what it cannot express."""
    with _hinted(module):
        return write(module, format or own_format(module), **options)


def encoded(module: Module, format: str, **options: Any) -> bytes:
    """The bytes of a file of a format, binary or text. Raises as `dumps`."""
    with _hinted(module):
        data = encode(module, format, **options)
    return data if FORMATS[format].binary or data.endswith(b"\n") else data + b"\n"


@contextmanager
def _hinted(module: Module) -> Iterator[None]:
    """Says what may help where a format cannot express a functional program."""
    try:
        yield
    except VerifyError as e:
        if not is_functional(module):
            raise
        hint = "the pipeline first-order takes closures, data, references and tail recursion away where it can"
        raise VerifyError(*(dataclasses.replace(d, hint=d.hint or hint) for d in e.diagnostics)) from None


def is_functional(module: Module) -> bool:
    """Whether there are function values, data, references or recursion."""
    nodes = (n for f in module.functions for n in f.nodes)
    return any(isinstance(n.type, (FunctionType, DataType, RefType)) for n in nodes) or bool(call_order(module)[1])


def own_format(module: Module) -> str:
    """The format a module was read in where that can be written as text, else `sea`."""
    found = FORMATS.get(module.format)
    return found.name if found is not None and found.writes and not found.binary else "sea"


@dataclass
class Optimised:
    """A module after a pipeline, and what was seen on the way."""

    module: Module
    passes: tuple[Pass, ...]
    timing: Timing
    control: RewriteControl
    record: Record | None = None
    validated: ValidateRewrites | None = None

    @property
    def pipeline(self) -> str:
        """The pipeline in canonical form."""
        return format_pipeline(self.passes)


@dataclass
class Watch:
    """What to look at while a pipeline runs. `write` receives the text of printed stages."""

    verify: bool = True
    values: bool = False
    """Whether every rewrite is checked by values."""
    record: bool = False
    rewrite_limit: int | None = None
    fast_math: bool = False
    before: Collection[str] | None = ()
    after: Collection[str] | None = ()
    changed_only: bool = False
    write: Callable[[str], object] = field(default=lambda text: None)
    render: Callable[[Module], str] = field(default=lambda module: dumps(module, "sea"))
    observers: Sequence[Observer] = ()
    """Others that look on."""


def optimise(module: Module, pipeline: str | Sequence[Pass] = "default", watch: Watch | None = None) -> Optimised:
    """The module after a pipeline such as `default` or `fold,cse,fuse{max-ops=64}`, or after passes as objects.

    Raises UsageError for a pipeline that is none, PassError when a pass fails or makes an invalid module.
    """
    watch = watch or Watch()
    passes = parse_pipeline(pipeline) if isinstance(pipeline, str) else tuple(pipeline)
    if not all(isinstance(p, Pass) for p in passes):
        raise UsageError(Diagnostic("a pipeline of objects has something else than passes", expected="instances of passes"))
    if watch.fast_math:
        passes = tuple(_with_fast_math(p) for p in passes)
    timing, record = Timing(), Record() if watch.record else None
    observers: list[Observer] = [timing, *watch.observers]
    if watch.before is None or watch.after is None or watch.before or watch.after:
        _check_pass_names(passes, watch)
        observers.append(Print(watch.write, watch.render, before=watch.before, after=watch.after, changed_only=watch.changed_only))
    if watch.verify:
        observers.append(Verify())
    if record is not None:
        observers.append(record)
    validated = _validation() if watch.values else None
    if validated is not None:
        observers.append(validated)
    control = RewriteControl(watch.rewrite_limit)
    return Optimised(run_pipeline(module, passes, observers, control=control), passes, timing, control, record, validated)


def described(pipeline: str, watch: Watch | None = None) -> str | None:
    """What `optimise` makes of a module, in words that stand for it in every process; None where somebody looks on, who would see
    nothing of it when the program is not made again."""
    watch = watch or Watch()
    printed = watch.before is None or watch.after is None or watch.before or watch.after
    if printed or watch.values or watch.record or watch.observers or STANDING:
        return None
    return f"{pipeline} {watch.fast_math} {watch.rewrite_limit}"


def _validation() -> ValidateRewrites:
    from deepx_graph.validation.rewrites import ValidateRewrites  # brings the runtime

    return ValidateRewrites()


def _check_pass_names(passes: Sequence[Pass], watch: Watch) -> None:
    names = {p.name for p in flattened(passes)}
    for name in (*(watch.before or ()), *(watch.after or ())):
        if name not in names:
            raise UsageError(Diagnostic(f"no pass '{name}' in this pipeline", expected=", ".join(sorted(names)) or "no pass"))


def _with_fast_math(pass_: Pass) -> Pass:
    if isinstance(pass_, Fix):
        return dataclasses.replace(pass_, passes=tuple(map(_with_fast_math, pass_.passes)))
    names = {f.name for f in dataclasses.fields(pass_)}
    return dataclasses.replace(pass_, fast_math=True) if "fast_math" in names else pass_  # type: ignore[call-arg]


def check_meetings(module: Module) -> None:
    """Raises VerifyError for collectives that some devices of a group may not come to, or not in the same order."""
    found = unmet(optimise(module, "inline").module)
    if found:
        raise VerifyError(*found)


def gradient(module: Module, wrt: Sequence[str] | None = None, loop: str = "auto", budget: int | None = None) -> Module:
    """The gradient program: the entry's inputs and one cotangent per floating output, to the gradients of `wrt`.

    `loop` says what becomes of values in loops (`keep`, `recompute`, `sqrt`; `auto` takes the first that keeps at most `budget`
    bytes).

    Raises UsageError for an input that is none, VerifyError for an operation without a gradient on the way.
    """
    from deepx_graph.passes.autodiff.grad import BUDGET, grad

    return grad(module, wrt, loop=loop, budget=BUDGET if budget is None else budget)


def with_derivative(module: Module, name: str, vjp_name: str) -> Module:
    """The module in which the function `name` names `vjp_name` as its derivative. Raises UsageError when one is missing."""
    function = module[name].with_(vjp=module[vjp_name].name)
    return module.with_functions(function if f.name == name else f for f in module.functions)


def pipeline_items(pipeline: str) -> list[str]:
    """The passes of a pipeline, each as its canonical text. Raises UsageError for a pipeline that is none."""
    return [format_pass(p) for p in parse_pipeline(pipeline)]


def pipeline_name(pipeline: str) -> str:
    """The name of a named pipeline that stands for the same passes, else the text itself."""
    passes = pipeline_items(pipeline)
    return next((name for name, text in PIPELINES.items() if pipeline_items(text) == passes), pipeline)


def pass_named(text: str) -> type[Pass] | None:
    """The pass that a text such as `fuse{max-ops=64}` begins with, None where it is none."""
    name = re.split(r"[{(\s]", text.strip(), maxsplit=1)[0]
    return Fix if name == Fix.name else REGISTRY.get(name)


def complete_passes(text: str) -> list[str]:
    """The whole texts that a half-written list of passes may become: a name, an option of the pass, a value of the option."""
    start = max(text.rfind(c) for c in ",{ =()") + 1
    begun, opened = text[start:], text.rfind("{") > text.rfind("}")
    if not opened:
        names = [*REGISTRY, *PIPELINES, f"{Fix.name}("]
        return [text[:start] + n for n in names if n.startswith(begun)]
    pass_ = pass_named(re.split(r"[,(](?![^{]*})", text[: text.rfind("{")])[-1])
    if pass_ is None:
        return []
    if text[start - 1 : start] == "=":
        option = re.split(r"[{ ,]", text[: start - 1])[-1]
        values = ["true", "false"] if option_types(pass_).get(option) is bool else []
        return [text[:start] + v for v in values if v.startswith(begun)]
    return [text[:start] + n + "=" for n in option_types(pass_) if n.startswith(begun)]


def explain_pass(text: str) -> list[str]:
    """Lines that say what a pass does and what its options are."""
    pass_ = pass_named(text)
    if pass_ is None:
        return []
    lines = [f"{pass_.name}: {pass_.summary()}", f"options: {describe_options(pass_)}"]
    more = (pass_.__doc__ or "").strip().split("\n")[1:]
    fields = {f.name for f in dataclasses.fields(pass_)}
    return lines + [line.strip() for line in more if line.strip()] if fields else lines
