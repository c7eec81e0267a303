"""All attention of one image in a compact form, so that a page can turn every slider without asking again.

The answer is one binary document: four bytes of length, a JSON head, padding to a multiple of four, then

    scale  float32  (layers, heads, rows)            the largest weight of each row
    code   uint8    (layers, heads, rows, patches)   weight = scale × code / 255

Rows are the model's summary of the image first (its class token, or the mean over what it pools), then every patch as
the one that looks; only the row asked for where the whole is too large. What is missing to a sum of one went to the
class token and the registers.
"""

import json
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from vitkit.explanation import attention_maps, whose_attention
from vitkit.explanation.attention import Query
from vitkit.inference import Predictor
from vitkit.model import ViT


def grid(predictor: Predictor, model: ViT) -> tuple[int, int]:
    patch = model.config.patch_size
    return predictor.preprocess.size[0] // patch[0], predictor.preprocess.size[1] // patch[1]


def fits(predictor: Predictor, model: ViT, limit: int) -> bool:
    height, width = grid(predictor, model)
    return model.config.depth * model.config.heads * (height * width + 1) * (height * width + 4) <= limit


def pack(head: dict[str, Any], scale: np.ndarray, code: np.ndarray) -> bytes:
    text = json.dumps(head, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 4)  # typed arrays of a browser start at multiples of their size
    return struct.pack("<I", len(text)) + text + scale.astype("<f4").tobytes() + code.tobytes()


def normalized(predictor: Predictor, model: ViT, pixels: np.ndarray) -> torch.Tensor:
    weight = model.patch_embed.proj.weight
    batch = torch.from_numpy(pixels[None].copy()).permute(0, 3, 1, 2).to(weight.device)
    return predictor.preprocess.normalize(batch).to(weight.dtype)


@torch.inference_mode()
def encode(predictor: Predictor, model: ViT, pixels: np.ndarray, query: Query | None, whole: bool) -> dict[str, Any]:
    """`scale` and `code` as above, and the head's part about them."""
    images = normalized(predictor, model, pixels)
    rows = _all_rows(model, images, grid(predictor, model)) if whole else _one_row(model, images, query)
    scale = rows.max(axis=-1)
    code = np.rint(rows * (255 / np.maximum(scale, 1e-30))[..., None]).astype(np.uint8)
    head = {
        "grid": list(grid(predictor, model)),
        "layers": rows.shape[0],
        "heads": rows.shape[1],
        "rows": "all" if whole else 1,
        "summary": whose_attention(model),
    }
    return {"head": head, "scale": scale, "code": code}


def _all_rows(model: ViT, images: torch.Tensor, grid: Sequence[int]) -> np.ndarray:
    """(layers, heads, 1 + patches, patches)."""
    prefix = model.config.prefix
    patches = range(prefix, prefix + grid[0] * grid[1])
    weights = model.attention(images, queries=patches)[:, 0, :, :, prefix:]
    return np.concatenate([_one_row(model, images, None), weights.float().cpu().numpy()], axis=2)


def _one_row(model: ViT, images: torch.Tensor, query: Query | None) -> np.ndarray:
    maps = attention_maps(model, images, query=query)[:, 0]  # (layers, heads, gh, gw)
    return maps.flatten(-2)[:, :, None].float().cpu().numpy()
