"""The reader of HLO text."""
