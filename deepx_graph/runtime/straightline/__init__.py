"""Programs without control flow, called with little overhead."""
