"""Matrix products in machine code on the pool's workers: no thread of BLAS is woken, and none spins afterwards.

An epilogue (elementwise steps, and reductions of whole rows) is done on each share of the result while that is in a cache: it is a
loop over rows that reads and writes the result in place, and takes a range of columns, too, where no row is reduced. Where it adds
the product, or a multiple of it, to an operand alone, tiles are added to that, which may lie in the result. A product that a
transpose alone reads is stored in that order, where it takes no longer. Operands that are conversions without rounding are read as
they were before.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from deepx_graph.analysis.batched_gemm import batched_gemm_of
from deepx_graph.ir import Function, Node
from deepx_graph.ir.peephole import primitive_of, splat_of
from deepx_graph.ir.structure import PARAM
from deepx_graph.ops.contract.linear import dot_general
from deepx_graph.rewrite.epilogue import WithEpilogue, split_epilogue
from deepx_graph.rewrite.exact_values import exact_source
from deepx_graph.runtime.array_type import ArrayType, form_of
from deepx_graph.runtime.cost.file import constants
from deepx_graph.runtime.cost.model import ForecastParts, memory_ns
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.native.gemm.emit import module_text, scratch_bytes
from deepx_graph.runtime.native.gemm.plan import LEFT, RESULT, RIGHT, GemmPlan, converting_plan, plan_of
from deepx_graph.runtime.native.gemm.shares import STRIP, ShareAxis, cuts, cuts_of_rows
from deepx_graph.runtime.native.joined import JoinedKernel, JoinedOperands
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.llvm.target import Target, this_machine
from deepx_graph.runtime.native.loop_program import epilogue
from deepx_graph.types import TensorType, as_tensor, nbytes

LEAST_WORK = 1 << 18
"""Multiplications of a product worth a kernel of its own with its epilogue, or operands that are transposed before."""

MOST_STRIPS = 2
"""Strips of the operand along the lanes for each of which rows of the other one are converted."""

LEAST_SIDE = 4
"""Products with fewer rows, columns or terms are bound by memory."""


def build(node: Node, threads: int) -> JoinedKernel | None:
    """The kernel of a `dot_general` of floats; None for other types."""
    plan = plan_of(node)
    return None if plan is None else kernel_of(plan, form_of(node.type).shape, this_machine(), threads)


@lru_cache(maxsize=64)
def kernel_of(plan: GemmPlan, shape: tuple[int, ...], machine: Target, threads: int,
              params: tuple[int, ...] = (LEFT, RIGHT)) -> JoinedKernel:
    """The kernel of a product. Its operands are the arguments `params`; a third one is added to the product."""
    over = _over(plan, params, params[RESULT:])
    return _made(JoinedOperands(params), plan, cuts(plan), ArrayType(plan.dtype, shape), threads, over)


def _made(joined: JoinedOperands, plan: GemmPlan, found: Sequence[ShareAxis], result: ArrayType, threads: int,
          over: frozenset[int]) -> JoinedKernel:
    """The kernel of a product of such operands in such shares, which may be written over those arguments."""
    product = machine_code.functions(module_text(plan, found, joined), ["product"], joined)["product"]
    threads = min(threads, math.prod(cut.count for cut in found))
    alone = plan.nanoseconds + (joined.then.nanoseconds if joined.then else 0.0)
    made = JoinedKernel(joined, result, [(product, threads if found or joined.then else 0)],
                        scratch_bytes=scratch_bytes(plan, found),
                        predicted=ForecastParts(constants().native_call_ns, alone / threads),
                        lowering="machine code, with epilogue" if joined.then else "machine code")
    made.nanoseconds, made.in_place = alone, (over,)
    return made


def _over(plan: GemmPlan, params: Sequence[int], addend: Sequence[int] = ()) -> frozenset[int]:
    """The arguments over which a product may be written, of `params` in the order in which it takes them: what it is added to, and
    the left operand perhaps; none that it reads twice."""
    return frozenset(k for k in (*params[:plan.is_over_left], *addend) if params.count(k) == 1)


def build_with_epilogue(function: Function, threads: int) -> JoinedKernel:
    """The kernel of a function of one product and its epilogue. Raises Declined."""
    parts = split_epilogue(function, dot_general)
    if parts is None:
        raise Declined("more than a product and its epilogue")
    is_alone = not any(parts.converted) and parts.result is parts.node
    if is_alone if parts.epilogue is None else parts.epilogue.results[0].type != parts.result.type:
        raise Declined("no epilogue in place")
    plan = _plan_of_parts(parts)
    if plan is None:
        raise Declined("no product in machine code")
    scale = 1.0 if parts.epilogue is None else _scale_of_sum(parts.epilogue)
    if scale is not None and (scale == 1.0 or not plan.pairs) and all(i.op is PARAM for i in parts.operands):
        params = (*(function.params.index(i) for i in parts.operands), *parts.params)
        return kernel_of(replace(plan, scale=scale), form_of(parts.result.type).shape, this_machine(), threads, params)
    then = None if parts.epilogue is None else epilogue.build(parts.epilogue, _rows_apart(parts))
    found = cuts(plan) if then is None else cuts_of_rows(plan, then.columns, whole_rows=then.needs_rows)
    if found is None:
        raise Declined("the results of a share are no rows")
    joined = JoinedOperands.of(function, parts, then)
    over = _over(plan, joined.params) if parts.operands[LEFT].op is PARAM else frozenset[int]()
    return _made(joined, plan, found, form_of(parts.result.type), threads, over)


def _scale_of_sum(function: Function) -> float | None:
    """What the product is multiplied by in an epilogue that adds it to another operand, as a step of gradient descent does, element
    by element; None where that is not what it does."""
    (last,), (product, *others) = function.results, function.params
    added = primitive_of(last.op, last.attrs)
    if added not in ("add", "sub") or [p.type for p in others] != [product.type] or others[0] not in last.inputs:
        return None
    at = last.inputs.index(others[0])
    factor = _factor(last.inputs[1 - at], product)
    if factor is None or added == "add":
        return factor
    return None if at else -factor


def _factor(node: Node, product: Node) -> float | None:
    """The constant by which the product is multiplied there: 1 where it is itself."""
    if node is product:
        return 1.0
    if primitive_of(node.op, node.attrs) != "mul" or product not in node.inputs:
        return None
    factor = splat_of(node.inputs[1 - node.inputs.index(product)])
    return None if factor is None else float(factor)


def _plan_of_parts(parts: WithEpilogue) -> GemmPlan | None:
    """The plan of a product that is worth a kernel with what is around it."""
    order = parts.order
    if any(parts.converted):
        plan = converted_plan(parts.node, order)
        return plan if plan is not None and tuple(s is not None for s in plan.sources) == parts.converted else None
    plan, plain = (plan_of(parts.node, o) for o in (order, ()))
    if plan is None or plain is None or plan.work < LEAST_WORK or (not plan.is_small and _is_thin(parts.node)):
        return None
    copying = memory_ns(constants(), 2 * nbytes(parts.node.type), 1) if order else 0.0
    return plan if plan.nanoseconds <= plain.nanoseconds + copying and not (order and plan.is_picked) else None


def converted_plan(node: Node, order: Sequence[int] = ()) -> GemmPlan | None:
    """The plan of a product that converts operands while it packs them, from what they are conversions of; None where there is
    none, or it would not pay. Floats that would be converted again for many strips are not."""
    types = [t for t in (node.type, *(exact_source(i).type for i in node.inputs)) if isinstance(t, TensorType) and t.is_static]
    if len(types) != 3 or types[0].dtype.np is None:
        return None
    dtype, operands = types[0].dtype.np, types[1:]
    plan = converting_plan(dtype, operands, node.attrs, order)
    if plan is None or plan.pairs or plan.lane.size <= MOST_STRIPS * STRIP * plan.tile.vectors * plan.lanes:
        return plan
    operands[plan.spread] = as_tensor(node.inputs[plan.spread].type)
    return converting_plan(dtype, operands, node.attrs, order)


def _is_thin(node: Node) -> bool:
    """Whether a product is bound by memory, whatever its size."""
    gemm = batched_gemm_of(node)
    return gemm is None or min(gemm.rows, gemm.columns, gemm.depth) < LEAST_SIDE


def _rows_apart(parts: WithEpilogue) -> int:
    """The axes of the result that number its rows, those of size 1 not counted: all but the last ones that are of one operand, the
    right one where the result is not transposed."""
    node, dims = parts.node, form_of(parts.node.type).shape
    batch, taken = (len(node.attr(f"rhs_{kind}_dimensions")) for kind in ("batching", "contracting"))
    right = len(dims) - len(form_of(node.inputs[1].type).shape) + batch + taken
    sides = [(RIGHT if k >= right else LEFT if k >= batch else -1) for k in parts.order or range(len(dims)) if dims[k] != 1]
    last = sides[-1] if parts.order and sides else RIGHT
    return len(sides) - len(list(itertools.takewhile(last.__eq__, reversed(sides))))


def transposed_before(node: Node) -> tuple[bool, ...]:
    """Which operands of a product are transposed by a kernel of their own before it: those of which neither rows nor columns of the
    matrices lie along memory, unless small ones are read where they are and fill registers. What reads a matrix once is bound by
    memory: a copy pays for itself where each element would be a load, and a line of the cache, of its own."""
    gemm, plan = batched_gemm_of(node), plan_of(node)
    if gemm is None or plan is None or plan.work < LEAST_WORK or (plan.is_small and not plan.is_narrow):
        return (False, False)
    if _is_thin(node) and not plan.is_scalar:
        return (False, False)
    batches = node.attr("lhs_batching_dimensions"), node.attr("rhs_batching_dimensions")
    shapes = [form_of(i.type).shape for i in node.inputs]
    last = [max((k for k, n in enumerate(shape) if n > 1), default=-1) for shape in shapes]
    return tuple(copies or k in batch for copies, k, batch in zip(gemm.reorders, last, batches, strict=True))
