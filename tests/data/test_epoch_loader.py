"""The loaders for loops of one's own give the batches of `vitkit.train`, epoch by epoch."""

from itertools import islice

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import vitkit
from vitkit.data.dataset import Dataset
from vitkit.data.epoch_loader import SplitDataset, make_loader
from vitkit.data.loader import BatchLoader
from vitkit.data.preprocess import Preprocess
from vitkit.data.training_batch import prepare_batch
from vitkit.data.transforms import Augment
from vitkit.errors import InputError
from vitkit.training.recipe import Recipe
from vitkit.training.setup import make_sampler, open_dataset, open_task

AUGMENT = Augment(crop="pad", mixup=0.3)
PREPROCESS = Preprocess(size=(8, 8), channels=1, crop_fraction=1.0)


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return vitkit.open_data("digits")


def test_an_epoch_has_a_length_and_shows_every_image_once(digits: Dataset) -> None:
    split = digits.splits["train"]
    loader = make_loader(split, PREPROCESS, AUGMENT, batch_size=100, seed=3)
    lengths, seen = [], []
    for _ in range(3):
        lengths.append(len(loader))
        batches = list(loader)
        assert len(batches) == lengths[-1]
        seen += [index for batch in batches for index in batch.keys.index.tolist()]
    assert loader.epoch == 3
    assert sum(lengths) == -(-3 * len(split) // 100)
    for epoch in range(2):
        assert sorted(seen[epoch * len(split) : (epoch + 1) * len(split)]) == list(range(len(split)))
    assert batches[0].images.dtype == torch.float32
    assert batches[0].images.shape == (100, 1, 8, 8)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_batches_are_those_of_a_training_run_with_the_same_settings(workers: int) -> None:
    recipe = Recipe(data="digits", model="vit_digits_patch2_8", batch=64, seed=5, augment=AUGMENT)
    task = open_task(recipe, open_dataset(recipe), None)
    trained = BatchLoader(task.train_source, task.train.labels, make_sampler(recipe, task.train, 10))
    split = task.data.splits["train"]
    loader = make_loader(split, task.preprocess, AUGMENT, 64, seed=5, workers=workers, label_smoothing=0.1)
    for step, batch in enumerate(islice(loader, 3)):
        expected = prepare_batch(trained.batch(step, task.preprocess.size), task.preprocess, 10, AUGMENT, 0.1)
        assert torch.equal(batch.images, expected.images)
        assert torch.equal(batch.targets, expected.targets)
        assert torch.equal(batch.labels, expected.labels)


def test_a_loader_continues_at_the_epoch_that_is_set(digits: Dataset) -> None:
    first, again = (make_loader(digits.splits["train"], PREPROCESS, AUGMENT, 256) for _ in range(2))
    list(first)
    expected = [batch.keys.index.tolist() for batch in first]
    again.epoch = 1
    assert [batch.keys.index.tolist() for batch in again] == expected


def test_without_augmentation_all_images_come_in_order(digits: Dataset) -> None:
    split = digits.splits["val"]
    loader = make_loader(split, PREPROCESS, batch_size=50, num_classes=12)
    for _ in range(2):
        batches = list(loader)
        assert len(batches) == len(loader) == -(-len(split) // 50)
        assert torch.cat([batch.labels for batch in batches]).tolist() == split.labels.tolist()
        assert batches[0].targets.shape == (50, 12)
    view = SplitDataset(split, PREPROCESS)
    image, label = view[7]
    assert torch.equal(image, batches[0].images[7])
    assert label == split.labels[7]


def test_a_split_works_with_the_loader_of_torch(digits: Dataset) -> None:
    view = SplitDataset(digits.splits["test"], PREPROCESS)
    images, labels = next(iter(DataLoader(view, batch_size=8)))
    assert images.shape == (8, 1, 8, 8)
    assert labels.tolist() == digits.splits["test"].labels[:8].tolist()


def test_no_images_or_no_batch_size_is_an_error(digits: Dataset) -> None:
    with pytest.raises(InputError, match="batch_size=0 and"):
        make_loader(digits.splits["val"], PREPROCESS, batch_size=0)
    with pytest.raises(InputError, match="0 images"):
        make_loader(digits.splits["val"].subset(np.arange(0)), PREPROCESS)


def test_a_data_set_instead_of_a_split_is_refused() -> None:
    with pytest.raises(InputError, match=r"takes a split, not Dataset: give data\.splits\['train'\]"):
        make_loader(vitkit.open_data("digits"), PREPROCESS)  # type: ignore[arg-type]
