"""The norm of a model: LayerNorm as in the paper, or RMSNorm, which does not subtract the mean and has no bias."""

from torch import nn

from vitkit.model.config import ViTConfig


def make_norm(config: ViTConfig, width: int | None = None) -> nn.Module:
    """Return a norm over the last axis, of the model's width by default."""
    kind = nn.RMSNorm if config.norm == "rms" else nn.LayerNorm
    return kind(config.width if width is None else width, eps=config.norm_eps)
