"""Matrix products: packed panels and a tile of sums in registers (`parts`), the loops around (`loops`), and the kernel.

Small ones, for callers in machine code, are read as they lie (`small`).
"""
