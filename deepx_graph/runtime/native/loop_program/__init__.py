"""Loop programs as machine code."""
