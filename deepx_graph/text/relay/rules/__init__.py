"""What the operators of Relay mean, by family."""
