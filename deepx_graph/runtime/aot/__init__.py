"""Programs as object code with a C entry: `build` makes it, `entry` writes the entry, `header` describes it to C."""
