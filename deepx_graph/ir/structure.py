"""The structural operations: what the graph itself is made of, apart from what a program computes.

Parameters and constants; tuples and projections; branches (`region`, `phi`), loops (`loop_begin`, `phi`, `loop_end`); calls and
closures. These are the only ops that verify, scheduling and pictures treat by identity.

- `region(selector; branch 0 values; branch 1 values; ...)` gives the values of one branch as a tuple, and only that branch is
  computed. A bool selector takes branch 0 when true; an integer takes that branch, the last one when out of range.
- `loop_begin(inits...)` has an identity of its own; `phi(loop_begin, k)` is loop variable k; `loop_end(loop_begin, cond, nexts...)`
  closes it: while cond, iterate with nexts; at the end its value is the tuple of loop variables. The back edge is implied.
- `call` names a function of the module, so recursion makes no cycle; `partial` binds leading arguments into a function value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from deepx_graph.errors import Diagnostic, InferError, an, suggest
from deepx_graph.ir import examples
from deepx_graph.ir.constraint import (
    BOOLS,
    BOOLS_OR_INTEGERS,
    FUNCTION_VALUE,
    NON_NEGATIVE,
    POSITIVE,
    SCALAR,
    TUPLE_VALUE,
    VALUE,
    at_most,
)
from deepx_graph.ir.node import Node, problem
from deepx_graph.ir.op import Op, declared
from deepx_graph.ir.signature import Attr, Operand, Result
from deepx_graph.literal import Literal
from deepx_graph.types import FunctionType, TupleType, Type, as_tensor, compatible, merge_types

if TYPE_CHECKING:
    from deepx_graph.ir.function import Module

DESIGN = "deepx_graph docs/architecture.md"

_VALUE, _TUPLE = (Result(type=VALUE),), (Result(type=TUPLE_VALUE),)

PARAM: Op = Op(
    "param", "A parameter of the function.",
    attrs=(Attr("index", "int", summary="its position"), Attr("type", "type", summary="its type")),
    infer=lambda types, index, type: type, foldable=False, example=examples.LEAVES, results=_VALUE, source=DESIGN,
)  # fmt: skip

CONSTANT: Op = Op(
    "constant", "A tensor known before the program runs.",
    attrs=(Attr("value", "literal"),),
    infer=lambda types, value: value.type, eval=lambda xs, value: value.array, vjp=lambda b, node, g: (),
    foldable=False, assembly="$value", results=(Result("output"),),
    example=examples.LEAVES, source="StableHLO constant",
)  # fmt: skip

TUPLE: Op = Op(
    "tuple", "Several values as one.", operands=(Operand("val", variadic=True),),
    infer=lambda types: TupleType(tuple(types)), eval=lambda xs: tuple(xs), staged=lambda types, result: lambda *xs: xs,
    vjp=lambda b, node, g: g, foldable=False, example=examples.TUPLES, results=_TUPLE, source="StableHLO tuple",
)  # fmt: skip


def _item(types: Sequence[Type], index: int) -> Type:
    whole = types[0]
    assert isinstance(whole, TupleType)
    if index >= len(whole.items):
        raise InferError(f"item {index} of {len(whole.items)} items", expected=f"an index below {len(whole.items)}")
    return whole.items[index]


PROJ: Op = Op(
    "proj", "One item of a tuple, or one result of an operation with several.",
    operands=(Operand("operand", type=TUPLE_VALUE),), attrs=(Attr("index", "int", check=NON_NEGATIVE),),
    infer=_item, eval=lambda xs, index: xs[0][index], staged=lambda types, result, index: itemgetter(index), foldable=False,
    assembly="$operand[$index]", example=examples.TUPLES, results=_VALUE, source="StableHLO get_tuple_element",
)  # fmt: skip

PHI: Op = Op(
    "phi", "Value k of the branch that was taken, or loop variable k in this iteration of the loop.",
    operands=(Operand("control", type=TUPLE_VALUE),), attrs=(Attr("index", "int", check=NON_NEGATIVE),),
    infer=_item, foldable=False, assembly="$control[$index]",
    example=examples.BRANCH, results=_VALUE, source="C. Click, Combining Analyses, Combining Optimizations",
)  # fmt: skip


def _region(types: Sequence[Type], branches: int) -> Type:
    selector = as_tensor(types[0], 0)
    if (len(types) - 1) % branches:
        raise InferError(f"{len(types) - 1} values do not make {branches} branches")
    if selector.dtype.kind == "bool" and branches != 2:
        raise InferError(f"a bool selects one of 2 branches, not of {branches}")
    width = (len(types) - 1) // branches
    merged = list(types[1 : 1 + width])
    for b in range(1, branches):
        for k in range(width):
            at = 1 + b * width + k
            if not compatible(merged[k], types[at]):
                raise InferError(f"value {k} is {an(merged[k])} in branch 0 and {an(types[at])} in branch {b}", operand=at)
            merged[k] = merge_types(merged[k], types[at])
    return TupleType(tuple(merged))


REGION: Op = Op(
    "region", "The values of the branch that the selector takes; only that branch is computed.",
    operands=(Operand("selector", type=BOOLS_OR_INTEGERS & SCALAR), Operand("values", variadic=True)),
    attrs=(Attr("branches", "int", 2, "how many branches share the values evenly", check=POSITIVE & at_most(1 << 16)),),
    infer=_region, foldable=False, example=examples.BRANCH, results=_TUPLE, source="C. Click; StableHLO if, case",
)  # fmt: skip

LOOP_BEGIN: Op = Op(
    "loop_begin", "The head of a loop: where its variables enter.",
    operands=(Operand("inits", variadic=True),), attrs=(Attr("loop", "int", summary="the loop's identity"),),
    infer=lambda types, loop: TupleType(tuple(types)),
    foldable=False, example=examples.LOOP, results=_TUPLE, source="C. Click; StableHLO while",
)  # fmt: skip


def _loop_end(types: Sequence[Type]) -> Type:
    begin = types[0]
    assert isinstance(begin, TupleType)
    if len(types) - 2 != len(begin.items):
        raise InferError(f"{len(types) - 2} next values for {len(begin.items)} loop variables")
    for k, (first, after) in enumerate(zip(begin.items, types[2:], strict=True)):
        if not compatible(first, after):
            raise InferError(f"loop variable {k} starts as {first} and its next value is {after}", operand=2 + k)
    return begin


LOOP_END: Op = Op(
    "loop_end", "The end of a loop: while the condition holds, iterate with the next values; then give the variables.",
    operands=(Operand("begin", type=TUPLE_VALUE), Operand("condition", type=BOOLS & SCALAR), Operand("nexts", variadic=True)),
    infer=_loop_end, foldable=False, example=examples.LOOP, results=_TUPLE, source="C. Click; StableHLO while",
)  # fmt: skip


def _fits(params: Sequence[Type], args: Sequence[Type], first: int) -> None:
    if len(args) > len(params):
        raise InferError(f"{len(args)} arguments for {len(params)} parameters")
    for k, (param, arg) in enumerate(zip(params, args, strict=False)):
        if not compatible(param, arg):
            raise InferError(f"argument {k} is {an(arg)}", operand=first + k, expected=str(param))


def _call(types: Sequence[Type], callee: str, signature: FunctionType) -> Type:
    _fits(signature.params, types, 0)
    if len(types) < len(signature.params):
        raise InferError(f"{len(types)} arguments for {len(signature.params)} parameters of {callee}")
    return TupleType(signature.results)


def _callee_problems(module: Module, node: Node) -> Iterator[Diagnostic]:
    callee, signature = callee_of(node), signature_of(node)
    if callee not in module:
        yield problem(node, f"no function '{callee}'", hint=suggest(callee, [f.name for f in module.functions]))
        return
    try:
        merge_types(signature, module[callee].type)
    except InferError as e:
        yield problem(node, f"is made for '{callee}' as {signature}: {e.message}", expected=str(module[callee].type))


_SIGNATURE = Attr("signature", "type", summary="the callee's type", check=FUNCTION_VALUE)

CALL: Op = Op(
    "call", "The results of a function of the module, as a tuple.",
    operands=(Operand("args", variadic=True),), attrs=(Attr("callee", "str"), _SIGNATURE),
    infer=_call, foldable=False, total=False, in_module=_callee_problems,
    example=examples.CALLS, results=_TUPLE, source="StableHLO call",
)  # fmt: skip


def _partial(types: Sequence[Type], callee: str, signature: FunctionType) -> Type:
    _fits(signature.params, types, 0)
    return FunctionType(signature.params[len(types) :], signature.results)


PARTIAL: Op = Op(
    "partial", "A function value: a function of the module with its leading arguments bound.",
    operands=(Operand("captured", variadic=True),), attrs=(Attr("callee", "str"), _SIGNATURE),
    infer=_partial, foldable=False, in_module=_callee_problems,
    example=examples.CLOSURES, results=(Result("function", type=FUNCTION_VALUE),), source="MindSpore Partial",
)  # fmt: skip


def _call_value(types: Sequence[Type]) -> Type:
    function = types[0]
    assert isinstance(function, FunctionType)
    _fits(function.params, types[1:], 1)
    if len(types) - 1 < len(function.params):
        raise InferError(f"{len(types) - 1} arguments for {len(function.params)} parameters")
    return TupleType(function.results)


CALL_VALUE: Op = Op(
    "call_value", "The results of calling a function value, as a tuple.",
    operands=(Operand("function", type=FUNCTION_VALUE), Operand("args", variadic=True)),
    infer=_call_value, foldable=False, total=False,
    example=examples.CLOSURES, results=_TUPLE, source="MindSpore CNode with a function value",
)  # fmt: skip

STRUCTURAL = tuple(declared(globals()).values())


def index_of(node: Node) -> int:
    """The index of a `param` among the parameters, of what a `proj` or `phi` takes among the values of its operand."""
    index: int = node.attrs[0]
    return index


def projections(users: Iterable[Node]) -> dict[int, Node]:
    """The results that `users` take of an operation with several, by their numbers, in the order of these."""
    return dict(sorted(((index_of(u), u) for u in users if u.op is PROJ), key=lambda item: item[0]))


def is_loop_variable(node: Node) -> bool:
    """Whether the node is a variable of a loop, as an iteration sees it."""
    return node.op is PHI and node.inputs[0].op is LOOP_BEGIN


def value_of(constant: Node) -> Literal:
    """The value of a `constant`."""
    value: Literal = constant.attrs[0]
    return value


def loop_of(begin: Node) -> int:
    """The identity of the loop that a `loop_begin` begins."""
    loop: int = begin.attrs[0]
    return loop


def callee_of(node: Node) -> str:
    """The name of the function that a `call` calls or a `partial` binds."""
    callee: str = node.attrs[0]
    return callee


def signature_of(node: Node) -> FunctionType:
    """The type of the function that a `call` calls or a `partial` binds."""
    signature: FunctionType = node.attrs[1]
    return signature


def branch_count(region: Node) -> int:
    """The number of branches of a `region`."""
    count: int = region.attrs[0]
    return count


def branch_width(region: Node) -> int:
    """The number of values of each branch of a `region`."""
    width: int = (len(region.inputs) - 1) // region.attrs[0]
    return width


def branches_of(region: Node) -> list[tuple[Node, ...]]:
    """The values of each branch of a `region`."""
    width = branch_width(region)
    return [region.inputs[1 + k * width : 1 + (k + 1) * width] for k in range(branch_count(region))]


def taken_branch(selector: Any, count: int) -> int:
    """The branch of `count` that a value of the selector takes: 0 for true; the last one for a number out of range."""
    if selector.dtype.kind == "b":
        return 0 if selector else 1
    number = int(selector)
    return number if 0 <= number < count else count - 1


def phi_choices(region: Node, k: int) -> tuple[Node, ...]:
    """Value k of each branch of a `region`: what its `phi` k chooses from."""
    return region.inputs[1 + k :: branch_width(region)]
