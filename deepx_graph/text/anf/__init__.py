"""A-normal form: programs as S-expressions in which every step has a name and branches hold what only they compute. Reads back.

`continuations` writes the same programs in continuation-passing style, for looking. The forms: docs/anf.md.
"""

from deepx_graph.text.anf.printer import write
from deepx_graph.text.anf.reader import detect, read

__all__ = ["detect", "read", "write"]
