"""The reader of Relay: parser, type inference, lowering."""
