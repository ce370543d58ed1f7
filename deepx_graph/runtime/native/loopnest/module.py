"""From loop nests to LLVM IR: one function for each nest, one that adds up its partial results, one that runs everything.

`nest(table, low, high, scratch, chunk)` does rows low..high. Chunks of one nest may run at once: they write different rows, and
partial results of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepx_graph.runtime.kernels.program import KernelProgram
from deepx_graph.runtime.native.llvm.target import Target
from deepx_graph.runtime.native.loopnest.emit import NestEmitter
from deepx_graph.runtime.native.loopnest.nest import Nests
from deepx_graph.runtime.native.loopnest.table import Chunks, Layout


def module_text(program: KernelProgram, nests: Nests, layout: Layout, chunks: Sequence[Chunks], machine: Target) -> str:
    """The IR of a whole kernel. Raises NoMachineCode."""
    functions, declarations = [], dict[str, None]()
    for k, nest in enumerate(nests.nests):
        emitter = NestEmitter(program, nests, nest, layout, chunks[k], machine)
        functions.append(emitter.function(f"nest{k}"))
        functions.append(emitter.totals(f"total{k}"))
        functions.append(worker(k, nests.count(nest), chunks[k]))
        declarations |= emitter.t.declarations
    functions.append(_whole(nests))
    return "\n".join([*functions, *declarations, ""])


def worker(nest: int, rows: int, chunks: Chunks) -> str:
    """What each thread runs: it takes the next chunk from a counter until there are none."""
    return f"""define void @work{nest}(ptr %table, ptr %counter, ptr %scratch) nounwind {{
entry:
  br label %next
next:
  %chunk = atomicrmw add ptr %counter, i64 1 monotonic
  %some = icmp slt i64 %chunk, {chunks.count}
  br i1 %some, label %take, label %done
take:
  %from = mul i64 %chunk, {rows // chunks.step}
  %to = add i64 %from, {rows // chunks.step}
  %from.unit = udiv i64 %from, {chunks.count}
  %to.unit = udiv i64 %to, {chunks.count}
  %low = mul i64 %from.unit, {chunks.step}
  %end = mul i64 %to.unit, {chunks.step}
  %last = icmp eq i64 %chunk, {chunks.count - 1}
  %high = select i1 %last, i64 {rows}, i64 %end
  call void @nest{nest}(ptr %table, i64 %low, i64 %high, ptr %scratch, i64 %chunk)
  br label %next
done:
  ret void
}}"""


def _whole(nests: Nests) -> str:
    lines = ["define void @whole(ptr %table, ptr %scratch) nounwind {"]
    for k, nest in enumerate(nests.nests):
        lines.append(f"  call void @nest{k}(ptr %table, i64 0, i64 {nests.count(nest)}, ptr %scratch, i64 0)")
        lines.append(f"  call void @total{k}(ptr %table, ptr %scratch)")
    return "\n".join([*lines, "  ret void", "}"])
