"""Reports: size and cost, kernels, memory, budgets, differences."""
