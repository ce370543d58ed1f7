if __name__ != "deepx_graph.viz":
    raise ImportError("import deepx_graph.viz: this folder is a part of the deepx_graph package")

"""Pictures of graphs: a view of plain data, folded to a readable size, laid out, and written as DOT, SVG, PNG or HTML."""

from deepx_graph.viz.draw import Drawing, draw  # noqa: E402
from deepx_graph.viz.folding.fold import fold  # noqa: E402
from deepx_graph.viz.view.build import build_view  # noqa: E402  the guard above comes first
from deepx_graph.viz.view.model import Cluster, View, ViewEdge, ViewNode  # noqa: E402

__all__ = ["Cluster", "Drawing", "View", "ViewEdge", "ViewNode", "build_view", "draw", "fold"]
