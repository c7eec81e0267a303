"""The named recipes. Each states its promise: the data, the time, the accuracy that was measured."""

from vitkit.data.augment import Augment
from vitkit.errors import UnknownNameError
from vitkit.train.recipe import Budget, Loss, Machine, Optimizer, Recipe

RECIPES: dict[str, Recipe] = {
    "scratch": Recipe(
        promise="any images, new weights: a sound start, not a record",
        augment=Augment(crop="resized", policy="trivial", mixup=0.2),
        optimizer=Optimizer(lr=1e-3, ema=0.999),
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
}


def get_recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise UnknownNameError("recipe", name, RECIPES)
    return RECIPES[name]
