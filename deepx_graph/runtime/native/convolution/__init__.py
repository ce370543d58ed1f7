"""Direct convolutions: the problem in one form, its plan and the choice of it, packing, the tile of sums, and the kernel."""
