if __name__ != "deepx_graph.passes":
    raise ImportError("import deepx_graph.passes: this folder is a part of the deepx_graph package")
