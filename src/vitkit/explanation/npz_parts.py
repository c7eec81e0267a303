"""Writes an .npz file whose rows are computed piece by piece: only one piece is in memory at a time."""

import os
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.lib import format as npy


class NpzParts:
    """Keeps every piece in a folder next to the file until `finish` joins them. A killed process leaves the pieces."""

    def __init__(self, path: Path) -> None:
        self.path, self.folder = path, path.with_name(f".{path.name}.parts")
        self.parts: list[Path] = []
        shutil.rmtree(self.folder, ignore_errors=True)  # of a killed process

    def append(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Write a piece. All pieces have the same arrays, which are joined along their first axis."""
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.folder / f"{len(self.parts):06}.npz"
        np.savez(part, **arrays)  # type: ignore[arg-type]  # numpy's stub takes the names for its own options
        self.parts.append(part)

    def finish(self, others: Mapping[str, np.ndarray]) -> None:
        """Write the file with the joined arrays and `others`, and remove the pieces."""
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        try:
            with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
                for name in np.load(self.parts[0]).files:
                    self._join(archive, name)
                for name, values in others.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                        npy.write_array(file, np.asanyarray(values))
            os.replace(temporary, self.path)
        finally:
            temporary.unlink(missing_ok=True)
        shutil.rmtree(self.folder)

    def _join(self, archive: zipfile.ZipFile, name: str) -> None:
        rows, shape, dtypes = 0, (0,), []
        for part in self.parts:
            values = np.load(part)[name]
            rows, shape = rows + len(values), values.shape
            dtypes.append(values.dtype)  # texts are as wide as the longest of their piece
        dtype = np.result_type(*dtypes)
        header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": (rows, *shape[1:])}
        with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
            npy.write_array_header_2_0(file, header)
            for part in self.parts:
                file.write(np.ascontiguousarray(np.load(part)[name], dtype).tobytes())
