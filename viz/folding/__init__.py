"""Folding a view to a readable size."""
