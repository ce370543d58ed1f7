"""The printer of Relay."""
