# %% [markdown]
# # 7. The whole model
#
# We have every part. Here they are in order, for ViT-Base with patches of 16, the model of the paper: with the shape of
# what each part returns, its parameters, and its work. Then we will rebuild each number with a formula, and the whole
# forward in ten lines.

# %%
from itertools import pairwise

import matplotlib.pyplot as plt
import torch
from lib import BLUE, GREEN, GREY, ORANGE, figure, photograph, shared, source, table
from torch.testing import assert_close

import vitkit
from vitkit.model import VARIANTS
from vitkit.model.summary import summarize
from vitkit.model.vit import ViT

config = VARIANTS["vit_base_patch16_224"].config

# %% [markdown]
# ## Layer by layer
#
# Counted on the *meta* device: tensors with shapes but no memory. The first block is opened; the other eleven look the
# same.


# %%
def shape(row) -> str:
    return " × ".join(map(str, row.shape[1:])) or "1"


rows = summarize(config, depth=4)
first = [r for r in rows if not r.path.startswith("blocks.") or r.path.split(".")[1] == "0"]
keep = [r for r in first if r.path != "patch_embed.stem"]  # there is none in this model
table(
    ["part", "kind", "returns", "parameters", "million multiply-adds"],
    [(r.path or "the model", r.kind, shape(r), r.parameters, f"{r.macs / 1e6:,.1f}") for r in keep],
)

# %% [markdown]
# Read it from top to bottom: 224×224 pixels become $14\cdot14 = 196$ tokens and one class token, 197 in all; they stay
# 197 tokens of 768 numbers through all twelve blocks; one of them is left for the head.
#
# ## Every number by hand
#
# $D$ is the width, $P$ the patch side, $C$ the channels, $N$ the patches, $M$ the MLP's width, $L$ the depth, $K$ the
# classes.

# %%
D, P, C, M, L, K = config.width, config.patch_size[0], config.in_channels, config.mlp_width, config.depth, 1000
N = config.grid[0] * config.grid[1]
parts = {
    "patch embedding": (P * P * C * D + D, "P²C·D + D"),
    "class token": (D, "D"),
    "positions": ((N + 1) * D, "(N + 1)·D"),
    "attention": (L * (D * 3 * D + 3 * D + D * D + D), "L·(3D² + 3D + D² + D)"),
    "MLPs": (L * (D * M + M + M * D + D), "L·(2DM + M + D)"),
    "norms": ((2 * L + 1) * 2 * D, "(2L + 1)·2D"),
    "classifier": (D * K + K, "D·K + K"),
}
total = sum(count for count, _ in parts.values())
table(["part", "formula", "parameters", "share"],
      [(n, f, c, f"{c / total:.1%}") for n, (c, f) in parts.items()] + [("together", "", total, "100.0%")])  # fmt: skip
assert total == rows[0].parameters
print(f"the model itself says {rows[0].parameters:,}: equal")

# %%
fig, ax = plt.subplots(figsize=(6, 3.2))
colours = {"attention": ORANGE, "MLPs": BLUE}
order = sorted(parts, key=lambda n: parts[n][0])
ax.barh(order, [parts[n][0] / 1e6 for n in order], color=[colours.get(n, GREY) for n in order])
for y, name in enumerate(order):
    ax.text(parts[name][0] / 1e6 + 0.8, y, f"{parts[name][0] / 1e6:.2f}", va="center")
ax.set(xlabel="million parameters", xlim=(0, 66), title=f"ViT-B/16: {total / 1e6:.1f} million")
figure(fig, "07_parameters", "Where the parameters of ViT-B/16 are: two thirds in the MLPs, one third in attention")

# %% [markdown]
# Two thirds MLP, one third attention. The famous part, patches and positions, is next to nothing.
#
# And the multiply-adds, with the formula of [chapter 2](02_cost.md):

# %%
t = N + 1
work = {
    "patch embedding": N * P * P * C * D,
    "attention, matrices": L * 4 * t * D * D,
    "attention, N² part": L * 2 * t * t * D,
    "MLPs": L * 2 * t * D * M,
    "norms": (2 * L + 1) * 5 * t * D,
    "classifier": D * K,
}
table(["part", "million multiply-adds", "share"],
      [(n, f"{w / 1e6:,.1f}", f"{w / sum(work.values()):.1%}") for n, w in work.items()])  # fmt: skip
print(f"together {sum(work.values()) / 1e9:.2f} billion; counted by the library: {rows[0].macs / 1e9:.2f} billion")
assert sum(work.values()) == rows[0].macs

# %% [markdown]
# ## The forward in ten lines
#
# Here is a small model of the same kind, and its forward written out with nothing but its parts. A photograph goes in.

# %%
model = vitkit.create_model("vit_tiny_patch16_224", seed=0).eval()
image = (photograph("astronaut")[None] - 0.5) / 0.5


def forward(image: torch.Tensor) -> torch.Tensor:
    x = model.patch_embed(image)  # (1, 196, 192)   chapter 3
    x = torch.cat([model.cls_token, x], dim=1)  # (1, 197, 192)   chapter 4
    x = x + model.pos_embed
    for block in model.blocks:  # chapter 5
        x = x + block.attn(block.norm1(x))  # chapter 1
        x = x + block.mlp(block.norm2(x))
    x = model.norm(x)
    return model.head(x[:, 0])  # (1, 1000)       chapter 6


with torch.no_grad():
    assert_close(forward(image), model(image))
print("ten lines equal the library's forward")

# %% [markdown]
# And here is the library's, in the three functions that it is made of. What is more in it is what the ten lines leave
# out: other sizes, other positions, registers, a distillation token, and a look at the input before it is believed.

# %%
source(ViT.forward_features, ViT.embed)

# %% [markdown]
# ## Watching a photograph go through
#
# How much does each block change what it is given? We take a fresh model and, where its weights are at hand
# (`VITKIT_SHARED`), the same one trained.


# %%
@torch.no_grad()
def changes(m) -> list[float]:
    states = [m.embed(image)[0], *m.forward_intermediates(image)]
    return [float((b - a).norm() / a.norm()) for a, b in pairwise(states)]


found = {"fresh": changes(model)}
if weights := shared("deit_tiny_patch16_224_in1k.safetensors"):
    found["trained"] = changes(vitkit.load_model(weights))
fig, ax = plt.subplots(figsize=(6, 3))
for i, (name, values) in enumerate(found.items()):
    at = [n + 0.4 * i + 0.8 for n in range(len(values))]
    ax.bar(at, values, width=0.4, color=(GREEN, ORANGE)[i], label=name)
ax.set(xlabel="block", ylabel="change, share of its input", xticks=range(1, model.config.depth + 1))
ax.legend()
figure(fig, "07_changes", "How much each of the twelve blocks changes its input, in a fresh model and in a trained one")
for name, values in found.items():
    print(f"{name:8} a block changes its input by {sum(values) / len(values):.0%} on average")

# %% [markdown]
# A fresh model barely whispers: with first weights of size 0.02, every block adds a little to what it is given.
#
# The same table for any model, at the command line: `vitkit summary vit_base_patch16_224`, and `vitkit models` lists
# all names.
#
# ## In short
# - Tokens keep their number and width from the first block to the last.
# - ViT-B/16 holds two thirds of its parameters in MLPs, one third in attention.
# - The whole forward is ten lines. You have now seen all of them.
#
# **Try it.** Which is larger, ViT-B/32 or ViT-B/16? Guess, then call `summarize`. Why is the answer surprising?
#
# Next: [training on CIFAR-10](08_training.md).
