"""A sparse-attention head: each query keeps only its k largest scores. The maps are those of the sparse attention.

python examples/research/sparse_attention.py OUT
"""

import math
import sys
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

import vitkit
from vitkit.model.attention import Attention
from vitkit.model.block import Block

KEPT = 6


def sparse_weights(q: Tensor, k: Tensor, kept: int = KEPT) -> Tensor:
    scores = q.float() @ k.float().mT / math.sqrt(q.shape[-1])
    least = scores.topk(min(kept, scores.shape[-1])).values[..., -1:]
    return scores.masked_fill(scores < least, float("-inf")).softmax(dim=-1)


class SparseAttention(Attention):
    def forward(self, x: Tensor, rope: Any = None, capture: Any = None) -> Tensor:
        assert rope is None, "use learned positions"
        q, k, v = rearrange(self.qkv(x), "b t (qkv h e) -> qkv b h t e", qkv=3, h=self.heads)
        weights = sparse_weights(self.q_norm(q), self.k_norm(k))
        return self.proj(rearrange(weights.to(v.dtype) @ v, "b h t e -> b t (h e)"))


class SparseBlock(Block):
    def __init__(self, config: vitkit.ViTConfig, drop_path: float = 0.0) -> None:
        super().__init__(config, drop_path)
        self.attn = SparseAttention(config)


class SparseViT(vitkit.ViT):
    block_class = SparseBlock

    def attention(self, images: Tensor, layers: Any = -1, heads: Any = None, queries: Any = None) -> Tensor:
        raise NotImplementedError("read `sparse_weights`: the dense maps would not be those of this model")


def main(out: str) -> vitkit.Result:
    recipe = vitkit.get_recipe("digits").override(["budget.epochs=1"])
    model = vitkit.create_model("vit_digits_patch2_8", model_class=SparseViT, position="learned", depth=2, seed=0)
    result = vitkit.train(recipe, out, model=model)
    weights = sparse_weights(torch.randn(1, 1, 17, 16), torch.randn(1, 1, 17, 16))
    assert ((weights > 0).sum(-1) == KEPT).all()
    print(f"{result.val['top1']:.1%} on validation with {KEPT} of 17 tokens per query")
    return result


if __name__ == "__main__":
    main(sys.argv[1])
