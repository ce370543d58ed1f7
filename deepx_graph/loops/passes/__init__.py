"""Passes on loop programs: each gives a program of the same meaning, which `interpret` tells."""
