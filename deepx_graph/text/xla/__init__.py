"""The XLA dialect: one table of operations for the two syntaxes that it has, HLO text and StableHLO as MLIR text."""
