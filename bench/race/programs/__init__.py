"""The programs, a module for each kind."""
