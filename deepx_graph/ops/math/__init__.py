"""Elementwise operations and generators: arithmetic, special functions, bits, complex numbers, random numbers."""
