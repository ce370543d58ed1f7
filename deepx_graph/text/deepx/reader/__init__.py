"""The readers of the deepx dialects, and their lowering."""
