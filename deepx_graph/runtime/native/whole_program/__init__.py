"""Whole loops and whole programs as one machine function each, which calls the kernels of their operations."""
