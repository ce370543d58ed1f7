"""Kernels as machine code, floor by floor: nests, text, maths, spelling, emit, target, cache, kernel.

A `Program` (see `runtime.kernels`) is cut into loop nests (`nests`), written as explicitly vectorised LLVM IR (`emit`), compiled
without a pass pipeline (`target`), kept on disk as object code (`cache`) and called (`kernel`). Only our own names and numbers ever
stand in the IR: no text of an input file reaches it. Needs llvmlite; nothing here but `width` is imported without it.
"""
