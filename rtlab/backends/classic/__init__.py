"""An engine as the documented passes of TensorRT 3 to 10 would leave it, predicted by rules: nothing is compiled."""
