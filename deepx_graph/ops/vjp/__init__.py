"""Vector-Jacobian products: reverse accumulation, its transpose, and the rules that need a file of their own."""
