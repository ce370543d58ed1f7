"""The view: what is shown of a graph, as plain data."""
