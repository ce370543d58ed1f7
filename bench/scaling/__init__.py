"""Time and memory of the command line against the length of a program."""
