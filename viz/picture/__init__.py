"""Pictures: DOT, SVG, layout, themes, legends."""
