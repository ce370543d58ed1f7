"""The printer of StableHLO."""
