"""TensorRT and ONNX Runtime at work on this machine, in child processes.

A child imports this package for every build, so nothing is imported here.
"""
