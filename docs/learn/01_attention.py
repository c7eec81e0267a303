# %% [markdown]
# # 1. Attention, in numbers
#
# A Vision Transformer is mostly one operation, done over and over: **attention**. It lets every part of an image ask
# every other part a question and take home a mixture of the answers.
#
# We will compute it by hand for three tokens of two numbers each, small enough to check with a pencil. Then we will do
# it for real, and see that the library does the same thing, to the last digit that a float can hold.

# %%
import math

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from lib import BLUE, GREEN, GREY, ORANGE, figure, source, table
from torch.testing import assert_close

from vitkit.model.attention import Attention, attention_weights
from vitkit.model.config import ViTConfig

# %% [markdown]
# ## Three tokens
#
# A *token* is a vector that stands for a piece of the image. Imagine a photograph of a cat against the sky, and three
# pieces of it. We give each piece two numbers: how *furry* it looks, how *blue* it looks.

# %%
names = ["ear", "paw", "sky"]
x = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 2.0]])  # (tokens, width): furry, blue
table(["token", "furry", "blue"], [(name, *row.tolist()) for name, row in zip(names, x, strict=True)])

# %% [markdown]
# ## Query, key, value
#
# Each token makes three new vectors out of itself, each by a matrix:
#
# - the **query**: what am I looking for?
# - the **key**: what do I have to offer, as others search for it?
# - the **value**: what do I hand over when I am found?
#
# $$q = xW_q \qquad k = xW_k \qquad v = xW_v$$
#
# Training finds these matrices. Here we choose them: queries and keys keep the token as it is, so that like looks for
# like, and the value swaps the two numbers, only so that we can tell values from keys.

# %%
w_q = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
w_k = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
w_v = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
q, k, v = x @ w_q, x @ w_k, x @ w_v
table(
    ["token", "query", "key", "value"],
    [(n, *(str(m[i].tolist()) for m in (q, k, v))) for i, n in enumerate(names)],
)

# %% [markdown]
# ## Scores: who fits whom
#
# A query meets a key by their dot product. It is large where both point the same way.
#
# $$s_{ij} = q_i \cdot k_j$$
#
# The ear asks for fur. It scores $2\cdot2 + 0\cdot0 = 4$ with itself, 2 with the paw and 0 with the sky.

# %%
scores = q @ k.T
table(["asks ↓  is asked →", *names], [(name, *row.tolist()) for name, row in zip(names, scores, strict=True)])
assert scores[0].tolist() == [4.0, 2.0, 0.0]

# %% [markdown]
# ## Softmax: scores become shares
#
# We want a mixture, so the scores of one row must become shares: none negative, together one. Softmax takes the
# exponential of each score and divides by their sum:
#
# $$a_{ij} = \frac{\exp s_{ij}}{\sum_m \exp s_{im}}$$
#
# Before that, we divide the scores by $\sqrt{2}$, the root of the width of a key. The reason comes in a moment.

# %%
e = k.shape[1]  # the width of a key
scaled = scores / math.sqrt(e)
raised = scaled.exp()
a = raised / raised.sum(dim=1, keepdim=True)
print("the ear's row: ", " + ".join(f"{r:.2f}" for r in raised[0]), "=", f"{raised[0].sum():.2f}")
print("its shares:    ", " + ".join(f"{r:.2f}" for r in a[0]), "=", f"{a[0].sum():.2f}")
assert_close(a, scaled.softmax(dim=1))

# %%
fig, axes = plt.subplots(1, 2, figsize=(6, 3.1))
for ax, matrix, title in zip(axes, (scores, a), ("scores  q·k", "attention  softmax(q·k / √2)"), strict=True):
    ax.imshow(matrix, vmin=0)
    ax.set(title=title, xticks=range(3), yticks=range(3), xticklabels=names, yticklabels=names, xlabel="is asked")
    for i in range(3):
        for j in range(3):
            light = matrix[i, j] > 0.6 * matrix.max()
            number = f"{matrix[i, j]:.0f}" if matrix is scores else f"{matrix[i, j]:.2f}"
            ax.text(j, i, number, ha="center", va="center", color="black" if light else "white")
axes[0].set_ylabel("asks")
figure(
    fig, "01_three_tokens", "Two 3 by 3 tables: the scores of the three tokens, and the shares softmax makes of them"
)

# %% [markdown]
# Each row on the right is one token's attention. The ear looks mostly at itself, a little at the paw, hardly at the
# sky. This table is all that an *attention map* is. The pictures of [chapter 9](09_inside.md) are rows of it, laid out
# over the image.
#
# ## The answer: a weighted mean of values
#
# $$z_i = \sum_j a_{ij}\, v_j$$

# %%
by_hand = a[0, 0] * v[0] + a[0, 1] * v[1] + a[0, 2] * v[2]
print("the ear takes home", [round(n, 3) for n in by_hand.tolist()])
z = a @ v  # the same for all tokens at once
assert_close(z[0], by_hand)

# %% [markdown]
# That is attention. Three lines, if we let matrices do the work:
#
# $$A = \mathrm{softmax}\!\left(\frac{QK^\top}{\sqrt{e}}\right) \qquad \mathrm{SA}(X) = AV$$
#
# PyTorch has it as one fused operation that never stores $A$. It gives the same numbers, and so does the plain function
# that vitkit also has, for when you want to see $A$.


# %%
def attend(q, k, v):
    scores = q @ k.mT / math.sqrt(k.shape[-1])
    weights = scores.softmax(dim=-1)
    return weights @ v


assert_close(attend(q, k, v), z)
assert_close(F.scaled_dot_product_attention(q[None, None], k[None, None], v[None, None])[0, 0], z)
assert_close(attention_weights(q[None, None], k[None, None])[0, 0], a)
source(attention_weights)

# %% [markdown]
# ## Why divide by √e?
#
# Take queries and keys whose numbers have variance 1, as they do in a fresh network. Their dot product is a sum of $e$
# products, and variances add up: its variance is $e$, its typical size $\sqrt e$. A key of 64 numbers gives scores
# around 8, and $\exp 8$ is thousands of times $\exp 0$. One key takes everything, and softmax stops passing gradients,
# since moving a score a little changes nothing any more.
#
# We measure all three: the size of the scores, the largest share among 16 keys, and the gradient that reaches the
# scores.

# %%
generator = torch.Generator().manual_seed(0)
widths = [1, 4, 16, 64, 256]
found = []
for width in widths:
    queries = torch.randn(2000, 1, width, generator=generator)
    keys = torch.randn(2000, 16, width, generator=generator)
    raw = (queries @ keys.mT)[:, 0]
    row = [float(raw.std())]
    for s in (raw, raw / math.sqrt(width)):
        weights = s.softmax(dim=-1)
        # The derivative of share i by its own score is aᵢ(1 − aᵢ).
        row += [float(weights.amax(dim=-1).mean()), float((weights * (1 - weights)).mean())]
    found.append(row)
table(
    ["e", "size of q·k", "√e", "largest share: raw", "scaled", "slope: raw", "scaled"],
    [
        (e, f"{s:.2f}", f"{e**0.5:.2f}", f"{m:.2f}", f"{ms:.2f}", f"{g:.4f}", f"{gs:.4f}")
        for e, (s, m, g, ms, gs) in zip(widths, found, strict=True)
    ],
)
assert all(abs(row[0] / math.sqrt(width) - 1) < 0.05 for width, row in zip(widths, found, strict=True))

# %%
fig, (left, right) = plt.subplots(1, 2, figsize=(6, 3.2))
left.plot(widths, [math.sqrt(width) for width in widths], color=GREY, linewidth=7, alpha=0.35)
left.plot(widths, [row[0] for row in found], "o-", color=BLUE)
left.set(xscale="log", yscale="log", title="size of q·k", xlabel="width of a key, e", xticks=widths, yticks=[1, 4, 16])
left.text(20, 2.6, "band: √e", color=GREY)
right.plot(widths, [row[1] for row in found], "o-", color=ORANGE)
right.plot(widths, [row[3] for row in found], "o-", color=GREEN)
right.set(xscale="log", ylim=(0, 1), title="largest of 16 shares", xlabel="width of a key, e", xticks=widths)
right.text(5, 0.62, "raw", color=ORANGE)
right.text(16, 0.12, "divided by √e", color=GREEN, ha="center")
for ax in (left, right):
    ax.minorticks_off()
    ax.set_xticklabels([str(width) for width in widths])
left.set_yticklabels(["1", "4", "16"])
figure(fig, "01_scale", "Left: scores grow with the root of the key's width. Right: unscaled, one key takes nearly all")

# %% [markdown]
# Divided by $\sqrt e$, the shares look the same whatever the width. Note what $e$ is: the width of **one head's** key,
# not of the whole model. Mixing these up is a classic bug; [chapter 12](12_bugs.md) shows what it does.
#
# ## Several heads
#
# One softmax row is one way to look. But an ear may want to know two things at once: *which pieces are furry like me?*
# and *what is next to me?* A single mixture would blur both. So the width is cut into $h$ slices, the **heads**. Each
# has queries, keys and values of its own, makes its own map, and the answers are laid side by side and mixed by one
# more matrix:
#
# $$\mathrm{MSA}(X) = [\,\mathrm{SA}_1(X);\ \ldots;\ \mathrm{SA}_h(X)\,]\,U$$
#
# Here is the library's attention layer with two heads of width 4, and the same computed head by head with the function
# from above. All heads' matrices live in one, `qkv`: first all queries, then all keys, then all values.

# %%
torch.manual_seed(0)
layer = Attention(ViTConfig(width=8, heads=2, head_width=4)).eval()
tokens = torch.randn(1, 5, 8)  # (batch, tokens, width)

answers = []
for head in range(2):
    rows = [slice(8 * part + 4 * head, 8 * part + 4 * head + 4) for part in range(3)]  # of q, of k, of v
    hq, hk, hv = (tokens @ layer.qkv.weight[r].T + layer.qkv.bias[r] for r in rows)
    answers.append(attend(hq, hk, hv))
together = torch.cat(answers, dim=-1) @ layer.proj.weight.T + layer.proj.bias

assert_close(layer(tokens), together)
print("two heads by hand equal Attention.forward: largest difference", f"{(layer(tokens) - together).abs().max():.1e}")

# %% [markdown]
# And this is that forward: the code that trains, serves and explains every model of the library. `rearrange` does with
# names what the loop above does with slices. `rope` is for rotary positions, which [chapter 4](04_positions.md)
# explains, and `capture` lets [chapter 9](09_inside.md) look at the map.

# %%
source(Attention.forward)

# %% [markdown]
# Do more heads cost more? No: the slices get thinner as they get more.

# %%
for heads in (1, 2, 4, 8):
    counted = Attention(ViTConfig(width=64, heads=heads, head_width=64 // heads))
    print(f"{heads} heads of width {64 // heads:2}: {sum(p.numel() for p in counted.parameters()):,} parameters")

# %% [markdown]
# ## What attention cannot see
#
# Shuffle the tokens, and the answers are shuffled the same way, with not one number changed. Attention looks at a
# *set*. It has no idea which patch was left of which.

# %%
order = torch.tensor([3, 1, 4, 0, 2])
assert_close(layer(tokens[:, order]), layer(tokens)[:, order])
print("attention of shuffled tokens = shuffled attention")

# %% [markdown]
# That is a strength: nothing about a grid is built in, everything is learned. It is also why a Vision Transformer must
# be *told* where each patch was ([chapter 4](04_positions.md)).
#
# ## In short
# - A token's query meets all keys; softmax makes shares of the scores; the answer is that mixture of values.
# - Dividing by the root of the head's width keeps softmax where it can learn.
# - Heads are several such looks side by side, at no extra cost.
# - Attention sees a set, not a sequence and not a grid.
#
# **Try it.** Set `w_k` to `-w_q` at the top: whom does the ear look at now? Multiply `scaled` by 100 before the
# softmax: what becomes of the mean?
#
# Next: [why tokens are patches and not pixels](02_cost.md).
