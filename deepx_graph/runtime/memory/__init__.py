"""Who owns which buffer: alias analysis, buffer assignment, donation, the pool."""
