if __name__ != "deepx_graph.tui":
    raise ImportError("import deepx_graph.tui: this folder is a part of the deepx_graph package")
"""The floor of the terminal browser: a front end over `deepx_graph.session`, beside the command line.

Only here may textual be imported, and nothing imports this package but its own command.
"""
