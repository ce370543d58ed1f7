"""Verification: whether a module is well formed, and how a node is shown when it is not."""

from deepx_graph.verify.check import verify
from deepx_graph.verify.describe import describe, problem

__all__ = ["describe", "problem", "verify"]
