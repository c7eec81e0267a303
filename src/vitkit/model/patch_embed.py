"""Image → patch tokens: the first half of eq. 1, xₚ¹E; xₚ²E; …; xₚᴺE.

Shapes: b batch, c channels, (gh, gw) the grid of patches, (ph, pw) pixels of a patch, n = gh·gw, d width.
"""

import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vitkit.model.config import Pair, ViTConfig
from vitkit.model.norm import make_norm


def patchify(images: Float[Tensor, "b c h w"], patch: Pair) -> Float[Tensor, "b n p"]:
    """Return one flattened patch per row: row by row over the grid, channel by channel inside.

    Pixels beyond the last complete patch are left out, as a convolution does.
    A plain `reshape(b, n, p)` would cut the image into runs of consecutive pixels instead. The grid axes have to be
    moved outside of the pixel axes first, as the pattern below does.
    """
    images = images[:, :, : images.shape[2] // patch[0] * patch[0], : images.shape[3] // patch[1] * patch[1]]
    return rearrange(images, "b c (gh ph) (gw pw) -> b (gh gw) (c ph pw)", ph=patch[0], pw=patch[1])


class PatchEmbed(nn.Module):
    """Multiply every patch by the same matrix E.

    A convolution whose stride is its kernel size *is* that product, so both forms share one weight, and a checkpoint
    fits either. With a stem of k layers, the patches are cut from its feature map, which is 2ᵏ times smaller.
    """

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.stem = _conv_stem(config.in_channels, config.stem)
        shrink = 2 ** len(config.stem)
        self.patch = (config.patch_size[0] // shrink, config.patch_size[1] // shrink)
        channels = config.stem[-1] if config.stem else config.in_channels
        self.proj = nn.Conv2d(channels, config.width, kernel_size=self.patch, stride=self.patch)
        self.norm = make_norm(config) if config.patch_norm else nn.Identity()
        self.as_linear = config.patch_embed == "linear"

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n d"]:
        features = self.stem(images)
        if self.as_linear:
            return self.norm(F.linear(patchify(features, self.patch), self.proj.weight.flatten(1), self.proj.bias))
        return self.norm(rearrange(self.proj(features), "b d gh gw -> b (gh gw) d"))


def _conv_stem(in_channels: int, channels: tuple[int, ...]) -> nn.Sequential:
    """Strided 3×3 convolutions (Xiao et al. 2021), without batch norm, so that images do not affect each other."""
    layers: list[nn.Module] = []
    for before, after in zip((in_channels, *channels), channels, strict=False):
        layers += [nn.Conv2d(before, after, kernel_size=3, stride=2, padding=1), nn.GELU()]
    return nn.Sequential(*layers)
