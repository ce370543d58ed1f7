"""Elements and loops of operations whose declarations would be long with them, as `ops/vjp` has gradients."""
