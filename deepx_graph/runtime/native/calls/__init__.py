"""How Python calls machine code: one function that looks at its arguments, makes results and runs kernels (`enter`, `entry`)."""
