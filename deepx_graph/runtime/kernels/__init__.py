"""Kernels of the numexpr engine, floor by floor: axes, lower_primitives, lower, vm, plan, memory, threads, execute.

`lower` turns a function of elementwise operations, broadcasts and reductions into a linear `Program` over registers; `plan`
cuts its space into cache blocks; `vm` hands groups of small arithmetic to numexpr's machine; `execute` runs it all.
No text is ever evaluated.
"""
