"""A ViT as one graph that a runtime can run: traced by torch, written as ONNX. OpenVINO reads the same file.

The batch is free. The size is baked in, or free as well; then the learned table of positions must be resampled inside
the graph, and the resizing operators of runtimes differ from torch's antialiased one. But resampling is linear and
separable: R · table · Cᵀ, where R and C depend on the two grid lengths alone. The matrices of every length up to a
limit are computed here, by torch, and stored; the graph looks up two of them.

Shapes: b batch, c channels, (h, w) pixels, k classes, (gh, gw) grid of patches, d width.
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from vitkit.data.preprocess import Preprocess
from vitkit.export.metadata import ExportInfo
from vitkit.export.packages import need
from vitkit.model import ViT
from vitkit.model.config import Pair

_MOST_IMAGES = 65_535


class AnySize(ViT):
    """The same model and weights; a learned table is resampled by looked-up matrices, up to a grid of `limit`."""

    def __init__(self, model: ViT, limit: Pair) -> None:
        with torch.device("meta"):
            super().__init__(model.config)
        self.load_state_dict(model.state_dict(), assign=True)
        c = model.config
        self.rows: Tensor
        self.columns: Tensor
        for name, old, most in (("rows", c.grid[0], limit[0]), ("columns", c.grid[1], limit[1])):
            self.register_buffer(name, resampling_matrices(old, most, c.position_resample), persistent=False)

    def _positions(self, grid: Pair) -> tuple[Tensor | float, Tensor | float]:
        if self.pos_embed is None:
            return super()._positions(grid)
        class_position, table = super()._positions(self.config.grid)  # as trained, not resampled
        rows, columns = self.rows[grid[0] - 1, : grid[0]], self.columns[grid[1] - 1, : grid[1]]
        picture = rearrange(table, "(gh gw) d -> d gh gw", gh=self.config.grid[0])
        return class_position, rearrange(rows @ picture @ columns.mT, "d gh gw -> (gh gw) d")


def resampling_matrices(old: int, most: int, mode: str) -> Tensor:
    """(most, most, old): the first n rows of entry n - 1 resample `old` values to n, as torch does to unit vectors."""
    # Side by side, not as columns of width 1: there torch 2.13 returns the first row for every row.
    units = torch.eye(old)[None, None]
    matrices = torch.zeros(most, most, old)
    for n in range(1, most + 1):
        matrices[n - 1, :n] = F.interpolate(units, size=(n, old), mode=mode, antialias=True)[0, 0]
    return matrices


class FromPixels(nn.Module):
    """uint8 (b, h, w, c), resized and no more → probabilities, and the logits that they come from."""

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


def write_onnx(model: ViT, info: ExportInfo, path: Path) -> None:
    """Trace and write. The file holds the weights and `info`; above 2 GB, ONNX's limit, the weights stand beside it."""
    need("onnx", "ONNX export")
    need("onnxscript", "ONNX export")
    height, width = info.preprocess.size
    grid = info.largest[0] // info.patch_size[0], info.largest[1] // info.patch_size[1]
    vit = AnySize(model, grid) if info.any_size else model
    free: dict[int, object] = {0: torch.export.Dim("batch", min=1, max=_MOST_IMAGES)}
    sides = [
        patch * torch.export.Dim(name, min=2, max=most)
        for name, patch, most in zip(("grid_height", "grid_width"), info.patch_size, grid, strict=True)
    ]
    if info.takes == "pixels":
        traced: nn.Module = FromPixels(vit, info.preprocess).eval()
        example, where = torch.zeros(2, height, width, info.preprocess.channels, dtype=torch.uint8), (1, 2)
        outputs = ["probabilities", "logits"]
    else:
        traced, outputs = vit.eval(), ["logits"]
        example, where = torch.zeros(2, info.preprocess.channels, height, width), (2, 3)
    if info.any_size:
        free |= dict(zip(where, sides, strict=True))
    with quiet():
        program = torch.onnx.export(
            traced, (example,), dynamo=True, dynamic_shapes=(free,), input_names=[info.takes], output_names=outputs,
            verbose=False,
        )  # fmt: skip
    assert program is not None
    program.model.metadata_props.update(info.to_strings())
    program.save(path)


def write_openvino(model: ViT, info: ExportInfo, path: Path) -> None:
    """.xml and .bin, read from an ONNX file."""
    ov = need("openvino", "OpenVINO export")
    with TemporaryDirectory() as folder:
        onnx = Path(folder) / "model.onnx"
        write_onnx(model, info, onnx)
        save_openvino(ov.Core().read_model(onnx), info, path)  # convert_model would report its use over the network


def save_openvino(graph: Any, info: ExportInfo, path: Path) -> None:
    """Never over the files that the graph was read from: its weights are mapped from there. They stay float32, which
    is not OpenVINO's own choice."""
    for key, value in info.to_strings().items():
        graph.set_rt_info(value, key.split("."))
    need("openvino", "OpenVINO export").save_model(graph, path, compress_to_fp16=False)


WRITERS = {"onnx": write_onnx, "openvino": write_openvino}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """The exporter speaks of its own plans and deprecations, on every channel; its errors are exceptions."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
