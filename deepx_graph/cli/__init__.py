"""The command line: a thin front end over `deepx_graph.session`. The table of commands is in `main`.

The parser is built without importing numpy or anything that needs it; a command imports what it uses when it runs. Data goes to
standard output, everything said about it to standard error.
"""
