# %% [markdown]
# # 2. Why not pixels?
#
# Attention works on any set of tokens. So why not make every pixel a token, and let the model find out the rest?
#
# Because every token looks at every other one. Twice as many tokens, four times as many looks. Let us count, then
# measure, then try it anyway where it is small enough to work.

# %%
import time

import matplotlib.pyplot as plt
import numpy as np
import torch
from lib import BLUE, GREY, ORANGE, accuracy, claim, digits, figure, fit, setting, table

import vitkit
from vitkit.model.attention import Attention, attention_weights
from vitkit.model.config import ViTConfig
from vitkit.model.summary import summarize

# %% [markdown]
# ## Counting
#
# An image of 224×224 pixels, cut into patches of $P \times P$, makes $N = (224/P)^2$ tokens and $N^2$ attention weights
# per head and layer. ViT-Base has 12 layers of 12 heads. How much memory would its attention maps take, at four bytes
# per number?


# %%
def readable(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


base = vitkit.model.VARIANTS["vit_base_patch16_224"].config
rows = []
for patch in (32, 16, 8, 4, 2, 1):
    n = (224 // patch) ** 2
    rows.append((f"{patch}×{patch}", n, n * n, readable(4 * n * n), readable(4 * n * n * base.heads * base.depth)))
table(["patch", "tokens", "weights of one map", "one map", "all maps, one image"], rows)

# %% [markdown]
# One pixel per token: more than a terabyte for a single small photograph. Fused kernels do not store the maps, but they
# still have to compute every entry.
#
# ## Where the work is
#
# Multiply-adds of one block, width $D$ and an MLP of $4D$:
#
# | part | multiply-adds |
# |---|---|
# | queries, keys, values | $3ND^2$ |
# | scores $QK^\top$ | $N^2D$ |
# | mixing $AV$ | $N^2D$ |
# | output projection | $ND^2$ |
# | MLP | $8ND^2$ |
#
# Together $12ND^2 + 2N^2D$. The first term grows with the number of tokens, the second with its square. We do not have
# to trust the formula: the library counts what PyTorch would execute, on tensors without memory.

# %%
d, n = base.width, base.grid[0] * base.grid[1] + base.prefix
formula = 12 * n * d**2 + 2 * n**2 * d
norms = 2 * 5 * n * d  # two layer norms, counted as five operations per number
block = next(row for row in summarize(base) if row.path == "blocks.0")
print(f"one block of ViT-B/16: formula {formula + norms:,}, counted {block.macs:,}")
assert block.macs == formula + norms

print(f"the quadratic part is {2 * n**2 * d / formula:.1%} of it at 224 pixels")
print(f"both parts are equal at N = 6D = {6 * d:,} tokens: an image of {16 * round((6 * d) ** 0.5)} pixels a side")

# %% [markdown]
# At 224 pixels and patches of 16 the square hardly matters: most of the work is in the plain matrices. Patches are what
# keeps it so.
#
# ## Measuring
#
# One attention layer of DeiT-Tiny's size (width 192, 3 heads), on ever smaller patches of the same image. `plain`
# stores the map and multiplies; `fused` is what the model runs. Seconds of processor time on one thread, the smallest
# of a few tries.

# %%
layer = Attention(ViTConfig(width=192, heads=3, head_width=64)).eval()


def plain(x: torch.Tensor) -> torch.Tensor:
    q, k, v = layer.qkv(x).unflatten(-1, (3, 3, 64)).permute(2, 0, 3, 1, 4)
    return layer.proj((attention_weights(q, k) @ v).transpose(1, 2).flatten(2))


@torch.no_grad()
def seconds(run, x: torch.Tensor) -> float:
    times = []
    for _ in range(2 if len(x[0]) > 2000 else 7):
        began = time.process_time()
        run(x)
        times.append(time.process_time() - began)
    return min(times)


patches = setting([32, 16, 8, 4, 2], short=[32, 16, 8])
tokens = np.array([(224 // p) ** 2 for p in patches])
x = {int(n): torch.randn(1, int(n), 192) for n in tokens}
with torch.no_grad():
    torch.testing.assert_close(plain(x[196]), layer(x[196]))
fused_time = np.array([seconds(layer, x[int(n)]) for n in tokens])
plain_time = np.array([seconds(plain, x[int(n)]) if n < 10_000 else np.nan for n in tokens])
table(
    ["patch", "tokens", "plain ms", "fused ms", "fused ms per token"],
    [
        (f"{p}", int(n), "" if np.isnan(a) else f"{1e3 * a:.1f}", f"{1e3 * b:.1f}", f"{1e3 * b / n:.4f}")
        for p, n, a, b in zip(patches, tokens, plain_time, fused_time, strict=True)
    ],
)

# %% [markdown]
# The last column says it best: each token gets dearer the more there are. We fit $t = aN + bN^2$ to the fused times and
# ask what pixels would cost.

# %%
a, b = np.linalg.lstsq(np.stack([tokens, tokens**2], 1) / fused_time[:, None], np.ones(len(tokens)), rcond=None)[0]
pixels = 224**2
predicted = a * pixels + b * pixels**2
print(f"one layer on pixels: about {predicted:.0f} s; twelve of them: {12 * predicted / 60:.0f} min per image")
print(f"the same layer on patches of 16: {fused_time[patches.index(16)] * 1e3:.1f} ms")
claim(
    "pixels cost more than a thousand times what patches of 16 cost", predicted > 1000 * fused_time[patches.index(16)]
)

fig, ax = plt.subplots(figsize=(6, 4))
line = np.geomspace(40, pixels, 50)
ax.plot(line, a * line + b * line**2, color=BLUE, linewidth=1, alpha=0.6)
ax.plot(tokens, fused_time, "o", color=BLUE, label="fused")
ax.plot(tokens, plain_time, "s", color=ORANGE, label="plain, map in memory")
ax.plot([pixels], [predicted], "o", markerfacecolor="white", color=BLUE)
ax.plot(line, fused_time[0] * line / tokens[0], "--", color=GREY, linewidth=1)
ax.text(5_000, fused_time[0] * 5_000 / tokens[0] / 4, "if it grew with N", color=GREY)
for p, n, t in [*zip(patches, tokens, fused_time, strict=True), (1, pixels, predicted)]:
    ax.annotate(f"{p}×{p}" if p > 1 else "pixels", (n, t), (-8, 4), textcoords="offset points", ha="right", color=BLUE)
ax.set(xscale="log", yscale="log", xlabel="tokens of a 224-pixel image", ylabel="seconds, one layer", xlim=(8, 1e5))
ax.legend(loc="lower right")
figure(fig, "02_cost", "Time of one attention layer against the number of tokens: it turns from linear to quadratic")

# %% [markdown]
# ## Pixels, where they fit
#
# It is the price that speaks against pixels, not the principle. On an 8×8 image there are only 64 of them. So let us
# really do it: the same small ViT on handwritten digits with patches of 4×4 (4 tokens), 2×2 (16) and 1×1 (64).

# %%
train_x, train_y, test_x, test_y = digits()
steps = setting(250, short=8)
results = {}
for patch in (4, 2, 1):
    model = vitkit.create_model("vit_digits_patch2_8", patch_size=patch, seed=0)
    _, took = fit(model, train_x, train_y, steps, lr=3e-3)
    results[patch] = accuracy(model, test_x, test_y), took
table(
    ["patch", "tokens", "test accuracy", "ms per step"],
    [(f"{p}×{p}", (8 // p) ** 2, f"{100 * acc:.1f} %", f"{1e3 * t / steps:.1f}") for p, (acc, t) in results.items()],
)
claim("pixels as tokens learn digits too", results[1][0] > 0.8)
claim("and cost more than patches", results[1][1] > 1.5 * results[2][1])

# %% [markdown]
# Pixels work, though they are slow to learn as well as to compute: in a token of one number there is little to see, and
# everything has to be found out by looking around. A transformer does not need to be told about patches ([Nguyen et al.
# 2024](https://arxiv.org/abs/2406.09415) found the same on larger images). They are simply the cheapest way to hand it
# a picture: one token for 256 pixels.
#
# ## In short
# - $N$ tokens make $N^2$ weights per head and layer. A patch side twice as long makes 16 times fewer.
# - Up to about $6D$ tokens the matrices cost more than the attention; beyond that the square takes over.
# - The patch size is the dial between cost and detail. That is what the 16 in ViT-B/16 says.
#
# **Try it.** Put a 384-pixel image in the first table. Where does ViT-B/16 stand then, and ViT-B/8?
#
# Next: [how an image becomes tokens](03_patches.md).
