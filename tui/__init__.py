if __name__ != "deepx_graph.tui":
    raise ImportError("import deepx_graph.tui: this folder is a part of the deepx_graph package")
