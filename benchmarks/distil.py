"""Measure the gain from distillation: the same student with and without a teacher, several seeds.

    python benchmarks/distil.py --cifar cifar10.npz --init deit_tiny_patch16_224_in1k.safetensors

The teacher is a linear probe of the published weights on a part of CIFAR-10. It sees each training image once, without
augmentation, and its predictions are stored. The students have 0.12 M parameters and start from random weights. Their
last weights are evaluated on the test images, which are used for no choice.
"""

import argparse
import dataclasses
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from heading import heading

from vitkit.evaluation import mean_interval
from vitkit.training import get_recipe
from vitkit.training.train import train


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--cifar", required=True, help="an .npz of arrays, as `vitkit inspect` describes it")
    p.add_argument("--init", required=True)
    p.add_argument("--images", type=int, default=4000, help="number of training images")
    p.add_argument("--epochs", type=float, default=15)
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--set", nargs="*", default=[], help="changes to the students' recipe")
    p.add_argument("--out", default="benchmarks/results/distil.txt")
    a = p.parse_args()
    began = time.monotonic()
    lines = [heading()]
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("VITKIT_CACHE", f"{folder}/cache")
        for_teacher, for_students = cut(Path(a.cifar), Path(folder), a.images)
        probe = dataclasses.replace(get_recipe("probe"), data=str(for_teacher), init=a.init)
        teacher = train(probe, f"{folder}/teacher", quiet=True)
        lines.append(f"teacher: val {teacher.val['top1']:.2%} of {teacher.val['n']}  {minutes(began)}")
        print(lines[-1], flush=True)
        student = dataclasses.replace(get_recipe("scratch"), data=str(for_students), model="vit_nano_patch4_32")
        student = student.override([f"budget.epochs={a.epochs}", f"budget.validate_every={a.epochs}",
                                    "budget.choose=last", "batch=64", "machine.precision=fp32", *a.set])  # fmt: skip
        taught = student.override([f"distill.teacher={folder}/teacher", "distill.sees=original"])
        found: dict[str, list[float]] = {"alone": [], "taught": []}
        for seed in range(a.seeds):
            for name, recipe in (("alone", student), ("taught", taught)):
                result = train(dataclasses.replace(recipe, seed=seed), f"{folder}/{name}{seed}", quiet=True)
                assert result.test is not None
                found[name].append(result.test["top1"])
                low, high = result.test["top1_interval"]
                lines.append(f"seed {seed} {name:7} test {result.test['top1']:.2%}  ({low:.1%} to {high:.1%}, "
                             f"{result.test['n']} images)  {result.epochs:g} epochs  {minutes(began)}")  # fmt: skip
                print(lines[-1], flush=True)
    gain = mean_interval([t - s for s, t in zip(found["alone"], found["taught"], strict=True)])
    lines.append(
        f"the teacher's gain: {100 * gain.mean:+.2f} points, 95 % interval over the seeds "
        f"{100 * gain.interval[0]:+.2f} to {100 * gain.interval[1]:+.2f} ({gain.n} pairs)"
    )
    print(lines[-1])
    print(json.dumps(found))
    Path(a.out).parent.mkdir(parents=True, exist_ok=True)
    Path(a.out).write_text("\n".join(lines) + "\n", encoding="utf-8")


def cut(source: Path, folder: Path, images: int) -> tuple[Path, Path]:
    """Write the training images for both, and few validation images: the teacher's forward is expensive."""
    with np.load(source) as whole:
        train_x, train_y = whole["train_images"], whole["train_labels"]
        test_x, test_y = whole["test_images"], whole["test_labels"]
    order = np.random.default_rng(0).permutation(len(train_x))
    inside, aside = order[:images], order[images : images + 200]
    both = dict(
        train_images=train_x[inside], train_labels=train_y[inside], val_images=train_x[aside], val_labels=train_y[aside]
    )
    np.savez(folder / "teacher.npz", **both)
    np.savez(folder / "students.npz", **both, test_images=test_x, test_labels=test_y)
    return folder / "teacher.npz", folder / "students.npz"


def minutes(began: float) -> str:
    return f"after {(time.monotonic() - began) / 60:.1f} min"


if __name__ == "__main__":
    main()
