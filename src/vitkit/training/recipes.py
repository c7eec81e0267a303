"""The named recipes. Each states the measured result: data, time, accuracy."""

from vitkit.data.transforms import Augment
from vitkit.errors import UnknownNameError
from vitkit.training.recipe import Budget, Loss, Machine, Optimizer, Recipe, Schedule

RECIPES: dict[str, Recipe] = {
    "scratch": Recipe(
        expected_result="any images, random initial weights: a solid baseline, not a record",
        augment=Augment(crop="resized", policy="trivial", mixup=0.2),
        optimizer=Optimizer(lr=1e-3, ema=0.999),
    ),
    "probe": Recipe(
        expected_result="frozen pretrained weights, a linear classifier on their features: one pass over the images",
        head="probe",
        augment=Augment(crop="none", flip=False),
        budget=Budget(epochs=0),
        machine=Machine(precision="fp32", compile="off"),
    ),
    "finetune": Recipe(
        expected_result="pretrained weights, all layers trained: a linear probe first, then layer-wise learning rates",
        head="probe",
        batch=32,
        augment=Augment(crop="resized", scale=(0.3, 1.0), policy="trivial", mixup=0.2),
        optimizer=Optimizer(lr=5e-4, weight_decay=0.05, betas=(0.9, 0.999), layer_decay=0.75, ema=0.99),
        schedule=Schedule(warmup=0.1, sizes=((0.0, 0.57), (0.6, 0.7), (0.9, 1.0))),
        budget=Budget(minutes=10, choose="last"),
        machine=Machine(precision="fp32"),
    ),
    "imagenet_s16": Recipe(
        expected_result="ImageNet-1k, ViT-S/16, 90 epochs as in Beyer et al. 2022 (76.5 % there); not trained here",
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
        expected_result="digits of scikit-learn, 8×8 pixels: 98.6 % test accuracy in a minute on a core; `vitkit demo`",
        data="digits",
        model="vit_digits_patch2_8",
        batch=32,
        augment=Augment(crop="resized", scale=(0.6, 1.0), flip=False, mixup=0.3),
        optimizer=Optimizer(lr=2e-3, weight_decay=0.05, ema=0.99),
        loss=Loss(label_smoothing=0.05),
        budget=Budget(epochs=40),
        machine=Machine(precision="fp32", compile="off", threads=1),  # too small for more
    ),
    "cifar10_classic": Recipe(
        expected_result="CIFAR-10, 0.12 M parameters: 82.2 % test accuracy after 15 epochs, 86.9 % after 40",
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
        expected_result="CIFAR-10, 0.27 M parameters: 85.9 % test accuracy in 12 min on 2 bf16 cores, 78.3 % in 4 min",
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
        expected_result="CIFAR-10, 0.62 M parameters: 90.5 % test accuracy in 45 min on 2 bf16 cores; fp32: 90 % in 90",
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
    """Return the named recipe; change it with `replace` or `override`."""
    if name not in RECIPES:
        raise UnknownNameError("recipe", name, RECIPES)
    return RECIPES[name]
