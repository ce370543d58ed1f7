"""What all languages share: options, formulas, nested regions."""
