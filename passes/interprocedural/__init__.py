"""Passes over calls: inlining, specialisation, tail calls, references."""
