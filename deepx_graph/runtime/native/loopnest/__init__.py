"""Kernels of elementwise operations, broadcasts and reductions: loop nests, planned (`nest`) and written (`emit`)."""
