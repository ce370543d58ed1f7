"""Verification: whether a module is well formed."""

from deepx_graph.verify.check import verify

__all__ = ["verify"]
