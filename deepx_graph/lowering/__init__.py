"""What functions with loops and branches become: flat code with jumps, and loop programs."""
