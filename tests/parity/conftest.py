"""Live comparison with other libraries: their random weights in our model give the same outputs."""

import os
from types import ModuleType

import pytest

from .compare import peer

os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(scope="session")
def timm() -> ModuleType:
    return peer("timm")


@pytest.fixture(scope="session")
def transformers() -> ModuleType:
    return peer("transformers")


@pytest.fixture(scope="session")
def vit_pytorch() -> ModuleType:
    return peer("vit_pytorch")
