"""What can be known of a graph without changing it: scopes, loop nests, liveness, order, trip counts."""
