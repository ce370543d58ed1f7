"""Faults found and made small: the pass that changed a result, the operation in it, the least program that shows it."""
