"""The printers of the deepx dialects."""
