import numpy as np
import torch

from vitkit.data.loader import Batch
from vitkit.data.preprocess import Preprocess
from vitkit.data.rng import SampleKeys
from vitkit.data.training_batch import prepare_batch, soft_targets
from vitkit.data.transforms import Augment

KEYS = SampleKeys(0, np.zeros(6, dtype=np.int64), np.arange(6), np.zeros(6, dtype=np.int64))
PIXELS = torch.randint(0, 256, (6, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
BATCH = Batch(PIXELS, torch.arange(6) % 3, KEYS)
PREPROCESS = Preprocess(size=(4, 4))


def test_without_mixing_images_are_normalised_and_targets_are_smoothed_labels() -> None:
    found = prepare_batch(BATCH, PREPROCESS, 3, Augment(), label_smoothing=0.3)
    assert torch.equal(found.images, PREPROCESS.normalize(PIXELS))
    assert torch.equal(found.targets, soft_targets(BATCH.labels, 3, 0.3))
    assert found.targets[1].tolist() == torch.tensor([0.1, 0.8, 0.1]).tolist()
    assert len(found) == 6
    assert found.extra is None


def test_extra_targets_are_mixed_as_the_targets_are() -> None:
    targets = soft_targets(BATCH.labels, 3, 0.0)
    found = prepare_batch(BATCH, PREPROCESS, 3, Augment(mixup=1.0), extra=targets.flip(1))
    assert not torch.equal(found.targets, targets)
    assert torch.equal(found.extra, found.targets.flip(1))
    assert torch.equal(found.labels, BATCH.labels)


def test_rows_of_a_batch_are_a_batch() -> None:
    found = prepare_batch(BATCH, PREPROCESS, 3, Augment(), extra=torch.ones(6, 1))
    part = found[2:5]
    assert len(part) == 3
    assert part.labels.tolist() == [2, 0, 1]
    assert part.keys.index.tolist() == [2, 3, 4]
    assert part.extra.shape == (3, 1)
    assert torch.equal(part.images, found.images[2:5])
