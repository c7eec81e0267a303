"""The model in other runtimes: ONNX, OpenVINO, int8, with a measured difference."""
