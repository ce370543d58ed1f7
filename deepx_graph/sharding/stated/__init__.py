"""What a text states of shardings, held against what they mean: collectives and rules."""
