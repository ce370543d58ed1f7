"""Direct convolutions: the problem in one layout (`problem`), how it is cut (`plan`), packing, the tile of sums, and the kernel."""
