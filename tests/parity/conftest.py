"""Live comparison with the libraries that others use: their random weights in our model, the same numbers out."""

import os
from types import ModuleType

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

DECLARED = torch.library.Library("torchvision", "FRAGMENT")  # a declaration lives as long as its library


def declare_missing_operators() -> None:
    """Make torchvision importable, which timm needs, beside a torch that its wheel was not built for.

    Its compiled operators are then missing, and the import fails on their names. Declared, they may stay empty: no
    model here calls them.
    """
    try:
        import torchvision  # noqa: F401  # only whether it can be
    except RuntimeError:
        for name in ("nms", "qnms"):
            DECLARED.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


@pytest.fixture(scope="session")
def timm() -> ModuleType:
    declare_missing_operators()
    return pytest.importorskip("timm")


@pytest.fixture(scope="session")
def transformers() -> ModuleType:
    declare_missing_operators()  # it looks for torchvision as well
    return pytest.importorskip("transformers")


@pytest.fixture(scope="session")
def vit_pytorch() -> ModuleType:
    declare_missing_operators()  # so does one of its modules
    return pytest.importorskip("vit_pytorch")
