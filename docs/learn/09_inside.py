# %% [markdown]
# # 9. Looking inside
#
# A trained Vision Transformer can be opened. Where does it look? How far? Through how many hands does information go?
# And which of these pictures may one believe?
#
# We open DeiT-Tiny, trained on 1.3 million photographs, where its weights are at hand (`VITKIT_SHARED`). Otherwise a
# model that this chapter trains on handwritten digits.

# %%
import json

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from lib import BLUE, GREY, ORANGE, digits, figure, fit, setting, shared, source, table
from skimage import data as photographs
from torch.testing import assert_close

import vitkit
from vitkit.data.preprocess import Preprocess
from vitkit.explanation import attention_map, relevance
from vitkit.explanation.model_stats import attention_distance, feature_pca, patch_distances, token_norms
from vitkit.model.vit import ViT

weights = shared("deit_tiny_patch16_224_in1k.safetensors")
train_x, train_y, test_x, test_y = digits()
if weights:
    model = vitkit.load_model(weights)
    preprocess = model.info.preprocess
    names = json.loads(shared("imagenet1k_classes.json").read_text(encoding="utf-8"))["name"]
    names = [name.split(",")[0] for name in names]  # the first of several
    raw = [photographs.chelsea(), photographs.coffee(), photographs.stereo_motorcycle()[0]]
else:
    model = vitkit.create_model("vit_digits_patch2_8", position="learned", seed=0)
    fit(model, train_x, train_y, setting(500, short=10))
    preprocess = Preprocess(size=(8, 8), channels=1, crop_fraction=1.0, mean=(0.3,), std=(0.37,))
    names = [f"a {i}" for i in range(10)]
    raw = [np.rint((test_x[i, 0].numpy() * 0.37 + 0.3) * 255).astype(np.uint8) for i in (0, 1, 2)]
pixels = torch.stack([preprocess(image) for image in raw])
images = preprocess.normalize(pixels)
shown = pixels.permute(0, 2, 3, 1).numpy()
gh, gw = images.shape[2] // model.config.patch_size[0], images.shape[3] // model.config.patch_size[1]


def picture(ax, i: int, heat=None, title: str = "") -> None:
    """An image; with a map, in grey under it."""
    side = shown.shape[1]
    if heat is None:
        ax.imshow(shown[i].squeeze(), cmap="gray_r")
    else:
        ax.imshow(shown[i].mean(axis=2), cmap="gray" if shown.shape[3] == 3 else "gray_r")
        ax.imshow(heat, cmap="plasma", alpha=0.6, extent=(-0.5, side - 0.5, side - 0.5, -0.5))
    ax.set(xticks=[], yticks=[])
    ax.set_title(title, fontsize=10)


with torch.no_grad():
    chances = model(images).softmax(dim=1)
for i in range(3):
    top = chances[i].topk(3)
    print(f"image {i}:", ", ".join(f"{names[int(c)]} {p:.0%}" for p, c in zip(top.values, top.indices, strict=True)))

# %% [markdown]
# ## Where the class token looks
#
# The class token's row of the last attention is the model's last look at the image. The fused kernel never writes it
# down, so the library computes queries and keys once more and evaluates exactly the rows that were asked for.

# %%
source(ViT.attention)
with torch.no_grad():
    rows = model.attention(images, layers=[-1], queries=[0])[0]  # (images, heads, 1, tokens)
print("shape", tuple(rows.shape), " every row sums to", f"{rows.sum(-1).min():.4f} … {rows.sum(-1).max():.4f}")
maps = rearrange(rows[:, :, 0, model.config.prefix :], "b h (r c) -> b h r c", r=gh)
assert_close(maps, attention_map(model, images))

heads = model.config.heads
fig, axes = plt.subplots(3, min(heads, 3) + 1, figsize=(6, 4.7))
for i in range(3):
    picture(axes[i, 0], i, title=names[int(chances[i].argmax())][:18])
    for h in range(min(heads, 3)):
        picture(axes[i, h + 1], i, maps[i, h], f"head {h}" if i == 0 else "")
figure(fig, "09_heads", "Where the class token looks in the last layer, by head, over three photographs")

# %% [markdown]
# Three heads that could look at different things. In DeiT-Tiny's last block they look at the same few patches, and
# hardly at the eyes or the cup. That is strange, and it is real: these are the exact weights. Keep it in mind. The end
# of the chapter finds out what these patches are.
#
# ## Layer by layer
#
# And on the way there? The same row, averaged over the heads, from early layers to late ones. Above, where the class
# token looks; below, where one patch looks, marked by a cross.

# %%
depth = model.config.depth
chosen = [0, depth // 3, 2 * depth // 3, depth - 1]
spot = (gh // 3, gw // 3)
fig, axes = plt.subplots(2, 4, figsize=(6, 3.3))
for column, layer in zip(axes.T, chosen, strict=True):
    picture(column[0], 0, attention_map(model, images, layer)[0].mean(dim=0), f"block {layer + 1}")
    picture(column[1], 0, attention_map(model, images, layer, query=spot)[0].mean(dim=0))
    scale = shown.shape[1] / gh
    column[1].plot(
        (spot[1] + 0.5) * scale - 0.5, (spot[0] + 0.5) * scale - 0.5, "x", color="white", markersize=9, mew=2.5
    )
axes[0, 0].set_ylabel("class token")
axes[1, 0].set_ylabel("one patch")
figure(fig, "09_layers", "Attention of the class token and of one patch in four layers, from the first to the last")

# %% [markdown]
# In the first block a patch looks at itself and around. In the middle, the class token finds eyes, nose and ears; in
# block 9 the patch on one eye has found the other eye. In the last block everyone looks at the same few patches again.
#
# ## How far heads look
#
# For each head: the distance between a patch and the patches it looks at, weighted by attention. Small means a head
# that works like a small convolution; large means one that looks across the image. By hand for one head first:

# %%
distance = attention_distance(model, images)
with torch.no_grad():
    a = model.attention(images, layers=[0], heads=[0])[0, :, 0]
    prefix = model.config.prefix
    a = a[:, prefix:, prefix:] / a[:, prefix:, prefix:].sum(dim=-1, keepdim=True)
    far = patch_distances((gh, gw), model.config.patch_size)
    by_hand = (a * far).sum(dim=-1).mean()
assert_close(float(by_hand), float(distance[0, 0]), rtol=1e-4, atol=1e-4)
print(f"block 1, head 0 looks {by_hand:.1f} pixels far; a head that looks everywhere alike: {far.mean():.1f}")

fig, ax = plt.subplots(figsize=(6, 3.4))
for h in range(heads):
    ax.plot(range(1, depth + 1), distance[:, h], "o", color=BLUE, markersize=7, alpha=0.7)
ax.plot(range(1, depth + 1), distance.mean(axis=1), color=ORANGE, label="mean of the heads")
ax.axhline(far.mean(), color=GREY, linewidth=1, linestyle=":")
ax.text(depth, float(far.mean()) * 1.02, "everywhere alike", color=GREY, ha="right")
ax.set(xlabel="block", ylabel="pixels", ylim=(0, float(far.mean()) * 1.2), xticks=range(1, depth + 1),
       title="mean attention distance, one dot per head")  # fmt: skip
ax.legend(loc="lower right")
figure(fig, "09_distance", "How far each head looks, by depth: near and far in early blocks, far in late ones")
if weights:
    early, late = distance[: depth // 2], distance[-3:]
    assert early.min() < 0.3 * late.mean()
    assert early.max() > 0.7 * late.mean()
    print("early blocks hold heads that look near and heads that look far; in the last blocks all look far")

# %% [markdown]
# Nobody told the model to begin with local looks. It found out.
#
# ## Rollout: many hands
#
# A map of the last layer says where the class token looks *then*. But tokens have been mixing for eleven blocks; a
# patch token is no longer about its patch alone. Rollout multiplies the layers. In each, half of a token comes from
# attention and half from the residual path:
#
# $$R \leftarrow \tfrac12(A_l + I)\,R, \qquad R_0 = I$$

# %%
with torch.no_grad():
    every = model.attention(images).mean(dim=2)  # (layers, images, tokens, tokens), mean of the heads
R = torch.eye(every.shape[-1]).expand(len(images), -1, -1)
for A in every:
    R = (A @ R + R) / 2
rolled = rearrange(R[:, 0, prefix:], "b (r c) -> b r c", r=gh)
assert_close(rolled, relevance.rollout(model, images)[0], rtol=1e-4, atol=1e-5)
print("four lines equal the library's rollout")

# %% [markdown]
# Rollout does not know which class was chosen. The gradient does: keep only the attention that *speaks for* the class,
# and roll that out.

# %%
graded, _ = relevance.gradient(model, images)
fig, axes = plt.subplots(3, 4, figsize=(6, 4.7))
for i in range(3):
    picture(axes[i, 0], i, title=names[int(chances[i].argmax())][:18])
    for ax, heat, title in zip(axes[i, 1:], (maps[i].mean(dim=0), rolled[i], graded[i]),
                               ("last layer", "rollout", "gradient"), strict=True):  # fmt: skip
        picture(ax, i, heat, title if i == 0 else "")
figure(fig, "09_methods", "Three maps of each photograph: last layer, rollout, and rollout weighted by the gradient")

# %% [markdown]
# ## May one believe them?
#
# One simple test: cover what a map calls important, and see whether the model minds more than when *random* patches are
# covered. We cover the best fifth of the patches with the mean colour.


# %%
@torch.no_grad()
def loss_when_covered(heat: torch.Tensor) -> float:
    """How much of its probability the chosen class loses, on average."""
    covered = images.clone()
    count = gh * gw // 5
    for i in range(len(images)):
        hide = torch.zeros(gh * gw)
        hide[heat[i].flatten().topk(count).indices] = 1
        mask = F.interpolate(hide.reshape(1, 1, gh, gw), size=images.shape[2:])[0]
        covered[i] = torch.where(mask > 0, torch.zeros(()), images[i])
    best = chances.argmax(dim=1, keepdim=True)
    return float((1 - model(covered).softmax(dim=1).gather(1, best) / chances.gather(1, best)).mean())


g = torch.Generator().manual_seed(0)
noise = float(
    np.mean([loss_when_covered(torch.rand(len(images), gh, gw, generator=g)) for _ in range(setting(10, short=2))])
)
candidates = {"last layer": maps.mean(dim=1), "rollout": rolled, "gradient": graded}
fell = {name: loss_when_covered(heat) for name, heat in candidates.items()} | {"random patches": noise}
table(["covered: the best fifth by", "probability lost"], [(n, f"{100 * f:.0f} %") for n, f in fell.items()])

# %% [markdown]
# Three images prove little, and they are here to show the idea. `vitkit explain … --faithfulness` measures it properly:
# patch by patch, in both directions, for every method, and against the same model with its weights shuffled.
#
# ## What tokens become
#
# The patch tokens after the last block, as colours: their three strongest common directions as red, green and blue.
# Like colour, like meaning.

# %%
colours = feature_pca(model, images)
lengths = token_norms(model, images)
fig, axes = plt.subplots(3, 3, figsize=(5.4, 5.2))
for i in range(3):
    picture(axes[i, 0], i, title="image" if i == 0 else "")
    axes[i, 1].imshow(colours[i])
    bar = axes[i, 2].imshow(lengths[i], vmin=0, vmax=lengths.max())
    for ax in axes[i, 1:]:
        ax.set(xticks=[], yticks=[])
axes[0, 1].set_title("features", fontsize=10)
axes[0, 2].set_title("length of tokens", fontsize=10)
fig.colorbar(bar, ax=axes[:, 2], shrink=0.6)
figure(fig, "09_tokens", "Patch features as colours, and the length of each token: a few stand out")

# %% [markdown]
# ## Outliers and registers
#
# Look at the right column. A few tokens are much longer than the others, and not where the image is most interesting.
# [Darcet et al. (2024)](https://arxiv.org/abs/2309.16588) found out what such tokens are in large models: patches whose
# own content the model does not need. It empties them and uses their tokens as scratch paper, for notes about the whole
# image.

# %%
flat = np.sort(lengths.reshape(len(lengths), -1), axis=1)
table(
    ["image", "median length", "longest", "ratio", "tokens above 1.75 × median"],
    [
        (
            names[int(chances[i].argmax())],
            f"{np.median(f):.1f}",
            f"{f[-1]:.1f}",
            f"{f[-1] / np.median(f):.1f}",
            int((f > 1.75 * np.median(f)).sum()),
        )
        for i, f in enumerate(flat)
    ],
)

# %% [markdown]
# Now back to the strange maps of the last block. Are the patches that everyone looks at the long ones?

# %%
looked_at = maps.mean(dim=1).flatten(1).numpy()
long = lengths.reshape(len(lengths), -1)
few = max(1, gh * gw // 20)  # a twentieth of the patches
rows = []
for i in range(len(images)):
    most, longest = set(np.argsort(-looked_at[i])[:few]), set(np.argsort(-long[i])[:few])
    share = looked_at[i][list(longest)].sum() / looked_at[i].sum()
    rows.append(
        (names[int(chances[i].argmax())], f"{len(most & longest)} of {few}", f"{share:.0%}", f"{few / gh / gw:.0%}")
    )
table(["image", "most looked at and longest", "attention on the longest", "if it were even"], rows)
if weights:
    assert all(
        looked_at[i][np.argsort(-long[i])[:few]].sum() > 3 * few / gh / gw * looked_at[i].sum() for i in range(3)
    )

# %% [markdown]
# Mostly, yes. A twentieth of the patches, chosen by their length alone, takes many times its share of the attention. So
# a map of the last layer shows the scratch paper as well as the cat. It is one more reason to test a map before
# believing it.
#
# The cure is disarming: give the model blank tokens to write on. **Registers** are learned tokens like the class token,
# that nobody reads in the end. We train two small models, without and with four of them, and ask where the attention of
# the class token goes in the last block.

# %%
steps = setting(300, short=8)
rows = []
for registers in (0, 4):
    small = vitkit.create_model("vit_digits_patch2_8", registers=registers, seed=0)
    fit(small, train_x, train_y, steps)
    with torch.no_grad():
        look = small.attention(test_x, layers=[-1], queries=[0])[0, :, :, 0].mean(dim=(0, 1))
        hit = float((small(test_x).argmax(1) == test_y).float().mean())
    ratio = token_norms(small, test_x).reshape(len(test_x), -1)
    spread = float(np.mean(ratio.max(axis=1) / np.median(ratio, axis=1)))
    rows.append((registers, f"{100 * hit:.1f} %", f"{look[0]:.1%}", f"{look[1 : 1 + registers].sum():.1%}",
                 f"{look[1 + registers :].sum():.1%}", f"{spread:.2f}"))  # fmt: skip
table(["registers", "test accuracy", "to itself", "to registers", "to patches", "longest token / median"], rows)

# %% [markdown]
# On a model this small there is nothing to cure: no token stands out, with or without. But see how much attention the
# registers draw all the same. Scratch paper gets used. In large models it is what keeps the maps clean, and it costs
# four tokens.
#
# ## In short
# - A map is a row of attention. The library gives you the exact one for any layer, head and token.
# - Early heads look near *and* far, late ones far. Nobody told them.
# - Rollout follows mixing through the layers; the gradient asks for a class. Believe a map after covering what it
#   shows.
# - Very long tokens are scratch paper. Registers give the model its own.
#
# **Try it.** `vitkit explain MODEL cat.jpg --out maps --faithfulness --model-pictures`.
#
# Next: [transfer](10_transfer.md).
