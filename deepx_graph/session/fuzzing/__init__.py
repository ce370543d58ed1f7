"""Random programs held against the reference in every way that the library offers, in child processes of bounded time and memory."""
