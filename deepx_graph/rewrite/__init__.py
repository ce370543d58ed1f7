"""Rewriting of graphs by rules: patterns, the engine that applies them, and what a pass is."""
