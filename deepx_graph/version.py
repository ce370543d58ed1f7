"""The version of the library, which files that it writes name."""

__version__ = "0.1.0"
