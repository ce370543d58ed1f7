"""Matrix products (GEMM) of any layout and size: the plan of loops, shares, panels, a tile of sums in registers, and the kernel,
with or without an epilogue."""
