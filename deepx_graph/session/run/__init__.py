"""Running from a front end: inputs, arrays in files, statistics of values, instrumented runs."""
