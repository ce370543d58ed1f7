"""A race of whole programs against XLA: the same StableHLO text, the same inputs, in turns."""
