"""Kernels as machine code: `loopnest`, `gemm`, `convolution` and `loops` write it, `llvm` compiles it, `call` enters it.

Only our own names and numbers ever stand in the IR: no text of an input file reaches it. Needs llvmlite; nothing here but
`llvm/width.py` is imported without it.
"""
