"""Exports models to ONNX Runtime and OpenVINO, in float32 or int8, with measured differences."""
