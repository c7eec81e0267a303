# %% [markdown]
# # 6. The head
#
# The last block hands over a set of tokens. The image needs *one* answer. So: pool the tokens into one vector, and let
# a linear layer turn it into a number per class.
#
# $$y = \mathrm{LN}(z_L^0) \qquad \text{logits} = yW + b$$

# %%
import copy

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from lib import BLUE, GREY, ORANGE, accuracy, claim, digits, figure, fit, setting, source, table
from torch import nn
from torch.testing import assert_close

import vitkit
from vitkit.model.head import Pool, PreLogits
from vitkit.model.vit import ViT

train_x, train_y, test_x, test_y = digits()

# %% [markdown]
# ## From tokens to logits
#
# The whole head is one line. Pool, norm if it comes here, hidden layer if there is one, classifier:

# %%
source(ViT.forward_heads)
model = vitkit.create_model("vit_digits_patch2_8", seed=0).eval()
with torch.no_grad():
    tokens = model.forward_features(test_x[:3])  # after the last norm
    by_hand = tokens[:, 0] @ model.head.weight.T + model.head.bias
    assert_close(model(test_x[:3]), by_hand)
print("tokens", tuple(tokens.shape), "→ class token", tuple(tokens[:, 0].shape), "→ logits", tuple(by_hand.shape))

# %% [markdown]
# The 16 patch tokens are thrown away here. They have done their work: what they knew went into the class token, block
# by block.
#
# ## Class token or mean?
#
# Or do we keep them, and average? Both are common. The mean needs no extra token; the class token can choose where to
# look. Which is better?

# %%
source(Pool.forward)
steps, seeds = setting(300, short=8), setting(2, short=1)
found = {}
for pooling, has_token in (("cls", True), ("mean", False)):
    for seed in range(seeds):
        m = vitkit.create_model("vit_digits_patch2_8", pooling=pooling, class_token=has_token, seed=seed)
        fit(m, train_x, train_y, steps, seed=seed)
        found.setdefault(pooling, []).append(100 * accuracy(m, test_x, test_y))
table(
    ["pooling", "test accuracy, mean", "by seed"],
    [(k, f"{np.mean(v):.1f} %", "  ".join(f"{a:.1f}" for a in v)) for k, v in found.items()],
)
gap = abs(np.mean(found["cls"]) - np.mean(found["mean"]))
print(f"the difference of the means: {gap:.1f} points; between seeds of the same kind up to "
      f"{max(np.ptp(v) for v in found.values()):.1f}")  # fmt: skip
claim("both learn the digits", min(map(min, found.values())) > 90)

# %% [markdown]
# Compare the two numbers of the last line before you believe in either. The paper found the same: once the learning
# rate suits, both reach the same accuracy (its appendix D.3). Pick by what you need. Features of *patches* for other
# tasks? The mean keeps them useful. Attention maps that are easy to read? The class token has one row of its own.
#
# ## Pre-training: a hidden layer
#
# For pre-training on a large data set the paper puts one more layer before the classifier:

# %%
source(PreLogits.forward)

# %% [markdown]
# The tanh is not decoration. Two linear layers without a bend between them *are* one linear layer, only slower:

# %%
torch.manual_seed(0)
one, two = nn.Linear(64, 128), nn.Linear(128, 10)
x = torch.randn(5, 64)
joined = nn.Linear(64, 10)
with torch.no_grad():
    joined.weight.copy_(two.weight @ one.weight)
    joined.bias.copy_(two.weight @ one.bias + two.bias)
    assert_close(two(one(x)), joined(x), rtol=1e-4, atol=1e-5)
    print(f"two linear layers against one: largest difference {(two(one(x)) - joined(x)).abs().max():.1e}")
    print(f"with tanh between them:        largest difference {(two(torch.tanh(one(x))) - joined(x)).abs().max():.2f}")
count = sum(p.numel() for layer in (one, two) for p in layer.parameters())
print(f"{count:,} parameters that could do no more than {sum(p.numel() for p in joined.parameters()):,}")

# %% [markdown]
# ## Fine-tuning: a head of zeros
#
# Now the model shall learn *other* classes. We pre-train on the digits 0 to 4, with a hidden layer. Then we cut the
# head off and put a new one there, for 5 to 9.

# %%
old, new = train_y < 5, train_y >= 5
pretrained = vitkit.create_model("vit_digits_patch2_8", num_classes=5, head_hidden=64, seed=0)
fit(pretrained, train_x[old], train_y[old], setting(300, short=8))
print(f"digits 0 to 4: {100 * accuracy(pretrained, test_x[test_y < 5], test_y[test_y < 5]):.1f} % of the test images")

model = copy.deepcopy(pretrained)
model.reset_classifier(5)
source(ViT.reset_classifier)

# %% [markdown]
# The new classifier is **all zeros**. Doesn't a network need random weights? It does where many neurons would otherwise
# all learn the same thing. A single last layer has no such problem: its gradient is different for every class from the
# first step. And zeros have three pleasant consequences. Every class gets the same probability, so the loss begins at
# exactly $\ln 5$:

# %%
images, labels = train_x[new][:64], train_y[new][:64] - 5
loss = F.cross_entropy(model(images), labels)
loss.backward()
print(f"loss before the first step {loss.item():.6f},  ln 5 = {np.log(5):.6f}")
assert abs(loss.item() - np.log(5)) < 1e-6

# %% [markdown]
# The first gradient goes to the head alone. What flows down into the body is multiplied by the head's weights, and
# these are zero. So the features that pre-training built are not shaken by a classifier that knows nothing yet:

# %%
body = sum(p.grad.norm() for n, p in model.named_parameters() if not n.startswith("head."))
print(f"gradient of the head: {model.head.weight.grad.norm():.4f},  of everything below it: {body:.4f}")
assert body == 0

# %% [markdown]
# Compare a careless start, a random head with large weights. Same body, same batches. We watch the loss, and how far
# the features have moved from where pre-training left them. First with plain SGD, with which the paper fine-tunes, then
# with AdamW.


# %%
def tune(head: str, optimizer_of) -> tuple[list[float], list[float], float]:
    """Fine-tune on 5 to 9. Losses, drift of the features before each step, accuracy in the end."""
    model = copy.deepcopy(pretrained)
    model.reset_classifier(5)
    if head == "random":
        nn.init.normal_(model.head.weight, std=0.5, generator=torch.Generator().manual_seed(0))
    optimizer, generator = optimizer_of(model.parameters()), torch.Generator().manual_seed(0)
    x, y, watched = train_x[new], train_y[new] - 5, test_x[test_y >= 5][:64]
    losses, drift, start = [], [], None
    for _ in range(steps):
        with torch.no_grad():
            features = model.forward_features(watched)[:, 0]
        start = features if start is None else start
        drift.append(((features - start).norm() / start.norm()).item())
        chosen = torch.randint(len(x), (32,), generator=generator)
        loss = F.cross_entropy(model(x[chosen]), y[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, drift, accuracy(model, test_x[test_y >= 5], test_y[test_y >= 5] - 5)


steps, early = setting((60, 5), short=(4, 3))
makers = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.02, momentum=0.9),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=5e-4),
}
runs = {(head, name): tune(head, makers[name]) for name in makers for head in ("zeros", "random")}
fig, axes = plt.subplots(2, 2, figsize=(6, 5), sharex=True)
for row, name in zip(axes, makers, strict=True):
    for head, colour in (("zeros", BLUE), ("random", ORANGE)):
        losses, drift, _ = runs[head, name]
        row[0].plot(losses, color=colour, label={"zeros": "head of zeros", "random": "random head"}[head])
        row[1].plot(drift, color=colour)
    row[0].axhline(np.log(5), color=GREY, linewidth=1, linestyle=":")
    row[0].set(title=f"{name}: loss", ylim=(0, None))
    row[1].set(title=f"{name}: how far features moved", ylim=(0, None))
axes[0, 0].legend()
for ax in axes[1]:
    ax.set_xlabel("step")
figure(fig, "06_zero_head", "Fine-tuning from a head of zeros and from a random one: loss, and drift of the features")
table(
    ["head", "optimizer", "first loss", f"drift after {early} steps", "test accuracy"],
    [(h, n, f"{lo[0]:.3f}", f"{dr[early]:.3f}", f"{100 * a:.1f} %") for (h, n), (lo, dr, a) in runs.items()],
)
claim("with SGD the head of zeros moves the features less in the first steps",
      runs["zeros", "SGD"][1][early] < runs["random", "SGD"][1][early])  # fmt: skip

# %% [markdown]
# With SGD a step is as long as the gradient says, and the gradient into the body is as large as the head's weights:
# zeros protect the features until the head knows something. AdamW divides each gradient by its usual size. Its steps
# are about equally long however small the gradient is, and after the very first one the protection is gone. Compare the
# drift in the two rows.
#
# So with AdamW one goes a step further and *fits* the new head to frozen features before anything else moves: the probe
# of [chapter 10](10_transfer.md).
#
# ## In short
# - The head sees one pooled vector: the class token or a mean. Neither wins by itself.
# - A hidden layer needs its bend.
# - A new head starts at zero: the loss is $\ln K$, the first gradient goes to the head alone.
#
# **Try it.** Fill *two* layers of a network with zeros and train. Why does it never start?
#
# Next: [the whole model](07_whole_model.md).
