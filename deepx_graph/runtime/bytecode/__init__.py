"""Programs as instructions: lowering a schedule, and the interpreter."""
