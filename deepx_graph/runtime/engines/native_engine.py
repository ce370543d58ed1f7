"""The fast engine: kernels as machine code; what has none is run by its eval.

Needs llvmlite (the extra `deepx-graph[native]`). Values are those of eval up to rounding: no operation is reordered but the sums.
Convolutions and matrix products are imported where they are met: starting should cost little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from deepx_graph.analysis.kinds import kind_of
from deepx_graph.analysis.liveness import has_control
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.rebuild import alone
from deepx_graph.ir.scalar_expr import FUNCTION_PRICE, Apply, Expr, price
from deepx_graph.ir.structure import PARAM, PROJ, TUPLE
from deepx_graph.loops.program import LoopProgram
from deepx_graph.ops.contract.convolution import convolution
from deepx_graph.ops.contract.linear import dot_general
from deepx_graph.ops.data.fusion import fusion
from deepx_graph.rewrite.control.clusters import clustered
from deepx_graph.rewrite.control.outline import outlined
from deepx_graph.runtime.array_type import form_of
from deepx_graph.runtime.engines.arrangement import arranged, has_large_products
from deepx_graph.runtime.engines.base import Declined, EntryFn, KernelFn
from deepx_graph.runtime.engines.kernel_engine import CompiledKernel, KernelBuilder, KernelEngine, key_of
from deepx_graph.runtime.engines.whole_function import as_kernel, is_program, is_too_large
from deepx_graph.runtime.memory.pool import KEPT_BYTES, Allowance
from deepx_graph.runtime.native import asked, vectors
from deepx_graph.runtime.native.llvm.machine_code import collected
from deepx_graph.runtime.native.llvm.target import this_machine
from deepx_graph.runtime.native.loop_program.kernel import LoopKernel
from deepx_graph.runtime.native.loop_program.kernel import build as build_loops
from deepx_graph.runtime.native.machine_kernel import MachineKernel
from deepx_graph.runtime.native.trampoline import EntryMemory, entry
from deepx_graph.runtime.native.whole_program.calls import CalledFunctions, CallLimits
from deepx_graph.runtime.native.whole_program.kernel import build as build_whole_program
from deepx_graph.runtime.program import is_kernel
from deepx_graph.runtime.unit_code import one_kernel
from deepx_graph.types import as_tensor


class NativeEngine(KernelEngine):
    """Makes callables for nodes. `threads` is how many cores a kernel may use; None for all that the process has.

    `vector_bits` is how wide the vectors of its machine code are, where that was asked for when it was made. Raises UsageError for
    vectors that the machine has not.
    """

    name = "native"
    writes_loops = True

    def __init__(self, threads: int | None = None) -> None:
        super().__init__(threads)
        this_machine()
        self.vector_bits = asked()
        self._called, self._kept = CalledFunctions(), Allowance(KEPT_BYTES)
        self._apart: dict[Function, str] = {}
        """Why functions are not one kernel."""
        self._memories: dict[MachineKernel, EntryMemory] = {}
        """What the entries of kernels have in common."""

    # --- kernels of functions

    @property
    def builders(self) -> Sequence[KernelBuilder]:
        return self._convolution, self._whole_program, self._gemm, self._loop_program

    def _convolution(self, function: Function) -> CompiledKernel:
        if not any(n.op is convolution for n in function.nodes):
            raise Declined
        from deepx_graph.runtime.native.convolution import kernel as direct
        return direct.build(function, self.threads)

    def _whole_program(self, function: Function) -> CompiledKernel:
        if not has_control(function) and not is_program(function):
            raise Declined
        return build_whole_program(function, self.made, self._kept, self._called)

    def _gemm(self, function: Function) -> CompiledKernel:
        if not any(n.op is dot_general for n in function.nodes):
            raise Declined
        from deepx_graph.runtime.native.gemm import kernel as gemm
        return gemm.build_with_epilogue(function, self.threads)

    def _loop_program(self, function: Function) -> LoopKernel:
        kernel = _plain_loops(function, self.threads)
        if _is_faster_apart(function, kernel, self.tried):
            raise Declined("a convolution that is faster apart")
        return kernel

    def product(self, node: Node) -> CompiledKernel:
        from deepx_graph.runtime.native.gemm import kernel as gemm
        try:
            return gemm.build(node, self.threads) or super().product(node)
        except Declined:
            return self._loop_program(alone(node))

    def made(self, node: Node) -> MachineKernel | None:
        """The machine code of a node that reads its operands as they lie; made now."""
        if node.op is dot_general:
            from deepx_graph.runtime.native.gemm import kernel as gemm
            with vectors(self.vector_bits):
                kernel = gemm.build(node, self.threads)
            if kernel is not None:
                return kernel
        found = self._code(node)
        return found if found is not None and found.is_one_call else self._alone(node)

    @contextmanager
    def described(self) -> Iterator[None]:
        """Inside, the code of kernels is written, and neither compiled nor stored."""
        with vectors(self.vector_bits), collected(this_machine()):
            yield

    # --- kernels of nodes

    def with_calls(self, module: Module, max_depth: int, max_bytes: int) -> Module:
        return self._called.compiled(module, CallLimits(max_depth, max_bytes), self.arranged, self._required)

    def canonicalize(self, function: Function, *, apart: bool = False) -> Function:
        """The function as it runs best: with epilogues, and as one kernel, or else with loops as kernels. Kernels without control
        flow stay `apart` where that is asked for and each of them is machine code."""
        function = self.arranged(function)
        node = one_kernel(function)
        if (node is not None and self.entered(node) is not None) or (apart and self._stays_apart(function)):
            return function
        try:
            return as_kernel(function, self._required)
        except Declined as e:
            found = outlined(function, self.accepts)
            if not apart:
                found = clustered(found, self._is_machine_code, self.accepts)
            self._apart[found] = str(e)
            return found

    def arranged(self, function: Function) -> Function:
        """The function with operations brought together in the kernels that do them best."""
        with vectors(self.vector_bits):
            return arranged(function, self)

    def loops_of(self, body: Function) -> LoopKernel | None:
        """The kernel of a function as one loop program."""
        found = self._remembered(key_of(body), lambda: self._loop_program(body))
        return found if isinstance(found, LoopKernel) else None

    def why_apart(self, function: Function) -> str:
        """Why a function that it canonicalized is not one kernel."""
        return self._apart.get(function, "")

    def loop_program(self, node: Node) -> LoopProgram | None:
        """The loops of a node's kernel, alone or inside a kernel."""
        kernel = self._compiled(node) or self._built.get((alone, kind_of(node)))
        return kernel.program if isinstance(kernel, LoopKernel) else None

    def tried(self, build: Callable[[Function, int], CompiledKernel], body: Function) -> CompiledKernel | None:
        """The kernel that a builder has for a function; where it has none, another may be asked."""
        try:
            with vectors(self.vector_bits):
                kernel = build(body, self.threads)
        except Declined:
            return None
        return self._remembered(key_of(body), lambda: kernel)

    def _remembered(self, key: Any, build: Callable[[], CompiledKernel]) -> CompiledKernel | None:
        """As for every engine, with code for vectors of the engine's width, and memory that is kept as far as there is room."""
        def kept() -> CompiledKernel:
            kernel = build()
            if isinstance(kernel, MachineKernel):
                kernel.keep(self._kept)
            return kernel

        with vectors(self.vector_bits):
            return super()._remembered(key, kept)

    def _is_machine_code(self, node: Node) -> bool:
        """Whether a node may be part of a kernel that calls the machine code of others."""
        return is_kernel(node) and self.made(node) is not None

    def _stays_apart(self, function: Function) -> bool:
        """Whether a function has no control flow, and each of its kernels is machine code, or they are too many to be one: then
        none is made here."""
        if has_control(function):
            return False
        made = [n for n in function.nodes if n.inputs and not n.op.view and n.op not in (PROJ, TUPLE)]
        return is_too_large(function) or all(
            self.entered(n) is not None or isinstance(self._compiled(n), MachineKernel) for n in made)

    def accepts(self, body: Function) -> bool:
        """Whether there is a kernel for a loop, or for a convolution or a product and its epilogue; makes it."""
        return self._remembered(key_of(body), lambda: self.build(body)) is not None

    def _required(self, body: Function) -> None:
        """Makes the kernel of a function. Raises Declined where there is none."""
        if not self.accepts(body):
            raise Declined(self._declined[key_of(body)])

    def lowering(self, node: Node) -> str:
        """How the node's kernel runs; of one that is computed by its eval, also why, where that is not a matter of its size."""
        found = super().lowering(node)
        if found != "eval":
            return found
        reason = self._declined.get(key_of(node.attr("body")) if node.op is fusion else kind_of(node))
        if not reason and not (node.op.elementwise or node.op.element or node.op.loops):
            reason = "no element and no loops are declared"
        return f"{found}: {reason}" if reason else found

    def _own(self, node: Node) -> KernelFn | None:
        """A kernel for all that has elements or loops, but for what numpy does as well."""
        found, op = super()._own(node), node.op
        if found is not None or op.view or not (op.elementwise or op.element or op.loops) or is_of_instructions(node):
            return found
        return self._kernel(node, kind_of(node), lambda: self.build(alone(node)))

    def overwrites(self, node: Node) -> tuple[frozenset[int], ...]:
        """As for every engine; a kernel may be another one where it writes over operands."""
        kernel = self._compiled(node)
        giving = kernel.giving if isinstance(kernel, MachineKernel) else None
        return super().overwrites(node) if giving is None else giving.in_place

    # --- entries

    def entry(self, node: Node, params: Sequence[Node], over: Sequence[int | None]) -> EntryFn | None:
        """The machine function that runs the node's kernel; None where Python or numpy is not as it expects them."""
        code, operands = self.entered(node), [params.index(i) for i in node.inputs]
        if code is not None and any(given is not None for given in over):
            code = code.giving or code
        if code is None or not all(may.issuperset(k for k, p in enumerate(operands) if p == given)
                                   for given, may in zip(over, code.in_place, strict=False)):
            return None
        shared = self._memories.setdefault(code, EntryMemory(code))
        return entry(shared, [form_of(p.type) for p in params], operands, over or (None,) * len(code.results))

    def entered(self, node: Node) -> MachineKernel | None:
        """The machine code of a node that may be entered. An operation that has not been compiled, as numpy does it as well, may be
        so now."""
        code = self._code(node)
        if code is None and self._compiled(node) is None:
            code = self._alone(node)
        return code if code is not None and code.is_kept else None

    def _code(self, node: Node) -> MachineKernel | None:
        """The machine code of the node's kernel, which is made now."""
        kernel = None if node.op.view or self._own(node) is None else self._compiled(node)
        return kernel if isinstance(kernel, MachineKernel) else None

    def _alone(self, node: Node) -> LoopKernel | None:
        """The loop program of a single operation, also of one that others compute as well."""
        kernel = self._remembered((alone, kind_of(node)), lambda: self._loop_program(alone(node)))
        return kernel if isinstance(kernel, LoopKernel) else None


DIRECT_GAIN = 0.5
"""A convolution is apart from what its loops are fused with where its own kernel takes at most that part of their time."""


def _plain_loops(function: Function, threads: int) -> LoopKernel:
    """The kernel of a function as one loop program. Raises Declined."""
    if has_large_products(function) and not _is_of_lone_features(function):
        raise Declined
    return build_loops(function, threads)


def _is_of_lone_features(function: Function) -> bool:
    """Whether a function is a convolution of floats of which each group has one output feature: no matrix product makes these."""
    *params, node = function.nodes
    if node.op is not convolution or any(p.op is not PARAM for p in params):
        return False
    groups = node.attr("feature_group_count") * node.attr("batch_group_count")
    type = as_tensor(node.type)
    return bool(groups > 1 and type.dtype.kind == "float" and type.shape[node.attr("output_feature_dimension")] == groups)


def _is_faster_apart(function: Function, loops: LoopKernel,
                     tried: Callable[[Callable[[Function, int], CompiledKernel], Function], CompiledKernel | None]) -> bool:
    """Whether the direct kernel of a convolution takes much less time than the loops of a function in which it is."""
    from deepx_graph.runtime.native.convolution import kernel as direct
    found = [tried(direct.build, alone(n)) for n in function.nodes if n.op is convolution]
    return any(isinstance(own, MachineKernel) and own.nanoseconds < DIRECT_GAIN * loops.nanoseconds for own in found)


def is_of_instructions(node: Node) -> bool:
    """Whether an elementwise operation is single instructions, which all engines compute to the same bits: they round alike."""
    tree = node.op.kernel(*node.attrs) if node.op.elementwise and node.op.kernel is not None else None
    return tree is not None and not _has_functions(tree)


def _has_functions(tree: Expr) -> bool:
    return isinstance(tree, Apply) and (price(tree.primitive) >= FUNCTION_PRICE or any(map(_has_functions, tree.args)))
