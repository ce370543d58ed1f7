"""How the parts of the browser are laid out and coloured. Colours are those of the theme, so that every theme works."""

from __future__ import annotations

THEMES = ("textual-dark", "textual-light", "nord", "gruvbox", "solarized-light", "ansi-dark", "ansi-light")
"""Themes in the order in which the key goes through them."""

CSS = """
Screen { layout: vertical; }
#bar, #status { text-wrap: nowrap; text-overflow: ellipsis; }
#bar { height: 1; background: $boost; }
#body { height: 1fr; layout: horizontal; }
#centre { width: 1fr; height: 1fr; }
#views { height: 1fr; }
#status { height: 1; background: $boost; }
#outline, #inspector, #source { display: none; }
#outline.-on, #inspector.-on, #source.-on { display: block; }
#source { height: 35%; border-top: solid $primary-muted; }
.-wide #outline { width: 30; border-right: solid $primary-muted; }
.-wide #inspector { width: 44; border-left: solid $primary-muted; }
.-narrow #body { layout: vertical; }
.-narrow #outline { height: 30%; max-height: 30%; border-bottom: solid $primary-muted; }
.-narrow #inspector { height: 45%; max-height: 45%; border-top: solid $primary-muted; }
.-narrow #centre { width: 100%; }
View { layout: vertical; }
View Table { height: 1fr; }
View Static { height: auto; }
Toast { max-width: 60; max-height: 8; }
"""
