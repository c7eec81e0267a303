"""The named recipes. Each states its promise: the data, the time, the accuracy that was measured."""

from vitkit.data.transforms import Augment
from vitkit.errors import UnknownNameError
from vitkit.training.recipe import Budget, Loss, Machine, Optimizer, Recipe, Schedule

RECIPES: dict[str, Recipe] = {
    "scratch": Recipe(
        promise="any images, new weights: a sound start, not a record",
        augment=Augment(crop="resized", policy="trivial", mixup=0.2),
        optimizer=Optimizer(lr=1e-3, ema=0.999),
    ),
    "probe": Recipe(
        promise="given weights, frozen: a linear classifier on their features, in the time of one look at the images",
        head="probe",
        augment=Augment(crop="none", flip=False),
        budget=Budget(epochs=0),
        machine=Machine(precision="fp32", compile="off"),
    ),
    "finetune": Recipe(
        promise="given weights, all of them trained on: a fitted classifier first, upper layers faster than lower ones",
        head="probe",
        batch=32,
        augment=Augment(crop="resized", scale=(0.3, 1.0), policy="trivial", mixup=0.2),
        optimizer=Optimizer(lr=5e-4, weight_decay=0.05, betas=(0.9, 0.999), layer_decay=0.75, ema=0.99),
        schedule=Schedule(warmup=0.1, sizes=((0.0, 0.57), (0.6, 0.7), (0.9, 1.0))),
        budget=Budget(minutes=10, choose="last"),
        machine=Machine(precision="fp32"),
    ),
    "imagenet_s16": Recipe(
        promise="ImageNet-1k, ViT-S/16, 90 epochs, as Beyer et al. 2022 (76.5 % in their paper); not trained here",
        model="vit_small_patch16_224",
        config={"position": "sincos", "class_token": False, "pooling": "mean"},
        batch=1024,
        augment=Augment(crop="resized", scale=(0.05, 1.0), policy="randaugment", policy_magnitude=10.0, mixup=0.2),
        optimizer=Optimizer(lr=1e-3, weight_decay=0.1, betas=(0.9, 0.999)),
        schedule=Schedule(warmup=0.09),  # 10,000 of 112,600 steps
        loss=Loss(label_smoothing=0.0),
        budget=Budget(epochs=90),
    ),
    "digits": Recipe(
        promise="scikit-learn's digits, 8×8 pixels: 98.6 % of the test images in a minute on one core (`vitkit demo`)",
        data="digits",
        model="vit_digits_patch2_8",
        batch=32,
        augment=Augment(crop="resized", scale=(0.6, 1.0), flip=False, mixup=0.3),
        optimizer=Optimizer(lr=2e-3, weight_decay=0.05, ema=0.99),
        loss=Loss(label_smoothing=0.05),
        budget=Budget(epochs=40),
        machine=Machine(precision="fp32", compile="off", threads=1),  # too small to share
    ),
    "cifar10_classic": Recipe(
        promise="CIFAR-10, the tutorials' 0.12 M model: 82.2 % of the test images after 15 epochs, 86.9 % after 40",
        data="cifar10",
        val_fraction=0.02,
        model="vit_nano_patch4_32",
        config={"position": "rotary"},
        batch=64,
        augment=Augment(crop="pad", padding=0.125),
        optimizer=Optimizer(name="muon", lr=3e-3, muon_lr=6e-3, ema=0.999),
        loss=Loss(label_smoothing=0.05),
        budget=Budget(epochs=25),
    ),
    "cifar10_fast": Recipe(
        promise="CIFAR-10, 0.27 M parameters: 85.9 % of the test images in 12 min on 2 bf16 cores, 78.3 % in 4 min",
        data="cifar10",
        val_fraction=0.02,
        model="vit_pico_stem4_32",
        batch=128,
        augment=Augment(crop="pad", padding=0.125),
        optimizer=Optimizer(name="muon", lr=3e-3, muon_lr=6e-3, ema=0.999),
        schedule=Schedule(sizes=((0.0, 0.5), (0.3, 0.75), (0.7, 1.0))),
        loss=Loss(label_smoothing=0.05),
        budget=Budget(minutes=12),
    ),
    "cifar10_best": Recipe(
        promise="CIFAR-10, 0.62 M parameters: 90.5 % of the test images in 45 min on 2 bf16 cores, else 89.96 % in 90",
        data="cifar10",
        val_fraction=0.02,
        model="vit_micro_stem4_32",
        batch=128,
        augment=Augment(crop="pad", padding=0.125, erase=0.5, mixup=0.2),
        optimizer=Optimizer(name="muon", lr=3e-3, muon_lr=6e-3, ema=0.999),
        schedule=Schedule(sizes=((0.0, 0.75), (0.5, 1.0))),
        loss=Loss(label_smoothing=0.05),
        budget=Budget(minutes=45),
    ),
}


def get_recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise UnknownNameError("recipe", name, RECIPES)
    return RECIPES[name]
