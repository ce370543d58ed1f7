"""What all measurements stand on: processes, batches of calls, the limits of the machine, tables."""
