if __name__ != "deepx_graph.viz":
    raise ImportError("import deepx_graph.viz: this folder is a part of the deepx_graph package")
