# %% [markdown]
# # 12. Common bugs
#
# A Vision Transformer with a mistake in it usually *runs*. Shapes fit, the loss falls, and the accuracy is a few points
# worse than it should be. Nobody notices. The mistakes below were all found in well-read tutorials.
#
# We put each into the library, look at what it does, and let the library's own test catch it. The tests live in
# `tests/model/test_tutorial_bugs.py`. Each check passes on the model as it is and fails as soon as its mistake is made.

# %%
import contextlib
import copy
import functools
import math
import sys

import matplotlib.pyplot as plt
import torch
from lib import BLUE, GREY, RED, ROOT, accuracy, digits, figure, fit, photograph, setting, source, table

import vitkit
from vitkit.model import patch_embed as patch_module

sys.path.insert(0, str(ROOT))  # the tests are not part of the library
from tests.model import test_tutorial_bugs as tests


@contextlib.contextmanager
def broken(name: str):
    """The library with one mistake in it, for as long as the block lasts."""
    place, attribute, mistake, _ = tests.BUGS[name]
    right = getattr(place, attribute)
    setattr(place, attribute, mistake)
    try:
        yield
    finally:
        setattr(place, attribute, right)


@functools.cache
def caught(name: str) -> str:
    """Run the test of a mistake, without and with it; say what it said."""
    check = tests.BUGS[name][-1]
    check()  # passes on the library as it is
    with broken(name):
        try:
            check()
        except (AssertionError, RuntimeError) as error:
            first = next((line for line in str(error).splitlines() if line.strip()), "an assertion failed")
            return f"caught by {check.__name__}: {first}"
    raise AssertionError(f"{name}: not noticed")


train_x, train_y, test_x, test_y = digits()
images = test_x[:8]


def trained(**changes):
    model = vitkit.create_model("vit_digits_patch2_8", **{"position": "learned", "seed": 0, **changes})
    fit(model, train_x, train_y, setting(300, short=6), lr=4e-3)
    return model


good = trained()
print(f"the model that we are going to break: {100 * accuracy(good, test_x, test_y):.1f} % of the test digits")

# %% [markdown]
# ## 1. `reshape` instead of cutting
#
# [Chapter 3](03_patches.md) showed the picture. In a photograph, the numbers of a real patch lie close together and are
# alike, so a few directions say most of what is in it. What `reshape` makes are long thin strips.

# %%
source(tests.cut_by_reshape)
print(caught("reshape without permute"))
cat = photograph("chelsea")[None]
row_of = torch.arange(224.0)[:, None].expand(1, 3, 224, 224)  # where each number of the image is
column_of = torch.arange(224.0)[None, :].expand(1, 3, 224, 224)
for name, cut in (("cut", patch_module.patchify), ("reshaped", tests.cut_by_reshape)):
    rows = cut(cat, (16, 16))[0]
    spectrum = torch.linalg.svdvals(rows - rows.mean(dim=0)).square()
    needed = int((spectrum.cumsum(0) / spectrum.sum() < 0.95).sum()) + 1
    high, wide = (int(cut(axis, (16, 16))[0, 100].unique().numel()) for axis in (row_of, column_of))
    print(f"{name:9} patch 100 covers {high} × {wide} pixels; {needed} directions hold 95 % of the variance")

# %% [markdown]
# A model trains on the strips too, only with a harder task. On our grey digits of 8×8 the mistake makes strips of 1×4
# pixels, which are patches after all, of an odd shape. They may even do better. So accuracy on a toy problem is no
# test:

# %%
with broken("reshape without permute"):
    strips = accuracy(trained(patch_embed="linear"), test_x, test_y)
squares = accuracy(trained(patch_embed="linear"), test_x, test_y)
print(f"trained on squares {100 * squares:.1f} %, on what reshape makes {100 * strips:.1f} %")

# %% [markdown]
# ## 2. Scaling by the width of the model
#
# Scores are divided by $\sqrt{e}$, $e$ being the width of *one head*. Dividing by $\sqrt D$ makes all scores too small,
# and attention too even. With 12 heads it is off by $\sqrt{12}$:

# %%
source(tests.fused_scaled_by_the_model_width)
print(caught("scaled by the model width"))
g = torch.Generator().manual_seed(0)
q, k = torch.randn(2, 1000, 1, 64, generator=g), torch.randn(2, 1000, 197, 64, generator=g)
raw = (q[0] @ k[0].mT)[:, 0]
for name, e in (("head width, √64", 64), ("model width, √768", 768)):
    a = (raw / math.sqrt(e)).softmax(dim=-1)
    entropy = -(a * a.log()).sum(dim=-1).mean()
    print(f"{name:18} spreads over {entropy.exp():.0f} of 197 tokens; the largest share is {a.amax(-1).mean():.3f}")

# %% [markdown]
# ## 3. Attention across the batch
#
# `nn.MultiheadAttention` takes (tokens, batch, width) unless told `batch_first=True`. Give it (batch, tokens, width),
# and images attend to *each other*. All shapes fit. The test that most people would write, *shuffling the batch
# shuffles the output*, passes too! One has to ask for a single image alone.

# %%
print(caught("attention across the batch"))
print(caught("class tokens across the batch"))
averaged = vitkit.create_model(
    "vit_digits_patch2_8", position="learned", pooling="mean", class_token=False, seed=0
).eval()


@torch.no_grad()
def look(title: str) -> None:
    company = (averaged(images[:1]) - averaged(images)[:1]).abs().max()
    apart = (good(images)[0] - good(images)[1]).abs().max()
    print(f"{title:17} {company:.6f} by the company an image keeps; {apart:.2f} between two digits")


print("\nhow much logits differ:")
look("as it should be")
with broken("attention across the batch"):
    look("with the mistake")

# %% [markdown]
# The class token makes it worse: across the batch, class tokens see only each other, and they are all the same. So
# every image gets the same logits.

# %% [markdown]
# ## 4. A residual that ignores its norm
#
# A wrapper like `x + fn(x)` around `fn(norm(x))`, in which the norm's output gets lost. The model trains; deep ones
# suffer.

# %%
source(tests.attention_of_the_raw_input)
print(caught("attention of the raw input"))
print(caught("MLP of the raw input"))

# %% [markdown]
# ## 5. No norm at the end
#
# A pre-norm model adds and adds ([chapter 5](05_block.md)). Without the last norm the classifier sees tokens of any
# length.

# %%
print(caught("no final norm"))
print(caught("no norm after pooling"))


@torch.no_grad()
def seen_by_the_head(title: str) -> None:
    lengths, sure = good.forward_features(images).norm(dim=-1), good(test_x).softmax(dim=1).amax(dim=1).mean()
    print(f"{title:12} tokens of length {lengths.min():.1f} to {lengths.max():.1f}; "
          f"{100 * accuracy(good, test_x, test_y):.1f} % right, {100 * sure:.1f} % sure of itself")  # fmt: skip


print()
seen_by_the_head("as it is")
with broken("no final norm"):
    seen_by_the_head("without norm")

# %% [markdown]
# Accuracy hardly moves: if all logits grow, the largest stays the largest. What is wrong is how sure the model is, and
# how it would train. Again nothing that a glance at the accuracy shows.

# %% [markdown]
# ## 6. A head on all tokens
#
# `head(x)` instead of `head(x[:, 0])`. The output has one axis too many, and a later `.mean(1)` or a forgiving loss
# function hides it.

# %%
source(tests.head_on_all_tokens)
print(caught("a head on all tokens"))
print(caught("a head on the mean of all tokens"))
with torch.no_grad(), broken("a head on all tokens"):
    print("shape of the logits:", tuple(good(images).shape), "instead of", (8, 10))

# %% [markdown]
# ## 7. A hidden layer without a bend
#
# Two linear layers in a row are one ([chapter 6](06_head.md)).

# %%
print(caught("hidden layer without activation"))

# %% [markdown]
# ## 8. Positions sliced, not resampled
#
# Another image size, another grid. `pos_embed[:, :n]` has the right shape and the wrong places. We give the trained
# model a wide crop: the digits with their top and bottom rows cut off, a grid of 3 by 4 patches instead of 4 by 4 (the
# top row and the bottom row of *pixels* go, so every patch shifts by half).

# %%
source(tests.table_sliced)
for name in ("table sliced", "table taken for a square", "table kept for the same count"):
    print(caught(name))
crop = test_x[:, :, 1:7]
kept = {"resampled": accuracy(good, crop, test_y)}
with broken("table sliced"):
    kept["sliced"] = accuracy(good, crop, test_y)
print(f"\non 6×8 crops: resampled {100 * kept['resampled']:.1f} %, sliced {100 * kept['sliced']:.1f} %")

# %% [markdown]
# Where do the vectors come from? Each dot is a patch of the new grid; the arrow starts at the place whose vector it
# gets.

# %%
fig, axes = plt.subplots(1, 2, figsize=(6, 2.9))
for ax, title in zip(axes, ("resampled: stretched", "sliced: rows shift"), strict=True):
    for r in range(3):
        for c in range(3):
            if title.startswith("res"):
                start = (c + 0.5) * 4 / 3, (r + 0.5) * 4 / 3
            else:
                number = r * 3 + c
                start = number % 4 + 0.5, number // 4 + 0.5
            end = (c + 0.5) * 4 / 3, (r + 0.5) * 4 / 3
            ax.annotate("", end, start, arrowprops=dict(arrowstyle="->", color=RED, linewidth=1.6))
            ax.plot(*end, "o", color=BLUE, markersize=8)
    ax.set(title=title, xlim=(0, 4), ylim=(4, 0), xticks=range(5), yticks=range(5), aspect="equal")
    ax.grid(color=GREY, linewidth=0.4)
    ax.tick_params(labelbottom=False, labelleft=False, length=0)
figure(fig, "12_sliced", "A 4 by 4 table used on a 3 by 3 grid: resampled places stay, sliced ones move to other rows")

# %% [markdown]
# On the right, the table's fourth vector, which belongs to the right border, is given to the first patch of the second
# row. From there on every row is off.
#
# ## 9. Sizes that do not fit
#
# Without a check a convolution with stride 16 ignores the rest of the image, and nobody is told.

# %%
print(caught("any size accepted"))
model = vitkit.create_model("vit_tiny_patch16_224", seed=0).eval()
seen = model.patch_embed(cat[..., :223]).shape[1]
print(f"\n224×223 pixels: the bare convolution makes {seen} patches and drops {223 % 16} columns of pixels in silence")
try:
    model(cat[..., :223])
except vitkit.errors.InputError as error:
    print("the model:", error)

# %% [markdown]
# ## 10. All blocks alike
#
# `nn.ModuleList([block] * 12)` makes one block, twelve times. `copy.deepcopy(block)` in a loop makes twelve that start
# with the same weights. The first has a twelfth of the parameters, the second hides.

# %%
source(tests.one_block_copied)
print(caught("blocks copied from one"))
block = good.blocks[0]
listed = torch.nn.ModuleList([block] * 4)
copied = torch.nn.ModuleList(copy.deepcopy(block) for _ in range(4))
for name, blocks in (("[block] * 4", listed), ("deepcopy(block), 4 times", copied), ("the library's", good.blocks)):
    different = len({tuple(b.attn.qkv.weight.flatten()[:8].tolist()) for b in blocks})
    print(f"{name:25} {sum(p.numel() for p in blocks.parameters()):8,} parameters, {different} different blocks")

# %% [markdown]
# ## All of them
#
# The whole list, once more, each with the test that has to notice. If one were not caught, this chapter would fail.

# %%
rows = [(name, caught(name).split(":")[0].removeprefix("caught by check_").replace("_", " ")) for name in tests.BUGS]
table(["mistake", "noticed by the check that"], rows)
print(f"\n{len(rows)} mistakes, {len(rows)} caught")

# %% [markdown]
# ## How to test a model of your own
#
# The checks have a pattern worth stealing. None of them looks at accuracy. Each states a *property* that must hold
# whatever the weights are:
#
# - two ways to compute the same thing agree (conv and matrix, fused and plain);
# - what must not matter does not (the other images of a batch, the order of a shuffled set);
# - what must matter does (the norm's input, the tanh, the position);
# - what cannot work is refused, in words.
#
# And a test is only worth something if you have seen it fail. So break your code once, on purpose, and watch.
#
# That is the course. You have seen every line of a Vision Transformer run. Take one of the guides, a folder of your own
# photographs, and go.
