"""Explanations for `/v1/explain`: numbers per patch, or the map over what the model saw."""

import io
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from matplotlib import colormaps
from PIL import Image

from vitkit.errors import UsageError
from vitkit.explanation import Explanation, explain
from vitkit.explanation.attention import Query
from vitkit.model import ViT
from vitkit.serve.attention_api import normalized
from vitkit.serve.decoder_pool import Decoded
from vitkit.serve.errors import Refusal
from vitkit.serve.models import Served

T = TypeVar("T")

_COLOURS = "plasma"
_SHOWN = 448  # pixels: small inputs are enlarged at least to this


def read_query(text: str | None) -> Query | None:
    if text is None or text in ("class", "mean"):
        return text  # type: ignore[return-value]  # the pattern of the parameter allows no other word
    row, column = text.split(",")
    return int(row), int(column)


def asked_right(work: Callable[..., T], *arguments: Any, **more: Any) -> T:
    """What an explanation says of a layer, patch or method that the model has not, as the client's error."""
    try:
        return work(*arguments, **more)
    except UsageError as error:
        raise Refusal("cannot_explain", str(error)) from error


def explained(served: Served, model: ViT, decoded: Decoded, asked: dict[str, Any]) -> Explanation:
    target = None if asked["class"] is None else served.class_index(asked["class"])
    return asked_right(
        explain, model, normalized(served.predictor, model, decoded.pixels), asked["method"], layer=asked["layer"],
        head=asked["head"], query=read_query(asked["query"]), target=target,
    )  # fmt: skip


def as_json(served: Served, decoded: Decoded, found: Explanation) -> dict[str, Any]:
    return {
        "model": served.name,
        "method": found.method,
        "unit": found.unit,
        "class": {"index": int(found.targets[0]), "label": found.labels[0], "score": float(found.scores[0])},
        "map": [[float(value) for value in row] for row in found.maps[0]],
        **where(served, decoded),
    }


def where(served: Served, decoded: Decoded) -> dict[str, Any]:
    """The original's size, and what of it the model saw: left, top, right, bottom in its pixels."""
    box = served.predictor.preprocess.crop_box(decoded.original)
    return {"size": list(decoded.original), "region": [round(edge, 3) for edge in box]}


def as_png(decoded: Decoded, found: Explanation, opacity: float) -> bytes:
    """Negative values, which speak against the class, are shown as none."""
    pixels = decoded.pixels
    picture = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).convert("RGB")
    enlarge = max(1, -(-_SHOWN // max(picture.size)))
    size = (picture.width * enlarge, picture.height * enlarge)
    picture = picture.resize(size, Image.Resampling.BICUBIC)
    values = np.clip(found.maps[0], 0, None)
    smooth = Image.fromarray((values / (values.max() or 1.0)).astype(np.float32)).resize(size, Image.Resampling.BICUBIC)
    level = np.clip(np.asarray(smooth), 0, 1)
    heat = colormaps[_COLOURS](level)[..., :3] * 255
    share = (opacity * (0.25 + 0.75 * level))[..., None]
    mixed = np.asarray(picture, np.float32) * (1 - share) + heat * share
    file = io.BytesIO()
    Image.fromarray(np.rint(mixed).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()
