"""Our engines beside each other: counts, two programs that compute the same, what runs without a compiler."""
