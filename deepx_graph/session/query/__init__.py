"""Finding nodes: the query language, what it knows of a node, selections, extraction."""
