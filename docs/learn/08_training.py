# %% [markdown]
# # 8. Training on CIFAR-10, on a laptop
#
# A Vision Transformer knows nothing about images at first, not even that neighbours are related. On a small data set
# the *recipe* decides whether it learns. This chapter walks through one, part by part, then trains, and then asks what
# each part was worth.
#
# CIFAR-10 has 50,000 small photographs of ten kinds of things. If it is not on this machine (`VITKIT_DATA`), the
# chapter uses handwritten digits instead and says so.

# %%
import json
import tempfile
from collections import defaultdict
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from lib import BLUE, GREEN, GREY, ORANGE, ROOT, SHORT, claim, figure, setting, source, table

import vitkit
from vitkit.data.training_batch import soft_targets
from vitkit.report.augmented_batch import first_batch
from vitkit.runtime.cache_dir import data_folder
from vitkit.training import get_recipe, schedule
from vitkit.training.ema import ema_decay
from vitkit.training.recipe import Schedule
from vitkit.training.setup import open_dataset, suggest_preprocess
from vitkit.training.train import train
from vitkit.training.trainer import Trainer

cifar = any(data_folder(None).glob("cifar*10*")) and not SHORT
recipe = get_recipe("cifar10_fast" if cifar else "digits")
data = open_dataset(recipe)
print("training on:", data.name, "·", ", ".join(f"{len(s):,} {n}" for n, s in data.splits.items()), "images")
print("recipe:", recipe.expected_result)

# %% [markdown]
# ## One step
#
# Everything a training run does is in one function that is called once per batch. Read it from top to bottom:
# gradients, clipping, the learning rate of the moment, the update, the moving average.

# %%
source(Trainer.update)

# %% [markdown]
# ## Part 1: images that never repeat
#
# The cheapest way to more data: show each photograph shifted, cropped, mirrored, or blended with another. Above, the
# images as they are; below, as the model sees them in the first batch. Nothing here is left to chance: what happens to
# image 17 in epoch 3 is a function of the seed, the epoch and the number 17.

# %%
training = data.splits["train"]
preprocess = suggest_preprocess(training, recipe, None)
patch = vitkit.model.VARIANTS[recipe.model].config.patch_size
seen = first_batch(recipe, training, 10, preprocess, patch)
fig, axes = plt.subplots(2, 8, figsize=(6, 1.9))
for i, column in enumerate(axes.T):
    for ax, pixels in zip(column, (np.asarray(training.images[int(seen.index[i])]), seen.pixels[i]), strict=True):
        ax.imshow(pixels.squeeze(), cmap="gray_r", vmin=0, vmax=255)
        ax.set(xticks=[], yticks=[])
axes[0, 0].set_ylabel("as it is")
axes[1, 0].set_ylabel("as seen")
figure(
    fig, "08_augment", "Eight training images, and the same as the model sees them: shifted, cropped, mirrored, mixed"
)

# %% [markdown]
# ## Part 2: a learning rate that rises and falls
#
# The first steps are small, while the optimizer's averages still mean nothing. Then the full rate, then a slow fall to
# zero, which lets the weights settle. All shapes are functions of the share of the run that is done, so a recipe fits
# any length.

# %%
source(schedule.lr_factor)
fig, ax = plt.subplots(figsize=(6, 2.9))
progress = np.linspace(0, 1, 400)
for shape, colour in (("cosine", BLUE), ("linear", ORANGE), ("wsd", GREEN), ("constant", GREY)):
    ax.plot(100 * progress, [schedule.lr_factor(p, Schedule(shape=shape)) for p in progress], color=colour, label=shape)
ax.set(xlabel="% of the run", ylabel="rate, highest = 1", ylim=(0, 1.08))
ax.legend(loc="lower left", bbox_to_anchor=(0.08, 0.0))
figure(
    fig,
    "08_schedule",
    "Four shapes of the learning rate, all with a short warm-up: cosine, linear, late fall, constant",
)

# %% [markdown]
# ## Part 3: weight decay, where it belongs
#
# Pulling weights towards zero keeps matrices from growing without need. Biases, norms, tokens and positions are left
# alone: a norm's factor of zero would switch it off.

# %%
model = vitkit.create_model(recipe.model, seed=0, **recipe.config)
source(vitkit.ViT.no_weight_decay)
split = {True: 0, False: 0}
for name, parameter in model.named_parameters():
    split[parameter.ndim >= 2 and name not in model.no_weight_decay()] += parameter.numel()
print(f"{recipe.model}: {split[True]:,} parameters decay, {split[False]:,} do not")

# %% [markdown]
# ## Part 4: a target that is not quite certain
#
# With label smoothing the right class is asked for $1-\varepsilon$ and the rest is spread over all. The model has no
# reason to push its logits to infinity.

# %%
smoothing = recipe.loss.label_smoothing
print(
    f"smoothing {smoothing}: class 3 becomes",
    [round(v, 3) for v in soft_targets(torch.tensor([3]), 10, smoothing)[0].tolist()],
)

# %% [markdown]
# ## Part 5: an average of the last weights
#
# Steps are noisy. A moving average of the weights is not, and it is usually the better model, for free. At first it
# forgets quickly, so that it does not remember the random start:

# %%
ema = recipe.optimizer.ema
print("decay of the average:", {step: round(ema_decay(step, ema), 4) for step in (0, 10, 100, 1000, 10_000)})
print("optimizer:", recipe.optimizer)

# %% [markdown]
# ## Train
#
# `vitkit train cifar10 --recipe cifar10_fast --minutes 2 --out RUN` does the same. A recipe can have a budget in
# *minutes*: it times a few steps and plans the whole schedule to end on time.

# %%
single = ["machine.threads=1", "machine.precision=fp32", "machine.compile=off"]  # one core, float32
if cifar:
    changes = ["budget.minutes=2", "budget.validate_every=0.25", *single]
else:
    changes = [f"budget.epochs={setting(15, short=1)}", "budget.minutes=0", *single]
with tempfile.TemporaryDirectory() as folder:
    result = train(recipe.override(changes), f"{folder}/run", quiet=True)
    lines = [json.loads(line) for line in Path(f"{folder}/run/metrics.jsonl").read_text(encoding="utf-8").splitlines()]
low, high = result.test["top1_interval"]
print(f"{result.parameters:,} parameters, {result.steps:,} steps, {result.epochs:.2f} epochs, {result.seconds:.0f} s")
print(f"test: {100 * result.test['top1']:.1f} % of {result.test['n']:,} images")
print(f"95 % interval: {100 * low:.1f} to {100 * high:.1f} %")
claim("better than guessing, which is 10 %", result.test["top1"] > 0.15)

# %%
losses = [(line["epoch"], line["loss"]) for line in lines if "loss" in line]
checks = [(line["epoch"], 100 * line["val_top1"]) for line in lines if "val_top1" in line]
fig, (left, right) = plt.subplots(1, 2, figsize=(6, 3))
left.plot(*zip(*losses, strict=True), color=BLUE, marker="o" if len(losses) < 5 else None)
left.set(title="training loss", xlabel="epoch")
right.plot(*zip(*checks, strict=True), "o-", color=ORANGE, markersize=4)
right.set(title="validation accuracy, %", xlabel="epoch")
figure(fig, "08_curves", "Training loss and validation accuracy of the run above")

# %% [markdown]
# Two minutes are a taste. What longer runs reached is on record, each line with the recipe, the seed and the machine it
# ran on (`python benchmarks/cifar10.py --table`):

# %%
record = ROOT / "benchmarks" / "results" / "cifar10.jsonl"
runs = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()] if record.exists() else []
table(
    ["recipe", "budget", "seed", "parameters", "test", "minutes"],
    [
        (r["recipe"], r["budget"], r["seed"], r["parameters"], f"{100 * r['test']:.2f} %", f"{r['minutes']:.0f}")
        for r in runs
    ],
)

# %% [markdown]
# ## What each part buys
#
# The honest way to find out is to leave out one part at a time, with several seeds, and change nothing else. That takes
# hours, so it is done once, by `python benchmarks/ablation.py --epochs 3 --seeds 0 1 --data-dir DATA`, and kept. The
# figures are of validation images: choosing parts by the test images would spend them. The table and the drawing are
# made from that record, here and now.

# %%
record = ROOT / "benchmarks" / "results" / "ablation.jsonl"
rows = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()] if record.exists() else []
longest = max((row["epochs"] for row in rows), default=0)
groups = defaultdict(list)
for row in rows:
    if row["epochs"] == longest:
        groups[row["without"]].append(100 * row["val"])
if "the recipe" in groups:
    gain = {name: np.mean(values) - np.mean(groups["the recipe"]) for name, values in groups.items()}
    order = sorted(groups, key=lambda name: gain[name])
    print(f"{longest:g} epochs of CIFAR-10, recipe cifar10_classic; validation accuracy in %")
    table(
        ["recipe", "by seed", "mean", "to the whole recipe"],
        [
            (n, "  ".join(f"{v:.1f}" for v in groups[n]), f"{np.mean(groups[n]):.1f}", f"{gain[n]:+.1f}")
            for n in reversed(order)
        ],
    )
    fig, ax = plt.subplots(figsize=(6, 0.9 + 0.38 * len(order)))
    whole = np.mean(groups["the recipe"])
    ax.barh(order, [gain[n] for n in order], color=[ORANGE if gain[n] < 0 else GREEN for n in order])
    for y, name in enumerate(order):
        ax.plot([v - whole for v in groups[name]], [y] * len(groups[name]), "k|", markersize=9)
    ax.axvline(0, color=GREY, linewidth=1)
    ax.set(xlabel="points against the whole recipe\n(marks: single runs)")
    figure(fig, "08_ablation", "What validation accuracy loses or gains when one part of the recipe is exchanged")
else:
    print("no record yet: the command above makes it")

# %% [markdown]
# Read such tables with the spread in mind: a difference smaller than that between two seeds is not a difference. And
# with the length of the runs in mind: three epochs show what makes learning fast, which is the optimizer, small batches
# and positions. Flips, crops and averages are there for long runs, in which every image is seen often; here they cost
# a little, or nothing.
#
# ## In short
# - On small data the recipe is half of the model.
# - Augmentation, a schedule with warm-up and fall, decay on matrices only, soft targets, averaged weights: each is a
#   few lines.
# - Choose on validation images, look at the test images once, and say how sure you are.
#
# **Try it.** `vitkit train digits --recipe digits --set augment.mixup=0 --out runs/plain`, then `vitkit report
# runs/plain`.
#
# Next: [looking inside](09_inside.md).
