"""Exports models to ONNX Runtime and OpenVINO, in float32 or int8, with measured differences."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitkit.export.export import ExportResult as ExportResult
    from vitkit.export.export import export_model as export_model
    from vitkit.export.parity import Parity as Parity
    from vitkit.export.parity import Tolerance as Tolerance

# Imported at first use: running an exported model needs none of the export code.
_HOMES = {"ExportResult": "export", "export_model": "export", "Parity": "parity", "Tolerance": "parity"}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'vitkit.export' has no attribute {name!r}")
    return getattr(import_module(f"vitkit.export.{_HOMES[name]}"), name)
