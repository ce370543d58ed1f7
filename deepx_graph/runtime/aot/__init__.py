"""Programs as object code with a C entry: `build` makes it, `entry` writes the entry, `program` has it with its header."""
