"""The cost model: what a kernel is expected to take, from counts, and constants that are shipped or measured on this machine."""
