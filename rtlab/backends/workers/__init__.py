"""TensorRT and ONNX Runtime in child processes, each of which imports this package: nothing is imported here."""
