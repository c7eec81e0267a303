"""The small model and its exports, shared with the tests of inference."""

from tests.inference.conftest import folder, onnx_folder, openvino_folder

__all__ = ["folder", "onnx_folder", "openvino_folder"]
