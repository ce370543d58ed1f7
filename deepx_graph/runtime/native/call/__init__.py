"""How Python calls machine code: a trampoline that checks its arguments, makes results and runs kernels."""
