"""MLIR bytecode: read into the same syntax tree as text, and written as StableHLO's portable artifacts.

Source: https://mlir.llvm.org/docs/BytecodeFormat/; https://github.com/openxla/stablehlo/blob/main/docs/bytecode.md.
"""
