"""Matrix products: packed panels and a tile of sums in registers (`tile`), the loops around (`loops`), epilogues, and the kernel.

Small ones, for callers in machine code, are read where they lie (`small_emit`).
"""
