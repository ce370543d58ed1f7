"""What the law of test_classes.py still lets pass. Entries are taken out as they are mended; none is added."""

from __future__ import annotations

CLASSES: dict[str, int] = {
    "deepx_graph.runtime.native.gemm.epilogue._EpilogueEmitter": 426,
    "deepx_graph.runtime.native.loopnest.emit.NestEmitter": 401,
    "deepx_graph.text.relay.reader.parser.RelayParser": 527,
    "deepx_graph.text.stablehlo.reader.parser.MlirParser": 566,
}
"""Lines of classes with all that they inherit of ours, where there are more than test_classes.py lets pass."""
