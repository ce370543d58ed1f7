"""Matrix products (GEMM): packed panels, a tile of sums in registers and the loops around (`emit`), epilogues, and the kernel.

Small ones, for callers in machine code, are read where they lie (`small`).
"""
