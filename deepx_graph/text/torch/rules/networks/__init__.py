"""Operators of neural networks, and what torch.export writes for their derivatives."""
