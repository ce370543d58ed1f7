"""LLVM IR: the builder, math functions, primitives, the target, the cache of object code."""
