"""Traces a ViT with torch and writes it as an ONNX graph. OpenVINO reads the same graph.

The batch size is dynamic. The image size is fixed, or dynamic as well; then the learned position table must be
resampled inside the graph, and the resize operators of runtimes differ from torch's antialiased one. But resampling is
linear and separable: R · table · Cᵀ, where R and C depend only on the two grid lengths. torch computes the matrices of
every length up to a limit here, and the graph looks up two of them.

Shapes: b batch, c channels, (h, w) pixels, k classes, (gh, gw) grid of patches, d width.
"""

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from vitkit.data.preprocess import Preprocess
from vitkit.errors import WeightsError
from vitkit.export.metadata import ExportMetadata
from vitkit.model import ViT
from vitkit.model.config import Pair
from vitkit.runtime.packages import require_package

MAX_BATCH_SIZE = 65_535
_converter_lock = threading.RLock()


class DynamicSizeViT(ViT):
    """A ViT with the weights of `model` that resamples learned positions by matrices, up to a grid of `max_grid`."""

    def __init__(self, model: ViT, max_grid: Pair) -> None:
        with torch.device("meta"):
            super().__init__(model.config)
        self.load_state_dict(model.state_dict(), assign=True)
        c = model.config
        self.rows: Tensor
        self.columns: Tensor
        for name, old, longest in (("rows", c.grid[0], max_grid[0]), ("columns", c.grid[1], max_grid[1])):
            matrices = resampling_matrices(old, longest, c.position_resample, c.position_antialias, c.position_offset)
            self.register_buffer(name, matrices, persistent=False)

    def _positions(self, grid: Pair) -> tuple[Tensor | float, Tensor | float]:
        if self.pos_embed is None:
            return super()._positions(grid)
        class_position, table = super()._positions(self.config.grid)  # as trained, not resampled
        rows, columns = self.rows[grid[0] - 1, : grid[0]], self.columns[grid[1] - 1, : grid[1]]
        planes = rearrange(table, "(gh gw) d -> d gh gw", gh=self.config.grid[0])
        return class_position, rearrange(rows @ planes @ columns.mT, "d gh gw -> (gh gw) d")


def resampling_matrices(old: int, longest: int, mode: str, antialias: bool = True, offset: float = 0.0) -> Tensor:
    """Return (longest, longest, old): the first n rows of entry n - 1 resample `old` values to n, as torch does."""
    # One image of all unit vectors: for images of width 1, torch 2.13 returns the first row for every row.
    units = torch.eye(old)[None, None]
    matrices = torch.zeros(longest, longest, old)
    for n in range(1, longest + 1):
        how = {"scale_factor": ((n + offset) / old, 1.0)} if offset and n != old else {"size": (n, old)}
        matrices[n - 1, :n] = F.interpolate(units, mode=mode, antialias=antialias, **how)[0, 0]
    return matrices


class WithPreprocessing(nn.Module):
    """Maps resized pixels, uint8 (b, h, w, c), to probabilities and logits."""

    def __init__(self, model: ViT, preprocess: Preprocess) -> None:
        super().__init__()
        self.model = model
        self.mean: Tensor
        self.std: Tensor
        for name, values in (("mean", preprocess.mean), ("std", preprocess.std)):
            self.register_buffer(name, torch.tensor(values)[:, None, None])

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        images = rearrange(pixels, "b h w c -> b c h w").float().div(255).sub(self.mean).div(self.std)
        logits = self.model(images)
        return logits.softmax(dim=-1), logits


def write_onnx(model: ViT, metadata: ExportMetadata, path: Path) -> None:
    """Trace the model and write graph, weights and metadata. Weights above ONNX's 2 GB limit get their own file."""
    require_package("onnx", "ONNX export")
    require_package("onnxscript", "ONNX export")
    height, width = metadata.preprocess.size
    grid = metadata.max_size[0] // metadata.patch_size[0], metadata.max_size[1] // metadata.patch_size[1]
    if metadata.dynamic_size and type(model) is not ViT:
        raise WeightsError(f"a {type(model).__name__} has a fixed image size in ONNX: remove dynamic_size")
    vit = DynamicSizeViT(model, grid) if metadata.dynamic_size else model
    dynamic: dict[int, object] = {0: torch.export.Dim("batch", min=1, max=MAX_BATCH_SIZE)}
    sides = [
        patch * torch.export.Dim(name, min=2, max=longest)
        for name, patch, longest in zip(("grid_height", "grid_width"), metadata.patch_size, grid, strict=True)
    ]
    if metadata.input_kind == "pixels":
        traced: nn.Module = WithPreprocessing(vit, metadata.preprocess).eval()
        example, axes = torch.zeros(2, height, width, metadata.preprocess.channels, dtype=torch.uint8), (1, 2)
        outputs = ["probabilities", "logits"]
    else:
        traced, outputs = vit.eval(), ["logits"]
        example, axes = torch.zeros(2, metadata.preprocess.channels, height, width), (2, 3)
    if metadata.dynamic_size:
        dynamic |= dict(zip(axes, sides, strict=True))
    with ignore_warnings():
        program = torch.onnx.export(
            traced, (example,), dynamo=True, dynamic_shapes=(dynamic,), input_names=[metadata.input_kind],
            output_names=outputs, verbose=False,
        )  # fmt: skip
    assert program is not None
    program.model.metadata_props.update(metadata.to_strings())
    program.save(path)


def write_openvino(model: ViT, metadata: ExportMetadata, path: Path) -> None:
    """Write .xml and .bin files, converted from a temporary ONNX file."""
    ov = require_package("openvino", "OpenVINO export")
    with TemporaryDirectory() as folder:
        onnx = Path(folder) / "model.onnx"
        write_onnx(model, metadata, onnx)
        save_openvino(ov.Core().read_model(onnx), metadata, path)  # convert_model would send usage statistics


def save_openvino(graph: Any, metadata: ExportMetadata, path: Path) -> None:
    """Write the graph in float32. `path` must differ from the file that the graph was read from, which is mapped."""
    for key, value in metadata.to_strings().items():
        graph.set_rt_info(value, key.split("."))
    require_package("openvino", "OpenVINO export").save_model(graph, path, compress_to_fp16=False)


WRITERS = {"onnx": write_onnx, "openvino": write_openvino}


@contextmanager
def ignore_warnings() -> Iterator[None]:
    """Ignore Python warnings within the context: converters warn about their own deprecations.

    Filters belong to the process, so one thread at a time may change them.
    """
    with _converter_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
