"""The views of the browser, a file each, and the table of them."""
