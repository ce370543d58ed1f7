"""The views of the browser, the panes beside them, and the table of views."""
