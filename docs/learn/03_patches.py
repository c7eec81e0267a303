# %% [markdown]
# # 3. From image to tokens
#
# The first thing a Vision Transformer does is cut. A photograph becomes a grid of square patches, every patch is laid
# out as one long row of numbers, and one matrix turns each row into a token:
#
# $$z_0 = [\,x_p^1E;\ x_p^2E;\ \ldots;\ x_p^NE\,]$$
#
# $$E \in \mathbb{R}^{(P^2C)\times D}$$
#
# It is the only place where the model knows that it deals with an image. It is also where many tutorials go wrong
# without noticing. So we will look at every step.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from lib import figure, photograph, source
from torch.testing import assert_close

import vitkit
from vitkit.model.patch_embed import PatchEmbed, patchify

# %% [markdown]
# ## A photograph
#
# Chelsea the cat, who comes with scikit-image, cut to a square of 224 pixels. PyTorch keeps images as (channels,
# height, width).

# %%
image = photograph("chelsea")
P = 16
c, h, w = image.shape
print("shape of the image:", tuple(image.shape), "  patches:", h // P, "×", w // P, "=", (h // P) * (w // P))

fig, (left, right) = plt.subplots(1, 2, figsize=(6, 3.2))
left.imshow(image.permute(1, 2, 0))
left.set(title="224 × 224 pixels", xticks=[], yticks=[])
spread = np.ones((h // P * (P + 4), w // P * (P + 4), 3), dtype=np.float32)
for row in range(h // P):
    for column in range(w // P):
        square = image[:, row * P : (row + 1) * P, column * P : (column + 1) * P]
        top, start = row * (P + 4), column * (P + 4)
        spread[top : top + P, start : start + P] = square.permute(1, 2, 0)
right.imshow(spread)
right.set(title="14 × 14 patches of 16 × 16", xticks=[], yticks=[])
figure(fig, "03_grid", "A photograph of a cat, and the same photograph cut into 14 by 14 square patches")

# %% [markdown]
# ## The tempting line that is wrong
#
# We need 196 rows of $16\cdot16\cdot3 = 768$ numbers. The image has $3\cdot224\cdot224 = 150528 = 196\cdot768$ of them.
# So why not just `reshape`?

# %%
wrong = image.reshape(196, 768)
print("shape:", tuple(wrong.shape), "- the shape is right")

# %% [markdown]
# A reshape never moves a number. It only draws new borders between numbers that lie in memory one after the other: the
# first row of pixels, then the second, red for the whole image, then green, then blue. Each of its "patches" is a strip
# of $768/224 \approx 3.4$ rows of a single colour. Let us look at a few, each drawn as what it is taken for: a 16×16
# patch of three channels.

# %%
right_rows = patchify(image[None], (P, P))[0]
chosen = [60, 75, 90, 104, 118]
fig, axes = plt.subplots(2, len(chosen), figsize=(6, 2.9))
for ax_pair, number in zip(axes.T, chosen, strict=True):
    for ax, rows in zip(ax_pair, (right_rows, wrong), strict=True):
        ax.imshow(rows[number].reshape(3, P, P).permute(1, 2, 0))
        ax.set(xticks=[], yticks=[])
    ax_pair[0].set_title(f"row {number}", loc="center")
axes[0, 0].set_ylabel("cut")
axes[1, 0].set_ylabel("reshaped")
figure(fig, "03_wrong", "Five patches cut properly show parts of a cat; five made by reshape show coloured stripes")

# %% [markdown]
# The model trains on the lower row too. It just learns worse, and nothing tells you. The shape was right, after all.
#
# ## Cutting properly: split, move, join
#
# Three steps. First *split* both sides into (which patch, which pixel inside it). Nothing moves yet:

# %%
split = image.reshape(c, h // P, P, w // P, P)
print("split:", tuple(split.shape), " = (c, grid row, pixel row, grid column, pixel column)")

# %% [markdown]
# Then *move* the grid axes to the front. This is the step that was missing:

# %%
moved = split.permute(1, 3, 0, 2, 4)
print("moved:", tuple(moved.shape), " = (grid row, grid column, c, pixel row, pixel column)")

# %% [markdown]
# Then *join*: grid row and column become the number of the patch, the other three become its numbers. Patches are
# counted like words on a page: from the left, then down.

# %%
patches = moved.reshape((h // P) * (w // P), c * P * P)
print("joined:", tuple(patches.shape))

row, column = 4, 6
square = image[:, row * P : (row + 1) * P, column * P : (column + 1) * P]
assert_close(patches[row * (w // P) + column], square.flatten())
print(f"row {row * (w // P) + column} of the table is the square at grid row {row}, column {column}")

# %% [markdown]
# `einops` says all three steps in one line, and says them with names. This is the library's:

# %%
source(patchify)
assert_close(patchify(image[None], (P, P))[0], patches, rtol=0, atol=0)

# %% [markdown]
# Read the pattern from left to right: *an image of c channels whose height is gh patches of ph pixels … becomes gh·gw
# rows of c·ph·pw numbers*. Turned around, it puts the photograph together again, and not one number is lost:

# %%
again = rearrange(patches, "(gh gw) (c ph pw) -> c (gh ph) (gw pw)", gh=h // P, ph=P, pw=P)
assert torch.equal(again, image)
print("cut and put together again: equal in every bit")

# %% [markdown]
# ## From patch to token: one matrix
#
# Each row of 768 numbers is multiplied by the same matrix $E$ and becomes a token of $D$ numbers. That is a linear
# layer.
#
# Yet in most code you will find a *convolution* there, with a kernel as large as the patch and a stride as long. It is
# the same thing. A convolution lays its kernel over a square of pixels, multiplies and adds: a dot product with the
# flattened square. With stride 16 it jumps from patch to patch and never overlaps. Here it is, both ways, with the same
# weights:

# %%
torch.manual_seed(0)
conv = torch.nn.Conv2d(3, 192, kernel_size=P, stride=P)
E = conv.weight.flatten(1)  # (192, 768): each filter, laid out like a patch
with torch.no_grad():
    by_matrix = patches @ E.T + conv.bias
    by_conv = conv(image[None])  # (1, 192, 14, 14): a grid of tokens
    by_conv = by_conv.flatten(2).transpose(1, 2)[0]  # (196, 192)
print("largest difference:", f"{(by_matrix - by_conv).abs().max():.1e}")
assert_close(by_matrix, by_conv, rtol=1e-4, atol=1e-5)

# %% [markdown]
# The library does either, from one and the same weight, so a checkpoint fits both:

# %%
source(PatchEmbed.forward)
models = [vitkit.create_model("vit_tiny_patch16_224", patch_embed=way, seed=0).eval() for way in ("conv", "linear")]
with torch.no_grad():
    both = [model.patch_embed(image[None]) for model in models]
assert_close(*both, rtol=1e-4, atol=1e-5)
print("PatchEmbed as convolution and as matrix: equal;", tuple(both[0].shape), "= (batch, tokens, width)")

# %% [markdown]
# ## How much of the photograph is in a token?
#
# ViT-Base has $D = 768$, as many numbers as a patch: a matrix can keep everything. DeiT-Tiny has 192, a quarter. Is
# three quarters of the image gone?
#
# No, since patches of photographs are far from random. Neighbouring pixels are alike. We ask how well patches can be
# rebuilt from the best $d$ directions, which is what principal components are.

# %%
centre = patches.mean(dim=0)
_, _, directions = torch.linalg.svd(patches - centre, full_matrices=False)
fig, axes = plt.subplots(1, 4, figsize=(6, 1.8))
for ax, kept in zip(axes, (4, 16, 48, 192), strict=True):
    basis = directions[:kept]
    rebuilt = (patches - centre) @ basis.T @ basis + centre
    share = 1 - (rebuilt - patches).square().sum() / (patches - centre).square().sum()
    picture = rearrange(rebuilt, "(gh gw) (c ph pw) -> (gh ph) (gw pw) c", gh=h // P, ph=P, pw=P)
    ax.imshow(picture.clamp(0, 1))
    ax.set(title=f"{kept} numbers", xticks=[], yticks=[])
    print(f"{kept:3} numbers per patch keep {share:.2%} of the variance")
figure(fig, "03_directions", "The cat rebuilt from 4, 16, 48 and 192 numbers per patch: at 48 it is hard to tell apart")

# %% [markdown]
# (196 patches span at most 195 directions, so this one photograph flatters the last figure. The trend is real.)
#
# A token is small, but a patch has little to say. What it *means* is found out later, when the tokens talk to each
# other.
#
# ## Sizes that do not fit
#
# A side that the patch does not divide leaves a rest. Silently dropping it would cut off part of the image, so the
# library refuses and says what to do:

# %%
try:
    models[0](F.pad(image, (0, 6))[None])
except vitkit.errors.InputError as error:
    print(error)

# %% [markdown]
# Any size that *does* fit is fine, square or not:

# %%
with torch.no_grad():
    print(tuple(models[0].patch_embed(image[None, :, :, 32:192]).shape), "tokens of an image of 224 × 160")

# %% [markdown]
# ## In short
# - Cutting patches is split, move, join. The move is what a plain reshape forgets.
# - A convolution whose stride is its kernel size is a matrix product with the flattened patches.
# - Tokens are counted row by row. Nothing in a token says where it was: that comes next.
#
# **Try it.** Draw `wrong` for an image stored as (height, width, channels). Is it better? What is a "patch" then?
#
# Next: [the class token and positions](04_positions.md).
