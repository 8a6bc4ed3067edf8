"""ONNX in, ONNX out."""
