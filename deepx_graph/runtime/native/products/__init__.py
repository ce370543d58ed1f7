"""Matrix products: packed panels and a tile of sums in registers (`parts`), the loops around (`loops`), and the kernel."""
