"""Graphs as lists and maps of characters, for terminals."""
