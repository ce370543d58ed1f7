"""Rewrites of loops and branches: taken out, made one, cut into strips, or narrowed to what is read."""
