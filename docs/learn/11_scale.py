# %% [markdown]
# # 11. From Base to Huge
#
# ViT comes in sizes. What does the next one cost: in parameters, in memory, in arithmetic, in time? Everything here is
# counted or measured, and none of the large models is ever loaded.

# %%
import time

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from lib import BLUE, GREY, ORANGE, claim, figure, setting, source, table

import vitkit
from vitkit.model import VARIANTS
from vitkit.model.summary import totals
from vitkit.plan.activations import activations
from vitkit.plan.job import Job

names = {
    "Tiny/16": "vit_tiny_patch16_224",
    "Small/16": "vit_small_patch16_224",
    "Base/16": "vit_base_patch16_224",
    "Large/16": "vit_large_patch16_224",
    "Huge/14": "vit_huge_patch14_224",
    "giant/14": "vit_giant_patch14_224",
    "Gigantic/14": "vit_gigantic_patch14_224",
}
configs = {name: VARIANTS[key].config for name, key in names.items()}

# %% [markdown]
# ## The sizes
#
# `device="meta"` makes a model of shapes alone: a Gigantic one in no memory at all. The library counts on it.

# %%
source(totals)
counted = {name: totals(c) for name, c in configs.items()}
table(
    ["model", "width", "depth", "heads", "tokens", "million parameters", "billion multiply-adds"],
    [
        (n, c.width, c.depth, c.heads, c.grid[0] * c.grid[1] + 1,
         f"{counted[n].parameters / 1e6:,.1f}", f"{counted[n].macs / 1e9:,.1f}")
        for n, c in configs.items()
    ],
)  # fmt: skip

# %% [markdown]
# A rule of thumb hides in there: a block has about $12D^2$ parameters ($4D^2$ attention, $8D^2$ MLP). So a model has
# about $12LD^2$, and each token meets each of them once per forward. How good is it?

# %%
rows = []
for name, c in configs.items():
    guess = 12 * c.depth * c.width**2
    tokens = c.grid[0] * c.grid[1] + 1
    rows.append((name, f"{guess / counted[name].parameters:.2f}", f"{guess * tokens / counted[name].macs:.2f}"))
table(["model", "12LD² / parameters", "tokens · 12LD² / multiply-adds"], rows)

# %% [markdown]
# (giant and Gigantic make their MLPs a little wider than four times $D$. What is missing in the small ones is the
# classifier and the $N^2$ part.)
#
# ## Memory to use it, memory to train it
#
# Using a model takes its weights. Training takes the weights, as many gradients, and AdamW's two averages: four numbers
# per parameter, 16 bytes in float32. Plus what the forward must *remember* for the backward, and that grows with the
# batch.
#
# How much is remembered? PyTorch lets us listen: every tensor that is saved for the backward passes a hook. All blocks
# are alike, so we listen to a model of one block and to one of two. What the second adds, every further one adds too.


# %%
def kept(config, checkpoint: bool) -> int:
    """Bytes that the forward of one image keeps for its backward, weights not counted."""
    model = vitkit.create_model(config, seed=0).train()
    model.set_grad_checkpointing(checkpoint)
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    found = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage  # views of the same memory count once
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(torch.zeros(1, config.in_channels, *config.image_size))
    return sum(storage.nbytes() for storage in found.values())


def remembered(config, checkpoint: bool = False) -> int:
    one, two = (kept(config.replace(depth=depth), checkpoint) for depth in (1, 2))
    return one + (config.depth - 1) * (two - one)


gib = 2**30
shown = list(configs)[: setting(7, short=2)]
memory = {n: (remembered(configs[n]), remembered(configs[n], checkpoint=True)) for n in shown}
table(
    ["model", "weights", "to train", "+ per image", "with checkpoints", "images in 24 GiB", "with checkpoints "],
    [
        (
            n, f"{4 * p / gib:.2f} GiB", f"{16 * p / gib:.2f} GiB", f"{a / gib:.3f} GiB", f"{b / gib:.3f} GiB",
            f"{max(0, int((24 * gib - 16 * p) / a))}", f"{max(0, int((24 * gib - 16 * p) / b))}",
        )
        for n, (a, b) in memory.items()
        for p in [counted[n].parameters]
    ],
)  # fmt: skip

# %% [markdown]
# *With checkpoints* each block keeps only its input and is computed again in the backward: more time, a fraction of the
# memory (`machine.checkpoint_blocks=true`; [Chen et al. 2016](https://arxiv.org/abs/1604.06174)). Read the last
# columns: it decides whether a model trains on your card at all. (They leave out the workspace of the one block that is
# being recomputed.)
#
# Is it right to count two blocks and multiply? We check with a whole model that is small enough. And since every one of
# these tensors has a known shape, the bytes can be written down without running anything: that is how `vitkit plan`
# says before a run whether it will fit.

# %%
two_blocks, all_blocks = memory["Tiny/16"][0], kept(configs["Tiny/16"], checkpoint=False)
print(f"Tiny/16, one image: {two_blocks / 2**20:.2f} MiB from two blocks, {all_blocks / 2**20:.2f} MiB from all twelve")
assert abs(all_blocks / two_blocks - 1) < 0.01
planned = activations(Job(configs["Tiny/16"], batch_size=1)).total
print(f"`vitkit plan` counts {planned / 2**20:.2f} MiB, from the config alone")
assert abs(planned / all_blocks - 1) < 0.05

# %% [markdown]
# ## Time: measure three, predict the fourth
#
# If arithmetic is all that matters, time should grow with the multiply-adds. We measure the smaller models on this
# machine (processor time, one image, one thread), and fit one number: how many multiply-adds per second it does. Then
# we predict the next model, and only then look.


# %%
@torch.inference_mode()
def seconds(name: str, tries: int = 4) -> float:
    model = vitkit.create_model(names[name], seed=0).eval()
    image = torch.randn(1, 3, 224, 224)
    times = []
    for _ in range(tries):
        began = time.process_time()
        model(image)
        times.append(time.process_time() - began)
    return min(times)


known, asked = setting((["Tiny/16", "Small/16", "Base/16"], "Large/16"), short=(["Tiny/16"], "Small/16"))
times = {name: seconds(name) for name in known}
rate = np.exp(np.mean([np.log(counted[n].macs / t) for n, t in times.items()]))
predicted = counted[asked].macs / rate
times[asked] = seconds(asked, tries=2)
table(["model", "ms per image", "billion multiply-adds per second"],
      [(n, f"{1e3 * t:.0f}", f"{counted[n].macs / t / 1e9:.0f}") for n, t in times.items()])  # fmt: skip
print(f"\n{asked}: predicted {1e3 * predicted:.0f} ms, measured {1e3 * times[asked]:.0f} ms")
claim("the prediction is within a factor of two", 0.5 < times[asked] / predicted < 2)

# %%
fig, ax = plt.subplots(figsize=(6, 3.8))
macs = np.array([counted[n].macs for n in configs]) / 1e9
ax.plot(macs, macs * 1e9 / rate, color=GREY, linewidth=1, linestyle="--")
for n, c in counted.items():
    there = n in times
    y = times[n] if there else c.macs / rate
    colour = ORANGE if n == asked else BLUE
    ax.plot(c.macs / 1e9, y, "o", color=colour, markerfacecolor=colour if there else "white", markersize=8)
    ax.annotate(n, (c.macs / 1e9, y), (8, -10), textcoords="offset points")
ax.set(
    xscale="log", yscale="log", xlabel="billion multiply-adds", ylabel="seconds per image, one thread", xlim=(0.7, 6e3)
)
ax.plot([], [], "o", color=BLUE, label="measured")
ax.plot([], [], "o", color=ORANGE, label="predicted, then measured")
ax.plot([], [], "o", color=BLUE, markerfacecolor="white", label="predicted")
ax.legend(loc="upper left")
figure(
    fig, "11_time", "Time per image against multiply-adds, measured for the small models, predicted for the large ones"
)

# %% [markdown]
# A training step costs about three forwards: one forward, and a backward that is twice as much, since each product
# needs a gradient for its weights and one for its input.

# %%
model = vitkit.create_model("vit_tiny_patch16_224", seed=0).train()
images, labels = torch.randn(4, 3, 224, 224), torch.randint(1000, (4,))
pace = {"forward": [], "forward and backward": []}
for _ in range(setting(4, short=2)):
    began = time.process_time()
    with torch.no_grad():
        model(images)
    pace["forward"].append(time.process_time() - began)
    began = time.process_time()
    F.cross_entropy(model(images), labels).backward()
    pace["forward and backward"].append(time.process_time() - began)
ratio = min(pace["forward and backward"]) / min(pace["forward"])
print(f"Tiny/16: a training step takes {ratio:.1f} times as long as a forward")

# %% [markdown]
# So training on $n$ images for $e$ epochs is about $3\cdot2\cdot\text{multiply-adds}\cdot n\cdot e$ floating point
# operations (a multiply-add is two). Put in your machine and see how many days that is before you start; `vitkit plan
# --model NAME --epochs 90 --calibrate` does it with the speed that it measures on yours.

# %%
images_seen = 1_281_167 * 90  # ImageNet-1k, 90 epochs
rows = []
for name in configs:
    operations = 3 * 2 * counted[name].macs * images_seen
    rows.append(
        (name, f"{operations / 1e18:,.0f}", *(f"{operations / (0.4 * peak) / 86400:,.2f}" for peak in (1e14, 1e15)))
    )
table(["model", "exa-operations", "days at 40 % of 100 TFLOP/s", "at 40 % of 1 PFLOP/s"], rows)

# %% [markdown]
# ## Width, depth, patch: three dials
#
# They do not cost the same. Double each, starting from Small/16:

# %%
small = configs["Small/16"]
changes = {
    "Small/16": {},
    "twice the depth": dict(depth=2 * small.depth),
    "twice the width": dict(width=2 * small.width, heads=2 * small.heads, mlp_width=2 * small.mlp_width),
    "half the patch": dict(patch_size=8),
    "twice the image": dict(image_size=448),
}
start = totals(small)
rows = []
for name, change in changes.items():
    c = totals(small.replace(**change))
    rows.append((name, f"{c.parameters / start.parameters:.2f} ×", f"{c.macs / start.macs:.2f} ×"))
table(["change", "parameters", "multiply-adds"], rows)

# %% [markdown]
# Half the patch costs more than twice the width, and adds next to no parameters. It buys detail; width buys knowledge.
#
# ## In short
# - Parameters ≈ $12LD^2$; multiply-adds ≈ parameters × tokens; a training step ≈ three forwards.
# - Training needs 16 bytes per parameter in float32, plus activations per image; checkpoints trade time for the latter.
# - Predict before you rent a machine. The prediction takes a second.
#
# **Try it.** What changes in the memory table at 384 pixels? Which grows faster, time or memory?
#
# Last: [common bugs](12_bugs.md).
