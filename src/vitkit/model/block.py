"""The encoder block: attention, then an MLP, each on a normalised input and added to the residual (eq. 2 and 3)."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vitkit.model.attention import Attention
from vitkit.model.config import ViTConfig
from vitkit.model.dropout import Dropout, DropPath
from vitkit.model.norm import make_norm
from vitkit.model.pos_embed import Rope
from vitkit.model.sdpa import Capture


class Block(nn.Module):
    """z' = MSA(LN(z)) + z;  z = MLP(LN(z')) + z'.

    Pre-norm: the residual path z → z is never normalised, so gradients reach the first block unchanged.
    """

    def __init__(self, config: ViTConfig, drop_path: float = 0.0) -> None:
        super().__init__()
        self.norm1 = make_norm(config)
        self.attn = Attention(config)
        self.ls1 = _layer_scale(config)
        self.norm2 = make_norm(config)
        self.mlp = SwiGLU(config) if config.mlp == "swiglu" else MLP(config, sub_norm=config.sub_norm != "none")
        self.ls2 = _layer_scale(config)
        self.drop_path1, self.drop_path2 = DropPath(drop_path), DropPath(drop_path)

    def forward(
        self, x: Float[Tensor, "b t d"], rope: Rope | None = None, capture: Capture | None = None
    ) -> Float[Tensor, "b t d"]:
        x = x + self.drop_path1(self.ls1(self.attn(self.norm1(x), rope, capture)))
        x = x + self.drop_path2(self.ls2(self.mlp(self.norm2(x))))
        return x


class MLP(nn.Module):
    """Two linear layers with a GELU between them: exact, or approximated by tanh or (in CLIP) by a sigmoid."""

    def __init__(self, config: ViTConfig, hidden: int | None = None, sub_norm: bool = False) -> None:
        super().__init__()
        hidden = hidden or config.mlp_width
        self.fc1 = nn.Linear(config.width, hidden)
        self.act = _ACTIVATIONS[config.mlp]()
        self.norm = make_norm(config, hidden) if sub_norm else nn.Identity()
        self.fc2 = nn.Linear(hidden, config.width)
        self.drop1, self.drop2 = Dropout(config.dropout), Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        return self.drop2(self.fc2(self.norm(self.drop1(self.act(self.fc1(x))))))


class QuickGELU(nn.Module):
    def forward(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        return x * torch.sigmoid(1.702 * x)


_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "gelu_tanh": partial(nn.GELU, approximate="tanh"),
    "quick_gelu": QuickGELU,
    "swiglu": nn.GELU,  # for the MLP of attention pooling, which has no gate
}


class SwiGLU(nn.Module):
    """A gated MLP: SiLU of one half of the first layer gates the other half (Shazeer 2020; DINOv2)."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.width, 2 * config.mlp_width)
        self.norm = make_norm(config, config.mlp_width) if config.sub_norm != "none" else nn.Identity()
        self.fc2 = nn.Linear(config.mlp_width, config.width)
        self.drop1, self.drop2 = Dropout(config.dropout), Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        gate, value = self.fc1(x).chunk(2, dim=-1)
        return self.drop2(self.fc2(self.norm(self.drop1(F.silu(gate) * value))))


class LayerScale(nn.Module):
    """A learned factor per channel on the output of a branch (Touvron et al. 2021, CaiT)."""

    def __init__(self, width: int, value: float) -> None:
        super().__init__()
        self.value = value
        self.gamma = nn.Parameter(torch.full((width,), value))

    def forward(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        return x * self.gamma


def _layer_scale(config: ViTConfig) -> nn.Module:
    return nn.Identity() if config.layer_scale is None else LayerScale(config.width, config.layer_scale)
