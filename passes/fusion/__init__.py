"""Fusion: which nodes form one kernel, and why others do not."""
