"""Names that are hostile to pictures, and the texts of an SVG."""

from __future__ import annotations

from xml.etree import ElementTree

from deepx_graph.viz.picture import svg

HOSTILE = [
    "<<TABLE><TR><TD HREF='javascript:alert(1)'>x</TD></TR></TABLE>>",
    "<b>bold</b>",
    "<script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "]]><!-- --",
    "ends in a backslash\\",
    "\\N \\G \\l \\E",
    'quote " and \\" more',
    "__import__('os').system('id')",
    "&lt;b&gt; &#65; &amp;",
    "esc \x1b[31m bell \x07 nul \x00",
    "bidi \u202e\u2066 zero \u200b width",
    "line\nfeed\r\nreturn",
    "a:b:n {x|y} [red]",
    "URL=javascript:alert(1)",
    "\ud800 lone surrogate",
    "\ufffe not a character",
    "x" * 5000,
]


def texts(data: bytes) -> list[str]:
    """All text in an SVG, which must be one; nothing in it may run, link or refer."""
    root = ElementTree.fromstring(data)
    for element in root.iter():
        assert element.tag.removeprefix(f"{{{svg.NAMESPACE}}}") in svg.ELEMENTS
        style = element.attrib.pop("style", None)
        assert style is None or (element is root and style == svg.FITTING)
        assert set(element.attrib) <= svg.ATTRIBUTES
        assert all(svg.VALUE.fullmatch(v) and "url" not in v for v in element.attrib.values())
    return [t for t in root.itertext() if t.strip()]
