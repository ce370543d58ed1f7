"""Operators of the domains beside `ai.onnx`: `com.microsoft`, and `ai.onnx.ml` for classical machine learning."""
