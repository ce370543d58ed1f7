"""How quick pages, pictures and the terminal browser are."""
