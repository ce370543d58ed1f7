"""Translation validation: programs before and after a pass, ours or another compiler's, held against each other by their values."""
