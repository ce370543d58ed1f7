"""Kernels of the numexpr engine, floor by floor: program, lower_primitives, cuts, lower, machine, staged, threads, execute.

`lower` turns a function of elementwise operations, views and reductions into a straight line of steps; `machine` hands small
arithmetic to numexpr; `staged` writes steps as functions of Python; `execute` runs them, large ones block by block.
"""
