"""Whole loops as one kernel: element by element in registers (`elements`), or turn by turn over small tensors (`turns`)."""
