"""Numerical analysis of a run: where values that are no finite numbers come from, and where digits are lost."""
