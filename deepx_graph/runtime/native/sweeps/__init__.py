"""Kernels of elementwise operations, broadcasts and reductions: sweeps over rows, planned (`nests`) and written (`nest_code`)."""
