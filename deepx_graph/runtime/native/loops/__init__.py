"""Whole loops as one kernel: element by element in registers (`per_element`), or iteration by iteration
(`small_body`, over small tensors).
"""
