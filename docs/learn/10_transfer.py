# %% [markdown]
# # 10. Standing on given weights
#
# Few people train from nothing. They take weights that have seen a million photographs, and a few hundred photographs
# of their own. There are three ways to join them, from cheap to dear: look up **neighbours**, fit a **probe**,
# **fine-tune** everything. And one way down again: **distil** the result into a small model.
#
# Here: DeiT-Tiny, trained on ImageNet, and shelf photographs of groceries taken with a phone. Where these files are not
# at hand (`VITKIT_SHARED`), a model trained on the digits 0 to 4 has to learn the digits 5 to 9.

# %%
import dataclasses
import tempfile
from collections import defaultdict
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from lib import BLUE, GREEN, GREY, ORANGE, PINK, SHORT, claim, digits, figure, fit, setting, shared, source, table

import vitkit
from vitkit.data.open import open_data
from vitkit.data.preprocess import Preprocess
from vitkit.features import choose_k, extract_features, fit_linear_probe, knn_predict
from vitkit.features.extract import FeatureExtractor
from vitkit.model import ModelInfo
from vitkit.training import get_recipe
from vitkit.training.loss import distillation_loss
from vitkit.training.train import train

weights, grocery = shared("deit_tiny_patch16_224_in1k.safetensors"), shared("grocery.parquet")
real = bool(weights and grocery) and not SHORT
scratch = tempfile.TemporaryDirectory()
folder = Path(scratch.name)

# %% [markdown]
# ## The task
#
# Eight kinds of groceries, twenty photographs of each to learn from. A small task on purpose: this is where given
# weights matter.

# %%
if real:
    import pyarrow.parquet as pq

    chosen = ["Apple", "Juice", "Melon", "Milk", "Pepper", "Potato", "Tomato", "Yoghurt"]
    whole, found = pq.read_table(grocery), defaultdict(list)
    for i, key in enumerate(zip(whole["label"].to_pylist(), whole["split"].to_pylist(), strict=True)):
        found[key].append(i)
    rows = []
    for name in chosen:  # of the training images twenty, spread over the varieties
        rows += found[name, "train"][:: len(found[name, "train"]) // 20][:20] + found[name, "val"]
    spec = folder / "groceries.parquet"
    pq.write_table(whole.take(rows), spec)
    given = str(weights)
else:
    train_x, train_y, test_x, test_y = digits()
    pixels = [np.rint(((x * 0.37 + 0.3) * 255).numpy()[:, 0]).astype(np.uint8) for x in (train_x, test_x)]
    spec = folder / "five_to_nine.npz"
    keep = [np.flatnonzero((y >= 5).numpy()) for y in (train_y, test_y)]
    take = setting(150, short=80)
    labels = [y.numpy()[k] - 5 for y, k in zip((train_y, test_y), keep, strict=True)]
    np.savez(spec, train_images=pixels[0][keep[0]][:take], train_labels=labels[0][:take],
             val_images=pixels[1][keep[1]], val_labels=labels[1], class_names=list("56789"))  # fmt: skip
    before = vitkit.create_model("vit_digits_patch2_8", num_classes=5, seed=0)
    fit(before, train_x[train_y < 5], train_y[train_y < 5], setting(300, short=30))
    how = Preprocess(size=(8, 8), channels=1, crop_fraction=1.0, mean=(0.3,), std=(0.37,))
    given = str(vitkit.save_model(before, folder / "given", ModelInfo(class_names=tuple("01234"), preprocess=how)))

data = open_data(spec)
print(f"{len(data.class_names)} classes:", ", ".join(data.class_names))
print(", ".join(f"{len(split)} {name}" for name, split in data.splits.items()), "images")

# %%
model = vitkit.load_model(given)
preprocess = model.info.preprocess
training, validation = data.splits["train"], data.splits["val"]
first = [int(np.flatnonzero(training.labels == c)[0]) for c in range(len(data.class_names))]
fig, axes = plt.subplots(2, 4, figsize=(6, 3.5))
for ax in axes.flat:
    ax.set_axis_off()
for ax, i in zip(axes.flat, first, strict=False):
    ax.imshow(preprocess.array(training.images[i]).squeeze(), cmap="gray_r" if preprocess.channels == 1 else None)
    ax.set_title(data.class_names[training.labels[i]].replace("_", " ")[:18], fontsize=9)
figure(fig, "10_task", "One training image of each class")

# %% [markdown]
# ## Features: what the weights already see
#
# Cut off the classifier, and the model turns an image into a vector. It was made for other classes. Does it tell ours
# apart all the same?

# %%
source(FeatureExtractor.forward)
known = extract_features(model, training, preprocess)
asked = extract_features(model, validation, preprocess)
y_train, y_val = training.labels[known.indices], validation.labels[asked.indices]
print("features:", known.values.shape, "for training,", asked.values.shape, "for validation")

centred = torch.from_numpy(known.values - known.values.mean(0))
flat = (centred @ torch.linalg.svd(centred, full_matrices=False)[2][:2].T).numpy()
fig, ax = plt.subplots(figsize=(6, 4))
marks = "osD^vP*X"
palette = [BLUE, ORANGE, GREEN, PINK, GREY, "#56B4E9", "#D55E00", "#000000"]
for c, name in enumerate(data.class_names):
    at = y_train == c
    ax.scatter(*flat[at].T, s=22, marker=marks[c], color=palette[c], label=name.replace("_", " ")[:20])
ax.set(xticks=[], yticks=[], title="training images by their two strongest directions")
ax.legend(fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.02))
figure(
    fig, "10_features", "Training images as points, by the two strongest directions of their features: classes cluster"
)

# %% [markdown]
# Two of many directions, no training, and the classes already gather.
#
# ## Step 1: nearest neighbours
#
# Nothing is trained. A new image gets the class of the training images that are most like it, by the cosine of their
# features.

# %%
classes = len(data.class_names)
k, _ = choose_k(known.values, y_train, classes)  # by leaving one training image out
results = {
    "neighbours": float((knn_predict(known.values, y_train, asked.values, classes, k).argmax(1) == y_val).mean())
}
unit = [torch.nn.functional.normalize(torch.from_numpy(f.values), dim=1) for f in (known, asked)]
nearest = (unit[1] @ unit[0].T).argmax(dim=1).numpy()
one = float((y_train[nearest] == y_val).mean())
assert one == float((knn_predict(known.values, y_train, asked.values, classes, 1).argmax(1) == y_val).mean())
print(f"one neighbour, by hand and by the library: {100 * one:.1f} %")
print(f"as many as suit the training images, k = {k}: {100 * results['neighbours']:.1f} %")

# %% [markdown]
# ## Step 2: a linear probe
#
# A linear classifier on the frozen features. The problem is convex: there is one best answer, found in a second.

# %%
probe = fit_linear_probe(known.values, y_train, classes)
logits = torch.from_numpy(asked.values) @ probe.weight.T + probe.bias
results["probe"] = float((logits.argmax(1).numpy() == y_val).mean())
print(f"probe: {100 * results['probe']:.1f} % of {len(y_val)} validation images")
print(f"its regularisation, λ = {probe.regularization:g}, was chosen within the training images")

# %% [markdown]
# ## Step 3: fine-tuning
#
# Now all weights may move. Start from the probe's classifier, so that the first gradients make sense. Let lower layers
# move less than upper ones: each has 0.75 of the rate of the one above. The early layers see edges and textures, and
# these are the same for groceries as for everything else.

# %%
recipe = dataclasses.replace(get_recipe("finetune"), data=str(spec), init=given)
quick = ["budget.minutes=0", "machine.threads=1", "machine.compile=off", "batch=16", "budget.validate_every=10",
         f"budget.epochs={2 if real else setting(6, short=1)}"]  # fmt: skip
if not real:
    quick += ["augment.flip=False", "schedule.sizes=()", "augment.policy=none"]
tuned = train(recipe.override(quick), folder / "finetune", quiet=True)
results["fine-tuned"] = tuned.val["top1"]
print(f"fine-tuned: {100 * tuned.val['top1']:.1f} %, {tuned.epochs:.0f} epochs, {tuned.seconds:.0f} s")

# %% [markdown]
# And without the given weights? The same network, the same images, the same number of steps, from random weights:

# %%
fresh = vitkit.create_model(model.config.replace(num_classes=classes), seed=0)
fresh.info = ModelInfo(class_names=tuple(data.class_names), preprocess=preprocess)
vitkit.save_model(fresh, folder / "fresh")
scratch_run = dataclasses.replace(recipe, init=str(folder / "fresh"), head="zero").override(
    [*quick, "optimizer.layer_decay=1.0"]
)
alone = train(scratch_run, folder / "scratch", quiet=True)
results["from random weights"] = alone.val["top1"]
print(f"from random weights: {100 * alone.val['top1']:.1f} %")

fig, ax = plt.subplots(figsize=(6, 2.6))
order = ["from random weights", "neighbours", "probe", "fine-tuned"]
ax.barh(order, [100 * results[n] for n in order], color=[GREY, ORANGE, BLUE, GREEN])
for y, n in enumerate(order):
    ax.text(100 * results[n] + 1, y, f"{100 * results[n]:.1f}", va="center")
ax.axvline(100 / classes, color="black", linewidth=1, linestyle=":")
ax.set(xlabel=f"validation accuracy, % ({len(y_val)} images; dotted: guessing)", xlim=(0, 112))
figure(fig, "10_ladder", "Accuracy of neighbours, probe and fine-tuning, compared with random weights")
claim(
    "given weights beat random ones by far",
    min(results["neighbours"], results["probe"]) > results["from random weights"] + 0.1,
)

# %% [markdown]
# With so few validation images a difference of a point or two is noise: the interval of the fine-tuned figure is
# printed below. `vitkit ladder DATA --init WEIGHTS` runs these steps for you and stops when more work no longer
# pays.

# %%
low, high = tuned.val["top1_interval"]
print(f"fine-tuned: {100 * tuned.val['top1']:.1f} %, 95 % interval {100 * low:.1f} to {100 * high:.1f}")

# %% [markdown]
# ## And down again: distil
#
# The fine-tuned model is a good teacher. A much smaller student can learn from its *probabilities* as well as from the
# labels: "certainly a banana, but a little like a lemon" says more than "banana". The loss is a mixture of both:

# %%
source(distillation_loss)

# %%
student = get_recipe("scratch").override([
    f"data={spec}", "model=vit_nano_patch4_32" if real else "model=vit_digits_patch2_8", "machine.threads=1",
    "machine.compile=off", "machine.precision=fp32", "batch=16", "budget.choose=last", "optimizer.ema=0.9",
    f"budget.epochs={12 if real else setting(8, short=1)}", "augment.policy=none",
    *(["preprocess.size=(32, 32)"] if real else ["augment.flip=False", "config.depth=2"]),
])  # fmt: skip
runs = {}
for name, more in (("alone", []), ("taught", [f"distill.teacher={folder / 'finetune'}", "distill.sees=original"])):
    runs[name] = train(student.override(more), folder / f"student-{name}", quiet=True)
table(
    ["model", "parameters", "validation accuracy"],
    [("teacher", tuned.parameters, f"{100 * tuned.val['top1']:.1f} %")]
    + [(f"student, {n}", r.parameters, f"{100 * r.val['top1']:.1f} %") for n, r in runs.items()],
)
gain = 100 * (runs["taught"].val["top1"] - runs["alone"].val["top1"])
print(f"the teacher's gain here: {gain:+.1f} points, one seed, {runs['taught'].val['n']} images")

# %% [markdown]
# One seed and few images prove nothing either way; `benchmarks/distil.py` does it with several seeds and an interval.
# What is certain is the size: the student is a fraction of the teacher and sees 32 pixels where the teacher sees the
# whole image.
#
# ## In short
# - Features of given weights tell new classes apart before any training. Look at neighbours first: it costs one
#   forward.
# - A probe is convex and takes a second; fine-tuning starts from it and moves lower layers less.
# - A teacher's probabilities are richer labels.
#
# **Try it.** `vitkit ladder YOUR_FOLDER --init WEIGHTS --minutes 10 --out runs/mine`.
#
# Next: [from Base to Huge](11_scale.md).

# %%
scratch.cleanup()
