"""Passes within one function: folding, value numbering, dead code, loops."""
