"""The printer of HLO text."""
