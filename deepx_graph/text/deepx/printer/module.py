"""Printing deepx: a module as text of dialect A (`seed`), E (`wire`) or F (`function`), which reads back as the same function.

Nodes are written in order, each to a tensor that `newtensor` makes first. In A and E the results are made before all else, as the
order of creation is the order of results; each parameter is read in a line of its own, which fixes order and type; and what is
not a result is deleted after its last use. What a form cannot express is a Diagnostic at the node; nothing is left out silently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from deepx_graph.errors import Diagnostic, UsageError, VerifyError, suggest
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.structure import CALL, CONSTANT, PARAM, PARTIAL, PROJ, callee_of, index_of
from deepx_graph.literal import Literal
from deepx_graph.ops import load
from deepx_graph.rewrite.legalise import ConversionTarget, legalise
from deepx_graph.text.deepx.printer.forms import Argument, Form, Functional, Instruction, Seed, Tensor, Vector, Wire
from deepx_graph.text.deepx.printer.function import FunctionWriter, Pool
from deepx_graph.text.deepx.printer.ops import EMITTERS, STRUCTURE, is_unsaid, loaded_name
from deepx_graph.text.deepx.reader.functions import KEYWORDS
from deepx_graph.text.deepx.reader.rules import rule_named
from deepx_graph.types import ANY, TensorType, is_state, is_static

DIALECTS = ("seed", "wire", "function")

Results = list[tuple[Node, Tensor]]


def _has(node: Node) -> bool:
    return node.op is PARAM or node.op in STRUCTURE or (node.op in EMITTERS and not is_unsaid(node))


TARGET = ConversionTarget(_has)
"""What deepx has."""


def write(module: Module, dialect: str | None = None) -> str:
    """The module's text in a dialect; where none is named, `wire` for a plain program and `function` for one with functions.

    Raises UsageError for an unknown dialect, VerifyError with every node that the dialect cannot express.
    """
    if dialect is None:
        dialect = "wire" if len(module.functions) == 1 and module.entry_name == "main" else "function"
    if dialect not in DIALECTS:
        raise UsageError(Diagnostic(f"unknown deepx dialect '{dialect}'", expected=" | ".join(DIALECTS),
                                    hint=suggest(dialect, DIALECTS)))
    module = legalise(module, TARGET)
    lines = _functions(module) if dialect == "function" else _program(module, dialect)
    return "\n".join(lines) + "\n"


# --- A and E: one program -----------------------------------------------------------------------------------------


def _program(module: Module, dialect: str) -> list[str]:
    called = _called(module.entry)
    extra = [f for f in module.functions if f is not module.entry and (f.public or f.name in called)]
    if extra:
        raise VerifyError(*(Diagnostic(f"dialect '{dialect}' has no functions: '{f.name}' cannot be written", f.span,
                                       hint="inline it first, or write dialect 'function'") for f in extra))
    pool = Pool()
    form: Form = Seed(pool.series("a"), pool.series("v")) if dialect == "seed" else Wire()
    w = FunctionWriter(module.entry, form, pool, {})
    kept = {out.name for _, out in straight_line(w)}
    return [line for i in _with_deletions(w.made, kept) for line in form.lines(i)]


def straight_line(w: FunctionWriter) -> Results:
    """Writes the instructions of a program; its results, but for the state, and their tensors. Raises VerifyError."""
    function = w.function
    loads = _reserve_loaded(w)
    params = [v for p in function.params if (v := _param(w, p)) is not None]
    early = all(is_state(r.type) or is_static(r.type) for r in function.results)
    results = _result_tensors(w, loads, exist=early)
    if early:
        for node, out in results:
            with w.collecting():
                w.create(out, node)
        _aim(w, results)
    head = len(w.made)
    for p, value in zip((p for p in function.params if not is_state(p.type)), params, strict=True):
        w.declare(value, p)
    body = len(w.made)
    w.nodes(function.nodes)
    for node, out in results:
        with w.collecting():
            _finish(w, node, out, early)
    if w.problems:
        raise VerifyError(*w.problems)
    if not any(v.type.is_static for v in params) and _read_order(w.made[body:], params) == params:
        del w.made[head:body]
    return results


def _read_order(instructions: Sequence[Instruction], params: Sequence[Tensor | Argument]) -> list[Tensor | Argument]:
    """The parameters in the order in which instructions first read them."""
    by_name = {p.name: p for p in params}
    return list(dict.fromkeys(by_name[t.name] for i in instructions for t in i.reads if t.name in by_name))


def _with_deletions(instructions: Sequence[Instruction], kept: set[str]) -> list[Instruction]:
    """The same, each tensor that is made and not kept deleted after its last use."""
    last: dict[str, int] = {}
    made: dict[str, Tensor] = {}
    for k, i in enumerate(instructions):
        last |= dict.fromkeys((t.name for t in i.reads), k)
        for t in i.results:
            t = t if i.op != "renametensor" else t._replace(name=i.operands[0].text)  # type: ignore[union-attr]
            made[t.name], last[t.name] = t, k
    dead: dict[int, list[Tensor]] = {}
    for name, t in made.items():
        if name not in kept:
            dead.setdefault(last[name], []).append(t)
    return [j for k, i in enumerate(instructions)
            for j in (i, *(Instruction("deltensor", (), (t,)) for t in dead.get(k, ())))]


# --- parameters and results ---------------------------------------------------------------------------------------


def _param(w: FunctionWriter, node: Node) -> Tensor | Argument | None:
    """A parameter's value; None for the state, which the text does not show."""
    if is_state(node.type):
        w.values[node] = None
        return None
    if not isinstance(node.type, TensorType):
        w.fail(node, f"deepx has no values of type {node.type}")
    if node.type.dtype is not ANY:
        w.word(node.type.dtype, node)
    is_argument = node.type.dims == ()
    name = w.name_for(node.name if not is_argument or w.form.accepts_argument(node.name) else "", "x")
    value = Argument(name, node.type) if is_argument else Tensor(name, node.type)
    w.values[node] = value
    return value


def _reserve_loaded(w: FunctionWriter) -> Counter[str]:
    """Counts how often each name is loaded. Such a name is made by the load and taken away again: nothing else can have it."""
    loads = Counter(loaded_name(n.attr("path")) for n in w.function.nodes if n.op is load)
    w.pool.taken |= set(loads)
    return loads


def _result_tensors(w: FunctionWriter, loads: Counter[str], *, exist: bool) -> Results:
    """The results, but for the state, with the tensors that they are written to.

    Where these `exist` from the start, one can have the name of what is loaded only if it is just that.
    """
    found: Results = []
    for k, node in enumerate(w.function.results):
        if is_state(node.type):
            continue
        if not isinstance(node.type, TensorType):
            w.fail(node, f"deepx has no values of type {node.type}")
        name = w.function.result_name(k)
        if not exist or (loads[name] == 1 and _is_load_of(node, name)):
            w.pool.taken -= {name} & (set(loads) - {t.name for _, t in found})
        found.append((node, Tensor(w.name_for(name, "out"), node.type)))
    return found


def _is_load_of(node: Node, name: str) -> bool:
    return node.op is PROJ and node.inputs[0].op is load and loaded_name(node.inputs[0].attr("path")) == name


def _aim(w: FunctionWriter, results: Results) -> None:
    """Let nodes that are results be written to the results' tensors at once."""
    for node, out in results:
        if node.op is PROJ:
            w.item_targets.setdefault((node.inputs[0], index_of(node)), out)
        elif node.op not in (PARAM, CONSTANT):
            w.targets.setdefault(node, out)


def _finish(w: FunctionWriter, node: Node, out: Tensor, exists: bool) -> None:
    """Let the result hold the node's value, where it does not yet."""
    value = w.values[node]
    if isinstance(value, (Literal, Argument)):
        if not exists:
            w.create(out, node)
        w.materialise(node, value, out.type, out)
    elif not isinstance(value, Tensor):
        w.fail(node, f"deepx has no values of type {node.type}")
    elif value.name != out.name:
        w.emit("copytensor" if exists else "clonetensor", value, into=out)


# --- F: functions -------------------------------------------------------------------------------------------------


def _functions(module: Module) -> list[str]:
    """The entry is `main`, or else stands last, as that is how the reader finds it."""
    names = _function_names(module)
    entry = module.entry
    called: set[str] = set().union(*map(_called, module.functions))
    order = [f for f in module.functions if f is not entry]
    order = list(module.functions) if names[entry.name] == "main" else [*order, entry]
    problems: list[Diagnostic] = []
    lines: list[str] = []
    for f in order:
        w = FunctionWriter(f, Functional(), Pool(), names)
        with w.collecting():
            lines += _function(w, f.name in called, f is entry)
        problems += w.problems
    if problems:
        raise VerifyError(*problems)
    return lines


def _function(w: FunctionWriter, is_called: bool, is_entry: bool) -> list[str]:
    f, loads = w.function, _reserve_loaded(w)
    formals: list[str] = []
    for p in f.params:
        value = _param(w, p)
        if isinstance(value, Argument) and is_called:
            if is_entry:
                w.fail(p, "a scalar parameter of the entry cannot be passed by calls of it in deepx")
            # a call passes tensors, of which deepx has none of rank 0
            value = Tensor(value.name, value.type.with_dims((1,)))
            w.values[p] = w.apply("reshape", value.type.with_dims(()), value, Vector(()))
        if value is not None:
            formals.append(_formal(w, value.name, value.type, p))
    results = _result_tensors(w, loads, exist=True)
    _aim(w, results)
    w.nodes(f.nodes)
    for node, out in results:
        with w.collecting():
            _finish(w, node, out, True)
    outs = [_formal(w, out.name, out.type, node) for node, out in results]
    body = [line for i in w.made for line in w.form.lines(i)]
    return [f"deepxir {w.names[f.name]}({', '.join(formals)}) -> ({', '.join(outs)}) {{", *body, "}"]


def _formal(w: FunctionWriter, name: str, type: TensorType, node: Node) -> str:
    """`name: tensor<2x?1xf32>`; `name: f32` for a scalar, `tensor<f32>` for an unknown rank."""
    if type.dtype is ANY:
        return f"{name}: tensor"
    word = w.word(type.dtype, node)
    if type.dims == ():
        return f"{name}: {word}"
    dims = "" if type.dims is None else "".join(f"{w.symbol(d)}x" for d in type.dims)
    return f"{name}: tensor<{dims}{word}>"


def _called(function: Function) -> set[str]:
    return {callee_of(n) for n in function.nodes if n.op is CALL or n.op is PARTIAL}


def _function_names(module: Module) -> dict[str, str]:
    """The functions' names here: their own where they are legal, are no operation's and do not pass for the entry."""
    names: dict[str, str] = {}
    pool = Pool()
    for f in sorted(module.functions, key=lambda f: f is not module.entry):
        usable = Form.legal_name.fullmatch(f.name) and f.name not in KEYWORDS and rule_named(f.name) is None
        is_mistaken = f.name == "main" and f is not module.entry
        names[f.name] = pool.claim(f.name if usable and not is_mistaken else "", "f")
    return names
