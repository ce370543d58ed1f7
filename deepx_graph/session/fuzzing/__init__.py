"""Fuzzing: random programs held against the reference in every way that the library offers, in child processes."""
