"""Programs that live as objects of other libraries in this process. None of those libraries is imported here."""
