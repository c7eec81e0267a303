"""From tokens to classes (eq. 4): pooling, and the hidden layer of the pre-training head."""

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vitkit.model.block import MLP
from vitkit.model.config import ViTConfig
from vitkit.model.norm import make_norm
from vitkit.model.sdpa import Capture, attend


class Pool(nn.Module):
    """Reduce the tokens to the class token, a mean, or both concatenated (as in DINOv2's classifiers)."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.kind = config.pooling
        self.prefix = config.prefix

    def forward(self, tokens: Float[Tensor, "b t d"], capture: Capture | None = None) -> Float[Tensor, "b pooled"]:
        if self.kind == "cls":
            return tokens[:, 0]
        if self.kind == "cls_mean":
            return torch.cat([tokens[:, 0], tokens[:, self.prefix :].mean(dim=1)], dim=1)
        return tokens[:, self.prefix if self.kind == "mean" else 0 :].mean(dim=1)


class AttentionPool(nn.Module):
    """Attention from one learned query to all tokens or to the patches, then an MLP (MAP head, Zhai et al. 2022)."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        inner = config.heads * config.head_width
        self.heads = config.pool_heads or config.heads
        self.skipped = config.prefix if config.pooling == "attention_patches" else 0
        self.latent = nn.Parameter(torch.empty(1, 1, config.width))
        self.q = nn.Linear(config.width, inner)
        self.kv = nn.Linear(config.width, 2 * inner)
        self.proj = nn.Linear(inner, config.width)
        self.norm = make_norm(config)
        self.mlp = MLP(config, config.pool_mlp_width or config.mlp_width)

    def forward(self, tokens: Float[Tensor, "b t d"], capture: Capture | None = None) -> Float[Tensor, "b d"]:
        q = rearrange(self.q(self.latent), "1 1 (h e) -> 1 h 1 e", h=self.heads).expand(tokens.shape[0], -1, -1, -1)
        k, v = rearrange(self.kv(tokens[:, self.skipped :]), "b t (kv h e) -> kv b h t e", kv=2, h=self.heads)
        pooled = self.proj(rearrange(attend(q, k, v, capture=capture), "b h 1 e -> b 1 (h e)"))
        return (pooled + self.mlp(self.norm(pooled)))[:, 0]


class PreLogits(nn.Module):
    """tanh(Wx + b) before the classifier in pre-training (section 3.1); dropped for fine-tuning."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc = nn.Linear(width, hidden)

    def forward(self, x: Float[Tensor, "b d"]) -> Float[Tensor, "b hidden"]:
        return F.tanh(self.fc(x))
