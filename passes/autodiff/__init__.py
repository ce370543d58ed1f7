"""Automatic differentiation: reverse mode through control flow and calls, and forward mode from the same rules."""
