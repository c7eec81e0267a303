# %% [markdown]
# # 5. The block
#
# Everything between the first token and the last is the same block, repeated. Two lines:
#
# $$z' = \mathrm{MSA}(\mathrm{LN}(z)) + z$$
#
# $$z = \mathrm{MLP}(\mathrm{LN}(z')) + z'$$
#
# Attention moves information *between* tokens. The MLP works on each token *alone*. Around both stand two quiet
# helpers, without which nothing deep would train: the norm and the plus sign.

# %%
import copy

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from lib import BLUE, GREY, ORANGE, accuracy, claim, digits, figure, fit, setting, smooth, source, table
from matplotlib.ticker import NullFormatter
from torch import nn
from torch.testing import assert_close

import vitkit
from vitkit.model.block import MLP, Block
from vitkit.model.dropout import DropPath

source(Block.forward)

# %% [markdown]
# (`ls1`, `ls2`, `drop_path1` and `drop_path2` do nothing unless you ask for them. The end of the chapter says what they
# are for.)
#
# ## The MLP: each token by itself
#
# It widens the token to four times its width, bends it, and narrows it again. Most of a model's parameters are here.

# %%
source(MLP.forward)
base = vitkit.model.VARIANTS["vit_base_patch16_224"].config
block = Block(base)
counts = {name: sum(p.numel() for p in part.parameters()) for name, part in block.named_children()}
whole = sum(counts.values())
table(["part", "parameters", "share"], [(n, c, f"{c / whole:.1%}") for n, c in counts.items() if c])

small = vitkit.create_model("vit_digits_patch2_8", seed=0).eval().blocks[0]
tokens = torch.randn(1, 5, 64, generator=torch.Generator().manual_seed(0))
changed = tokens.clone()
changed[0, 2] += 1
with torch.no_grad():
    moved_by_mlp = (small.mlp(changed) - small.mlp(tokens)).abs().sum(dim=-1)[0] > 1e-6
    moved_by_attention = (small.attn(changed) - small.attn(tokens)).abs().sum(dim=-1)[0] > 1e-6
print("\nchange token 2: the MLP's output changes for tokens", moved_by_mlp.nonzero().flatten().tolist())
print("                attention's output changes for tokens", moved_by_attention.nonzero().flatten().tolist())

# %% [markdown]
# ## GELU: the bend
#
# Without a bend, two linear layers are one linear layer. ReLU bends with a corner: 0 below zero, $x$ above. GELU does
# it smoothly: it keeps $x$ as often as a normal random number falls below it.
#
# $$\mathrm{GELU}(x) = x\,\Phi(x)$$

# %%
x = torch.linspace(-4, 4, 401, requires_grad=True)
gelu = F.gelu(x)
assert_close(gelu, x * torch.special.ndtr(x))
slope = torch.autograd.grad(gelu.sum(), x)[0]
fig, (left, right) = plt.subplots(1, 2, figsize=(6, 3))
grid = x.detach()
left.plot(grid, F.relu(grid), "--", color=GREY, label="ReLU")
left.plot(grid, gelu.detach(), color=BLUE, label="GELU")
left.set(title="value", ylim=(-0.6, 3), xlim=(-3, 3))
right.plot(grid, (grid > 0).float(), "--", color=GREY)
right.plot(grid, slope, color=BLUE)
right.set(title="slope", xlim=(-3, 3))
left.legend()
figure(fig, "05_gelu", "GELU and ReLU with their slopes: GELU has no corner and lets a little through below zero")
print(f"its lowest point: {gelu.min().item():.3f} at x = {grid[gelu.argmin()].item():.2f}")

# %% [markdown]
# ## The plus sign
#
# A branch does not *replace* the token, it *adds* to it. If both branches say nothing, the block is the identity:

# %%
silent = copy.deepcopy(small)
for layer in (silent.attn.proj, silent.mlp.fc2):
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
assert torch.equal(silent(tokens), tokens)
print("a block whose branches are silent returns its input, bit by bit")

# %% [markdown]
# So a deep stack starts out as something close to "pass it on", and every block learns what to *change*.
#
# What if we left the plus signs out? Attention is an average, and averages of averages grow alike. We stack 24 fresh
# blocks and measure two things at each: how alike the tokens of an image are (the mean cosine between them), and how
# much gradient arrives. With the plus signs, without them, and with the norm in another place, to which we come next.


# %%
class NoResidual(Block):
    def forward(self, x, rope=None):
        return self.mlp(self.norm2(self.attn(self.norm1(x), rope)))


class PostNorm(Block):
    """The order of the first Transformer (Vaswani et al. 2017): add, then normalise."""

    def forward(self, x, rope=None):
        x = self.norm1(x + self.attn(x, rope))
        return self.norm2(x + self.mlp(x))


def stack(kind: type[Block], depth: int, seed: int = 0, **changes):
    """The digits model with another block. Its weights are the same ones for every kind."""
    model = vitkit.create_model("vit_digits_patch2_8", depth=depth, position="learned", seed=seed, **changes)
    for block in model.blocks:
        block.__class__ = kind
    return model


def watch(model, images, labels) -> tuple[list[float], list[float]]:
    """After each block: the mean cosine between the tokens of an image, and the size of the gradient there."""
    x, rope = model.embed(images)
    seen = []
    for block in model.blocks:
        x = block(x, rope)
        x.retain_grad()
        seen.append(x)
    F.cross_entropy(model.head(model.attn_pool(model.norm(x))), labels).backward()
    units = [F.normalize(t.detach(), dim=-1) for t in seen]
    return [(u @ u.mT).mean().item() for u in units], [t.grad.norm().item() for t in seen]


train_x, train_y, test_x, test_y = digits()
depth = setting(24, short=6)
kinds = {"pre-norm": (Block, BLUE), "post-norm": (PostNorm, ORANGE), "no residual": (NoResidual, GREY)}
seen = {name: watch(stack(kind, depth), train_x[:64], train_y[:64]) for name, (kind, _) in kinds.items()}
fig, (left, right) = plt.subplots(1, 2, figsize=(6, 3.3))
for name, (alike, arriving) in seen.items():
    style = dict(color=kinds[name][1], marker="o", markersize=3, label=name)
    left.plot(range(1, depth + 1), alike, **style)
    right.plot(range(1, depth + 1), arriving, **style)
left.set(title="how alike tokens are", xlabel="block", ylim=(0, 1.05))
right.set(title="gradient, before the first step", xlabel="block", yscale="log")
right.yaxis.set_minor_formatter(NullFormatter())
left.legend(loc="lower right")
figure(
    fig,
    "05_residual",
    "Without residuals all tokens are the same after a few blocks; with pre-norm they stay different",
)
for name, (alike, arriving) in seen.items():
    print(f"{name:12} cosine after the last block {alike[-1]:.3f}; gradient at the first block {arriving[0]:.2g}")
assert seen["no residual"][0][-1] > 0.99
assert seen["pre-norm"][0][-1] < 0.9

# %% [markdown]
# Without the plus signs every token of the image has become the same vector after a few blocks. There is nothing left
# to look at ([Dong et al. 2021](https://arxiv.org/abs/2103.03404) show that pure attention must end there). With them,
# what a token was stays in the sum, and gradients have a road straight down to the first block.

# %% [markdown]
# ## Pre-norm or post-norm
#
# The first Transformer normalised *after* adding. The Vision Transformer, like most that came later, normalises
# *before* each branch and leaves the road of plus signs free. Same parts, same weights, other order. We train both side
# by side, from the same first weights, on the same batches, with a learning rate that is on the high side and no
# warm-up.

# %%
steps = setting(250, short=8)
deep = setting(12, short=3)
runs = {}
for name in ("pre-norm", "post-norm"):
    model = stack(kinds[name][0], deep)
    losses, _ = fit(model, train_x, train_y, steps, lr=3e-3, warmup=0.0)
    runs[name] = losses, accuracy(model, test_x, test_y)
fig, ax = plt.subplots(figsize=(6, 3.3))
for name, (losses, _) in runs.items():
    ax.plot(smooth(losses, max(1, steps // 25)), color=kinds[name][1], label=name)
ax.axhline(np.log(10), color=GREY, linewidth=1, linestyle=":")
ax.text(0.98, np.log(10) + 0.04, "guessing", color=GREY, ha="right", transform=ax.get_yaxis_transform())
ax.set(xlabel="step", ylabel="training loss", ylim=(0, 2.8), title=f"{deep} blocks, no warm-up")
ax.legend(loc="center right")
figure(fig, "05_pre_post", "Training loss of pre-norm and post-norm models from the same first weights")
for name, (losses, acc) in runs.items():
    print(f"{name:10} last loss {np.mean(losses[-20:]):.3f}   test accuracy {100 * acc:.1f} %")
claim("pre-norm learns faster here", np.mean(runs["pre-norm"][0][-20:]) < np.mean(runs["post-norm"][0][-20:]))

# %% [markdown]
# Post-norm is not hopeless: with a gentle warm-up and care it trains, and shallow models never needed more. Pre-norm
# asks for less care. Its price: tokens grow from block to block, as every branch adds and nothing shrinks. Hence one
# last norm after the last block, which is easy to forget.

# %%
model = stack(Block, depth)
with torch.no_grad():
    lengths = [t.norm(dim=-1).mean().item() for t in model.forward_intermediates(test_x[:64])]
print(f"mean length of a token after block 1: {lengths[0]:.2f}, after block {depth}: {lengths[-1]:.2f}")

# %% [markdown]
# ## Layer norm or batch norm
#
# Layer norm takes **one token**, subtracts the mean of its numbers and divides by their spread. Then a learned factor
# and offset per channel:

# %%
token = 5 + 3 * torch.randn(64, generator=torch.Generator().manual_seed(1))
norm = nn.LayerNorm(64, eps=1e-6)
by_hand = (token - token.mean()) / (token.var(correction=0) + 1e-6).sqrt()
assert_close(norm(token), by_hand * norm.weight + norm.bias)
out = norm(token)
print(f"mean {token.mean():.2f}, spread {token.std():.2f}  →  mean {out.mean():.2f}, spread {out.std():.2f}")

# %% [markdown]
# Batch norm takes **one channel** over all images of the batch. Then what the model says of an image depends on who
# else is in the batch. We ask two models about the same digit, first in the company of seven sevens, then of seven
# mixed digits:


# %%
class OverBatch(nn.Module):
    """Batch norm in the place of a layer norm: statistics over batch and tokens, per channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x):
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


def with_batch_norm(model):
    for block in model.blocks:
        block.norm1, block.norm2 = OverBatch(64), OverBatch(64)
    model.norm = OverBatch(64)
    return model


digit = test_x[:1]
sevens, mixed = train_x[train_y == 7][:7], train_x[:7]
for name, model in (("layer norm", stack(Block, 4)), ("batch norm", with_batch_norm(stack(Block, 4)))):
    with torch.no_grad():
        model.train()
        first, second = (model(torch.cat([digit, company]))[0] for company in (sevens, mixed))
    print(f"{name}: the digit's logits differ by {(first - second).abs().max():.2g} with the company it keeps")

# %% [markdown]
# That makes batch norm hostage to the batch: to its size, to its order, to how it is split over machines, and to the
# switch between training and use. With large, well mixed batches it can work. With small ones?

# %%
steps = setting(300, short=6)
found = {}
for batch in (32, 4):
    for name in ("layer norm", "batch norm"):
        model = stack(Block, 4)
        model = with_batch_norm(model) if name == "batch norm" else model
        fit(model, train_x, train_y, steps, batch=batch, lr=1e-3)
        found[name, batch] = accuracy(model, test_x, test_y)
table(["test accuracy", "batch of 32", "batch of 4"],
      [(n, *(f"{100 * found[n, b]:.1f} %" for b in (32, 4))) for n in ("layer norm", "batch norm")])  # fmt: skip
claim("with a batch of four, layer norm is ahead", found["layer norm", 4] > found["batch norm", 4])

# %% [markdown]
# ## Dropout and stochastic depth
#
# **Dropout** sets random numbers to zero while training and scales the rest up, so that the mean stays. No number may
# rely on one other number being there. In use it does nothing.
#
# **Stochastic depth** is the same idea one size larger: now and then an image skips a whole branch. The plus sign makes
# this possible; the token just passes.

# %%
source(DropPath.forward)
torch.manual_seed(0)
ones = torch.ones(10_000, 1, 1)
for layer in (nn.Dropout(0.2), DropPath(0.2)):
    out = layer.train()(ones)
    values, used = sorted({round(v, 2) for v in out.flatten().tolist()}), layer.eval()(ones)
    print(f"{type(layer).__name__:8} of ones: values {values}, mean {out.mean():.3f}; in use {used.mean():.0f}")

# %% [markdown]
# **LayerScale** (`ls1`, `ls2`) multiplies what a branch adds by a small learned factor per channel. Very deep models
# start closer to the identity that way.
#
# ## In short
# - Attention between tokens, MLP within a token, each on a normalised input, each added back.
# - The plus signs are a road for gradients. Pre-norm keeps it free, and needs one norm at the very end.
# - Layer norm asks nobody else in the batch.
#
# **Try it.** Train post-norm again with `warmup=0.3` and `lr=1e-3`. Does it catch up?
#
# Next: [the head](06_head.md).
