"""Numbers of texts, bounded before they are read: Python reads no decimal of thousands of digits, and knows other digits."""


def whole(text: str, digits: int = 18) -> int | None:
    """The number that decimal digits are; None for any other text, and for more digits than that."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= digits else None
