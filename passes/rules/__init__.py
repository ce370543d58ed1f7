"""Rewrite rules by subject; the first line of a rule is its equation."""
