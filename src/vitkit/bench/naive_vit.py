"""A ViT as tutorials write it: separate linear layers for query, key and value of every head, and an explicit softmax.

It is a baseline only. It has as many weights as `ViT` and shows the cost of the usual from-scratch code.
"""

import torch
from torch import Tensor, nn

from vitkit.model import ViTConfig
from vitkit.model.patch_embed import patchify


class Head(nn.Module):
    def __init__(self, width: int, head_width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, head_width) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.query(x), self.key(x), self.value(x)
        return torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, dim=-1) @ v


class Layer(nn.Module):
    def __init__(self, c: ViTConfig) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(c.width), nn.LayerNorm(c.width)
        self.heads = nn.ModuleList(Head(c.width, c.head_width) for _ in range(c.heads))
        self.proj = nn.Linear(c.heads * c.head_width, c.width)
        self.mlp = nn.Sequential(nn.Linear(c.width, c.mlp_width), nn.GELU(), nn.Linear(c.mlp_width, c.width))

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm1(x)
        x = x + self.proj(torch.cat([head(normed) for head in self.heads], dim=-1))
        return x + self.mlp(self.norm2(x))


class NaiveViT(nn.Module):
    def __init__(self, c: ViTConfig) -> None:
        super().__init__()
        self.patch = c.patch_size
        self.embed = nn.Linear(c.in_channels * c.patch_size[0] * c.patch_size[1], c.width)
        self.cls = nn.Parameter(torch.zeros(1, 1, c.width))
        self.positions = nn.Parameter(torch.zeros(1, c.grid[0] * c.grid[1] + 1, c.width))
        self.layers = nn.Sequential(*(Layer(c) for _ in range(c.depth)))
        self.norm, self.classifier = nn.LayerNorm(c.width), nn.Linear(c.width, c.num_classes)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.embed(patchify(images, self.patch))
        x = torch.cat([self.cls.expand(len(images), -1, -1), tokens], dim=1) + self.positions
        return self.classifier(self.norm(self.layers(x))[:, 0])
