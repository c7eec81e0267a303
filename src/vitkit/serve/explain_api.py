"""Payloads of `/v1/attention` and `/v1/explain`.

`/v1/attention` sends the attention of one image in a compact form, so the page needs no request per slider position.
The response is one binary document: four bytes of length, a JSON header, padding to a multiple of four, then

    scale  float32  (layers, heads, rows)            the largest weight of each row
    code   uint8    (layers, heads, rows, patches)   weight = scale × code / 255

The first row is the model's summary of the image: its class token, or the mean over the tokens it pools. Every patch
follows as the query. If that is too large, only the requested row is sent. A row sums to one minus the weight of the
class token and the registers.
"""

import io
import json
import struct
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image

from vitkit.errors import UsageError
from vitkit.explanation import Explanation, attention_maps, describe_query, explain
from vitkit.explanation.attention import Query
from vitkit.explanation.heatmap import overlay
from vitkit.explanation.methods import parse_query
from vitkit.explanation.relevance import gradient_memory
from vitkit.model import ViT
from vitkit.serve.decoder_pool import Decoded
from vitkit.serve.errors import APIError
from vitkit.serve.model_registry import ServedModel

T = TypeVar("T")

_MIN_PNG_SIDE = 448  # pixels: smaller inputs are enlarged


def call(work: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Call `work`; report its usage errors, such as a layer that does not exist, as errors of the client."""
    try:
        return work(*arguments, **options)
    except UsageError as error:
        raise APIError("cannot_explain", str(error)) from error


def location(served: ServedModel, decoded: Decoded) -> dict[str, Any]:
    """Return the size of the original and the region the model saw: left, top, right, bottom in its pixels."""
    box = served.predictor.preprocess.crop_box(decoded.original_size)
    return {"size": list(decoded.original_size), "region": [round(edge, 3) for edge in box]}


def patch_grid(served: ServedModel, model: ViT) -> tuple[int, int]:
    (height, width), patch = served.predictor.preprocess.size, model.config.patch_size
    return height // patch[0], width // patch[1]


def all_rows_fit(served: ServedModel, model: ViT, max_bytes: int) -> bool:
    height, width = patch_grid(served, model)
    return model.config.depth * model.config.heads * (height * width + 1) * (height * width + 4) <= max_bytes


@torch.inference_mode()
def attention(
    served: ServedModel, model: ViT, pixels: np.ndarray, query: Query | None, all_rows: bool
) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Return the fields of the header that describe the attention, then `scale` and `code`."""
    images, grid = _model_input(served, model, pixels), patch_grid(served, model)
    maps = attention_maps(model, images, query=query)[:, 0]  # (layers, heads, rows, columns)
    rows = maps.flatten(-2)[:, :, None].float().cpu().numpy()
    if all_rows:
        prefix = model.config.prefix
        patches = model.attention(images, queries=range(prefix, prefix + grid[0] * grid[1]))
        rows = np.concatenate([rows, patches[:, 0, :, :, prefix:].float().cpu().numpy()], axis=2)
    scale = rows.max(axis=-1)
    code = np.rint(rows * (255 / np.maximum(scale, 1e-30))[..., None]).astype(np.uint8)
    header = {"grid": list(grid), "layers": rows.shape[0], "heads": rows.shape[1]}
    return header | {"rows": "all" if all_rows else 1, "summary": describe_query(model)}, scale, code


def pack(header: dict[str, Any], scale: np.ndarray, code: np.ndarray) -> bytes:
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 4)  # typed arrays of a browser start at multiples of their size
    return struct.pack("<I", len(text)) + text + scale.astype("<f4").tobytes() + code.tobytes()


def check_memory(served: ServedModel, model: ViT, method: str, limit: int) -> None:
    """Raise if the gradients of the method would need more memory than `limit`."""
    needed = gradient_memory(model, served.predictor.preprocess.size) if method in ("gradient", "attribution") else 0
    if needed > limit:
        raise APIError(
            "cannot_explain",
            f"{method} maps of {served.name} need about {needed / 2**30:.1f} GiB, more than the limit of "
            f"{limit / 2**30:.1f} GiB: use attention or rollout",
        )


def explanation(served: ServedModel, model: ViT, decoded: Decoded, options: dict[str, Any]) -> Explanation:
    target = None if options["class"] is None else served.class_index(options["class"])
    return call(
        explain, model, _model_input(served, model, decoded.pixels), options["method"], layer=options["layer"],
        head=options["head"], query=parse_query(options["query"]), target=target,
    )  # fmt: skip


def to_json(served: ServedModel, decoded: Decoded, explained: Explanation) -> dict[str, Any]:
    index, label, score = int(explained.targets[0]), explained.labels[0], float(explained.scores[0])
    return {
        "model": served.name,
        "method": explained.method,
        "unit": explained.unit,
        "class": {"index": index, "label": label, "score": score},
        "map": [[float(value) for value in row] for row in explained.maps[0]],
        **location(served, decoded),
    }


def to_png(decoded: Decoded, explained: Explanation, opacity: float) -> bytes:
    """Draw the map over the input of the model."""
    file = io.BytesIO()
    Image.fromarray(overlay(decoded.pixels, explained.maps[0], opacity, min_side=_MIN_PNG_SIDE)).save(file, "PNG")
    return file.getvalue()


def _model_input(served: ServedModel, model: ViT, pixels: np.ndarray) -> torch.Tensor:
    weight = model.patch_embed.proj.weight
    batch = torch.from_numpy(pixels[None].copy()).permute(0, 3, 1, 2).to(weight.device)
    return served.predictor.preprocess.normalize(batch).to(weight.dtype)
