# %% [markdown]
# # 4. The class token, and where things are
#
# Two things are still missing before the first block: someone who collects the answer, and a sense of place.
#
# $$z_0 = [\,x_\text{class};\ x_p^1E;\ \ldots;\ x_p^NE\,] + E_\text{pos}$$

# %%
import math

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from lib import BLUE, GREEN, GREY, ORANGE, RED, accuracy, claim, digits, figure, fit, setting, shared, source, table
from torch.testing import assert_close

import vitkit
from vitkit.explanation.model_stats import position_similarity
from vitkit.model import vit
from vitkit.model.pos_embed import apply_rope, axial_rope, resample_table, sincos_table

# %% [markdown]
# ## A token that belongs to no patch
#
# The class token is a learned vector, the same for every image, put in front of the patch tokens. It starts knowing
# nothing. In each block it looks at the patches like everyone else, and in the end its vector alone goes to the
# classifier. Think of a reporter who is in the room but not part of the scene.

# %%
model = vitkit.create_model("vit_digits_patch2_8", position="learned", seed=0).eval()
train_x, train_y, test_x, test_y = digits()
with torch.no_grad():
    tokens, _ = model.embed(test_x[:2])
print("8×8 pixels, patches of 2×2:", model.config.grid, "= 16 patches; tokens:", tuple(tokens.shape))
assert torch.equal(tokens[0, 0], tokens[1, 0])
print("before the first block, the class tokens of two images are equal; after the last one:")
with torch.no_grad():
    features = model.forward_features(test_x[:2])
print("largest difference", f"{(features[0, 0] - features[1, 0]).abs().max():.3f}")

# %% [markdown]
# Its alternative is the plain mean over the patch tokens. [Chapter 6](06_head.md) compares both.
#
# ## Without positions: a bag of patches
#
# Attention sees a set ([chapter 1](01_attention.md)). So a model without positions cannot tell an image from the same
# image with its patches shuffled. We shuffle, and compare the logits.

# %%
blind = vitkit.create_model("vit_digits_patch2_8", position="none", seed=0).eval()
g = torch.Generator().manual_seed(3)
order = torch.randperm(16, generator=g)
cut = test_x[:6].unfold(2, 2, 2).unfold(3, 2, 2)  # (b, 1, 4, 4, 2, 2)
shuffled = cut.flatten(2, 3)[:, :, order].unflatten(2, (4, 4)).permute(0, 1, 2, 4, 3, 5).reshape(6, 1, 8, 8)
with torch.no_grad():
    assert_close(blind(shuffled), blind(test_x[:6]), rtol=1e-4, atol=1e-5)
    moved = (model(shuffled) - model(test_x[:6])).abs().max()
print("without positions the logits stay the same; with learned ones they move by", f"{moved:.3f}")

fig, axes = plt.subplots(2, 6, figsize=(6, 2.1))
for i, ax in enumerate(axes.flat):
    ax.imshow((test_x[:6] if i < 6 else shuffled)[i % 6, 0], cmap="gray_r")
    ax.set(xticks=[], yticks=[])
axes[0, 0].set_ylabel("image")
axes[1, 0].set_ylabel("the same\nto it")
figure(fig, "04_shuffled", "Six handwritten digits, and below the same with patches shuffled, unreadable to people")

# %% [markdown]
# To a model without positions both rows are the same. It has to guess from strokes alone. There are three common cures.
#
# ## Learned: a table
#
# One vector per place, added to the token there, trained like any other weight. It starts as noise and finds out by
# itself which places are near each other.
#
# ## Sin-cos: a fixed formula
#
# Row and column, each as sines and cosines at falling frequencies, like the hands of many clocks: fast hands tell
# neighbours apart, slow ones tell left from right. Nothing to learn.

# %%
source(sincos_table)
waves = sincos_table((14, 14), 64)
fig, axes = plt.subplots(1, 4, figsize=(6, 1.9))
for ax, channel in zip(axes, (0, 2, 32, 35), strict=True):
    ax.imshow(waves[:, channel].reshape(14, 14), vmin=-1, vmax=1)
    ax.set(title=f"channel {channel}", xticks=[], yticks=[])
figure(fig, "04_sincos", "Four channels of the sin-cos table on a 14 by 14 grid: fast and slow waves across and down")

# %% [markdown]
# ## Rotary: turn queries and keys
#
# Nothing is added to the tokens. Instead, in every block, each query and key is *turned* by angles that grow with its
# row and column. A dot product only feels the difference between two angles:
#
# $$\langle R_{\alpha}q,\ R_{\beta}k\rangle = \langle q,\ R_{\beta-\alpha}k\rangle$$
#
# so a score depends on what the two tokens hold and on how far apart they are, not on where they are. Check: a query
# and a key, moved together across the grid.

# %%
source(apply_rope)
rope = axial_rope((8, 8), 16)
query, key = torch.randn(2, 1, 1, 1, 16, generator=g)
every_q, every_k = (apply_rope(part.expand(1, 1, 64, 16), rope)[0, 0] for part in (query, key))
scores = every_q @ every_k.T
pairs = [((1, 1), (2, 4)), ((3, 2), (4, 5)), ((5, 0), (6, 3))]  # always one down, three to the right
found = [float(scores[r1 * 8 + c1, r2 * 8 + c2]) for (r1, c1), (r2, c2) in pairs]
print("scores of the same pair at three places:", [round(s, 4) for s in found])
assert max(found) - min(found) < 1e-4

# %% [markdown]
# ## What training makes of it
#
# The same small model on handwritten digits, four times.

# %%
kinds = {"none": GREY, "learned": BLUE, "sincos": ORANGE, "rotary": GREEN}
steps = setting(400, short=10)
trained = {}
for kind in kinds:
    trained[kind] = vitkit.create_model("vit_digits_patch2_8", position=kind, seed=0)
    fit(trained[kind], train_x, train_y, steps)
scores = {kind: accuracy(m, test_x, test_y) for kind, m in trained.items()}
table(
    ["positions", "parameters for them", "test accuracy"],
    [(k, 0 if m.pos_embed is None else m.pos_embed.numel(), f"{100 * scores[k]:.1f} %") for k, m in trained.items()],
)
claim("a bag of patches is clearly worse than any kind of position",
      scores["none"] + 0.02 < min(scores[k] for k in ("learned", "sincos", "rotary")))  # fmt: skip

# %% [markdown]
# How alike are two places to the model? Take one patch and compare its position with all others. Real weights tell more
# than small ones: where DeiT-Tiny's are at hand, its table, learned from 1.3 million photographs, stands first.

# %%
weights = shared("deit_tiny_patch16_224_in1k.safetensors")
shown = {"learned, on digits": trained["learned"]}
if weights:
    shown = {"learned, DeiT-Tiny": vitkit.load_model(weights)}
for kind in ("sincos", "rotary"):
    name = {"sincos": "sin-cos", "rotary": "rotary"}[kind]
    shown[name] = vitkit.create_model("vit_tiny_patch16_224", position=kind, seed=0)
fig, axes = plt.subplots(2, len(shown), figsize=(6, 4.1))
for column, (name, m) in zip(axes.T, shown.items(), strict=True):
    similar = position_similarity(m).values
    size = similar.shape[0]
    for ax, (r, c) in zip(column, ((size // 2, size // 2), (size // 5, size // 5)), strict=True):
        ax.imshow(similar[r, c], vmin=similar.min(), vmax=1)
        ax.plot(c, r, "x", color=RED, markersize=9, markeredgewidth=2)
        ax.set(xticks=[], yticks=[])
    column[0].set_title(name)
figure(
    fig, "04_similarity", "Similarity of one position, marked by a cross, to all others, for three kinds of position"
)

# %% [markdown]
# Bright is alike, each kind on a scale of its own. Sin-cos and rotary are near by design. The learned table was never
# told that images have two axes: that nearby places matter to each other is what it found in photographs.
#
# ## Another size, and what it costs
#
# Train at one size, use at another: then there are more patches, and places that never had a vector. The learned table
# is looked at as a small picture with $D$ channels and resized. Sin-cos and rotary are simply evaluated at the new
# places. (Here rotary coordinates run from −1 to 1 over any grid, so they stretch too; sin-cos counts patches and goes
# on counting.)

# %%
source(resample_table)

# %% [markdown]
# Does it cost accuracy? We enlarge the test digits from 8 to 12 and 16 pixels and ask the models that were trained at
# 8. We add a common mistake: taking the first rows of a longer table, or here, repeating it, instead of resizing.


# %%
def wrapped(table, old, new, mode, *options):
    """The mistake: rows of the table in their order, begun again when they run out, whatever the grid."""
    return table.repeat(math.ceil(new[0] * new[1] / len(table)), 1)[: new[0] * new[1]]


sizes = [8, 12, 16]
costs = {}
for size in sizes:
    enlarged = F.interpolate(test_x, size=(size, size), mode="bilinear", align_corners=False)
    for kind in ("learned", "sincos", "rotary"):
        costs[kind, size] = accuracy(trained[kind], enlarged, test_y)
    right = vit.resample_table
    vit.resample_table = wrapped if size > 8 else right
    costs["not resampled", size] = accuracy(trained["learned"], enlarged, test_y)
    vit.resample_table = right
names = {"learned": "learned, resampled", "rotary": "rotary", "sincos": "sin-cos", "not resampled": "learned, repeated"}
table(
    ["trained at 8 pixels, used at", *map(str, sizes)],
    [(names[k], *(f"{100 * costs[k, s]:.1f} %" for s in sizes)) for k in names],
)
claim("resampling the table beats repeating it", costs["learned", 16] > costs["not resampled", 16] + 0.03)

# %%
fig, ax = plt.subplots(figsize=(6, 3.2))
styles = {"learned": (BLUE, "o-"), "rotary": (GREEN, "s-"), "sincos": (ORANGE, "^-"), "not resampled": (RED, "x--")}
for kind, (colour, style) in styles.items():
    ax.plot(sizes, [100 * costs[kind, s] for s in sizes], style, color=colour, label=names[kind])
ax.set(xlabel="size of the test images, pixels (trained at 8)", ylabel="accuracy, %", xticks=sizes, ylim=(0, 102))
ax.legend()
figure(fig, "04_other_size", "Accuracy at 8, 12 and 16 pixels of models trained at 8, by kind of position")

# %% [markdown]
# It does cost. A patch of an enlarged digit shows a smaller piece of the stroke than any patch did in training, and
# this hurts whatever the positions do. Resizing the table keeps the *places* right, which is all it can do. What cures
# the rest is a little training at the new size. We try it on the learned model:

# %%
large_train, large_test = (
    F.interpolate(x, size=(16, 16), mode="bilinear", align_corners=False) for x in (train_x, test_x)
)
before = accuracy(trained["learned"], large_test, test_y)
extra = setting(100, short=2)
fit(trained["learned"], large_train, train_y, extra)
after = accuracy(trained["learned"], large_test, test_y)
print(f"at 16 pixels: {100 * before:.1f} % before, {100 * after:.1f} % after {extra} steps at that size")
claim("a few steps at the new size win much of it back", after > before + 0.2)

# %% [markdown]
# That is how large models are made: most of the training at a low resolution, where it is cheap, the end at a high one.
#
# ## In short
# - The class token collects what the classifier will see.
# - Without positions a ViT sees a bag of patches. Learned, sin-cos and rotary positions cure it in different ways.
# - Another size needs a *resampled* table. Slicing or repeating it keeps the shapes and loses the places.
#
# **Try it.** Which of the three kinds can be used at a size that is not square? (All. Check with `model.attention` on a
# 8×16 image.)
#
# Next: [the block](05_block.md).
