"""Measurements: our engines beside other array libraries (`python -m bench`), and what the library itself costs. See README.md."""
