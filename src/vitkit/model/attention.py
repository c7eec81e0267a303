"""Multi-head self-attention (appendix A of the paper, eq. 5–8).

    [q, k, v] = z U_qkv              (5)
    A = softmax(q kᵀ / √e)           (6)   e is the width of one head, not of the model
    SA(z) = A v                      (7)
    MSA(z) = [SA₁(z); …; SAₕ(z)] U   (8)

The forward computes (6) and (7) in one fused kernel (sdpa.py), which never stores A. `attention_weights` computes (6)
as it is written. A `capture` passed to the forward receives the q and k of every layer and can call it on them.

Shapes: b batch, h heads, t tokens, d model width, e head width, q query rows.
"""

import math

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vitkit.model.config import ViTConfig
from vitkit.model.dropout import Dropout
from vitkit.model.norm import make_norm
from vitkit.model.pos_embed import Rope, apply_rope
from vitkit.model.sdpa import Capture, attend


def attention_weights(q: Float[Tensor, "b h q e"], k: Float[Tensor, "b h t e"]) -> Float[Tensor, "b h q t"]:
    """Return A of eq. 6 in float32, also under autocast: the fused kernels accumulate in float32 as well."""
    with torch.autocast(q.device.type, enabled=False):
        scores = q.float() @ k.float().mT / math.sqrt(q.shape[-1])
        return scores.softmax(dim=-1)


class Attention(nn.Module):
    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        inner = config.heads * config.head_width
        self.heads, self.head_width = config.heads, config.head_width
        self.qkv = nn.Linear(config.width, 3 * inner, bias=config.qkv_bias)
        self.q_norm, self.k_norm = (
            make_norm(config, config.head_width) if config.qk_norm else nn.Identity() for _ in "qk"
        )
        self.attn_drop = Dropout(config.attention_dropout)
        self.norm = make_norm(config, inner) if config.sub_norm == "all" else nn.Identity()
        self.proj = nn.Linear(inner, config.width)
        self.proj_drop = Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "b t d"], rope: Rope | None = None, capture: Capture | None = None
    ) -> Float[Tensor, "b t d"]:
        q, k, v = rearrange(self.qkv(x), "b t (qkv h e) -> qkv b h t e", qkv=3, h=self.heads)
        q, k = apply_rope(self.q_norm(q), rope), apply_rope(self.k_norm(k), rope)
        heads = attend(q, k, v, self.attn_drop, capture)
        return self.proj_drop(self.proj(self.norm(rearrange(heads, "b h t e -> b t (h e)"))))
