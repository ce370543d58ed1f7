"""Programs to measure with: models and graphs of any size."""
