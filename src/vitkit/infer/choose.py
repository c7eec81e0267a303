"""Which engine for how much work: by what preparing costs and what it saves (docs/guides/export.md)."""

from dataclasses import dataclass

import torch

from vitkit.data.preprocess import Preprocess
from vitkit.infer.engines import bf16_pays, compiled_path
from vitkit.model import ViT

_MACS_PER_S = 2e10  # multiply-adds of a plain processor, eager, in float32
_COMPILE_S = 60.0
_LOAD_S = 1.0
_SAVED = 0.1  # of the eager time, by compiling float32
_SAVED_BF16 = 0.5  # cautious: no machine with fast bf16 was measured


@dataclass(frozen=True)
class Choice:
    name: str
    why: str


def pick_device(device: str) -> str:
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


def choose(model: ViT, preprocess: Preprocess, images: int | None) -> Choice:
    """Compiled where it pays within this job; eager otherwise: it is ready at once."""
    if images is None:
        return Choice("eager", "ready at once; name another engine for a long job")
    device = model.patch_embed.proj.weight.device
    share = _SAVED_BF16 if bf16_pays(device) else _SAVED
    saved = share * images * _macs(model, preprocess) / _MACS_PER_S
    if images > 1 and saved > _LOAD_S and compiled_path(model, preprocess).exists():
        return Choice("compiled", f"compiled before, and {images:,} images are to come")
    if saved > 2 * _COMPILE_S:
        return Choice("compiled", f"{images:,} images are worth a compilation; the next start finds it done")
    return Choice("eager", f"{images:,} image{'s' * (images != 1)}, ready at once")


def _macs(model: ViT, preprocess: Preprocess) -> float:
    """Of one image, near enough: every weight of the encoder meets every token, and tokens meet each other."""
    c = model.config
    tokens = preprocess.size[0] * preprocess.size[1] / (c.patch_size[0] * c.patch_size[1]) + c.prefix
    weights = sum(p.numel() for p in model.blocks.parameters())
    return tokens * weights + 2 * c.depth * tokens**2 * c.heads * c.head_width
