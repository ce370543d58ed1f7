"""Running a module: specialise its types, schedule, plan the memory, compile kernels, execute.

`schedule` and `plan` are data that prints; `engines` turn nodes into kernels; `compile` puts them together as a callable.
"""
