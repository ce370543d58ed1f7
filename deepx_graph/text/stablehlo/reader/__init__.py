"""The reader of StableHLO."""
