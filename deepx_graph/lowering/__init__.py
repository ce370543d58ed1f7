"""From functions with loops and branches to loop programs."""
