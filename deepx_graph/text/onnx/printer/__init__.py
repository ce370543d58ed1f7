"""The printer of ONNX."""
