import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vitkit.data.mixup import beta_quantile, mixup_cutmix
from vitkit.data.rng import SampleKeys
from vitkit.data.transforms import Augment

ON = [dict(mixup=0.8), dict(cutmix=1.0), dict(mixup=0.2, cutmix=1.0)]


def batch(count: int, classes: int = 7, size: tuple[int, int] = (6, 9), epoch: int = 0):
    """Return images of noise, labels, and keys in a shuffled order."""
    generator = torch.Generator().manual_seed(count)
    images = torch.randn(count, 3, *size, generator=generator)
    targets = torch.nn.functional.one_hot(torch.arange(count) % classes, classes).float()
    index = np.random.default_rng(0).permutation(count)
    return images, targets, SampleKeys(5, np.full(count, epoch), index, np.zeros(count, dtype=np.int64))


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.5, 0.8, 1.0, 2.0, 8.0, 100.0])
def test_beta_quantile_is_the_inverse_of_the_distribution_function(alpha):
    uniform = (np.arange(20_000) + 0.5) / 20_000
    drawn = beta_quantile(alpha, uniform)
    # Beyond 1 - 1e-16 a number is 1: compare what lies between in probability, the rest by value.
    inner = (uniform > 0.05) & (uniform < 0.95)
    np.testing.assert_allclose(stats.beta(alpha, alpha).cdf(drawn)[inner], uniform[inner], atol=2e-5)
    np.testing.assert_allclose(drawn, stats.beta(alpha, alpha).ppf(uniform), atol=1e-3)
    assert ((drawn >= 0) & (drawn <= 1)).all()


@pytest.mark.parametrize("alpha", [0.2, 0.8, 1.0, 4.0])
def test_the_share_of_mixup_labels_is_beta_distributed(alpha):
    images, targets, keys = batch(8000, size=(1, 1))
    mixed = mixup_cutmix(images, targets, keys, Augment(mixup=alpha))[1]
    share = mixed[torch.arange(8000), targets.argmax(1)].numpy()[::2].astype(np.float64)
    assert stats.kstest(share.clip(1e-12, 1 - 1e-7), stats.beta(alpha, alpha).cdf).pvalue > 1e-3


@given(count=st.integers(1, 33), alpha=st.floats(0.1, 10))
def test_mixup_blends_images_in_the_proportion_of_the_labels(count, alpha):
    images, targets, keys = batch(count)
    mixed, labels = mixup_cutmix(images, targets, keys, Augment(mixup=alpha))
    for i in range(count - count % 2):
        partner = i ^ 1
        share = labels[i, targets[i].argmax()]
        torch.testing.assert_close(mixed[i], share * images[i] + (1 - share) * images[partner])
        torch.testing.assert_close(labels[i], share * targets[i] + (1 - share) * targets[partner])
    if count % 2:
        assert mixed[-1].equal(images[-1])
        assert labels[-1].equal(targets[-1])


@given(count=st.integers(1, 33), alpha=st.floats(0.1, 10), size=st.tuples(st.integers(1, 12), st.integers(1, 12)))
def test_the_cutmix_rectangle_has_exactly_the_area_of_the_label_weight(count, alpha, size):
    images, targets, keys = batch(count, size=size)
    mixed, labels = mixup_cutmix(images, targets, keys, Augment(cutmix=alpha))
    for i in range(count - count % 2):
        pasted = (mixed[i] != images[i]).all(0)
        assert mixed[i].equal(torch.where(pasted, images[i ^ 1], images[i]))
        assert pasted.equal(pasted.any(1)[:, None] & pasted.any(0))  # what its shadows span
        for shadow in (pasted.any(0), pasted.any(1)):
            assert shadow.int().diff().abs().sum() <= 2  # one piece
        share = 1 - pasted.sum().item() / pasted.numel()
        torch.testing.assert_close(labels[i], share * targets[i] + (1 - share) * targets[i ^ 1], atol=1e-7, rtol=0)
        assert (mixed[i ^ 1] != images[i ^ 1]).all(0).equal(pasted)
    if count % 2:
        assert mixed[-1].equal(images[-1])
        assert labels[-1].equal(targets[-1])


def test_cutmix_rectangles_have_the_sizes_of_the_paper_at_uniform_positions():
    """The side is √(1-λ) with uniform λ, about a uniform centre, clipped at the border."""
    images, targets, keys = batch(4000, size=(32, 32))
    pasted = (mixup_cutmix(images, targets, keys, Augment(cutmix=1.0))[0] != images).all(1)[::2].float()
    rng = np.random.default_rng(0)
    side, centre = np.sqrt(rng.random(100_000)), rng.random(100_000)
    for axis in (1, 2):
        shadow = pasted.amax(axis)
        expected = 32 * (np.minimum(centre + side / 2, 1) - np.maximum(centre - side / 2, 0))
        assert abs(shadow.sum(1).mean() - expected.mean()) < 0.7
        assert abs(shadow.sum(1).std() - expected.std()) < 0.5
        covered = np.abs((np.arange(32) + 0.5) / 32 - centre[:, None]) < side[:, None] / 2
        np.testing.assert_allclose(shadow.mean(0), covered.mean(0), atol=0.05)


def test_if_both_are_on_each_gets_half_of_the_pairs():
    images, targets, keys = batch(2000)
    mixed = mixup_cutmix(images, targets, keys, Augment(mixup=1.0, cutmix=1.0))[0]
    whole = (mixed == images) | (mixed == images.view(-1, 2, *images.shape[1:]).flip(1).flatten(0, 1))
    cut = whole.flatten(1).all(1)
    assert cut[::2].equal(cut[1::2])
    assert stats.binomtest(int(cut[::2].sum()), 1000).pvalue > 1e-3
    assert mixed[~cut].isfinite().all()
    assert not whole[~cut].flatten(1).any(1).all()


@pytest.mark.parametrize("on", ON, ids=str)
@given(half=st.integers(0, 12), count=st.integers(24, 26))
def test_an_even_slice_of_a_batch_is_mixed_independently(on, half, count):
    images, targets, keys = batch(count)
    whole = mixup_cutmix(images, targets, keys, Augment(**on))
    cut = 2 * half
    halves = (slice(cut), slice(cut, None))
    parts = [mixup_cutmix(images[rows], targets[rows], keys[rows], Augment(**on)) for rows in halves]
    for mixed, first, second in zip(whole, *parts, strict=True):
        assert mixed.equal(torch.cat([first, second]))


@pytest.mark.parametrize("on", ON, ids=str)
def test_a_pair_uses_the_draws_of_its_first_sample(on):
    images, targets, keys = batch(16)
    labels = mixup_cutmix(images, targets, keys, Augment(**on))[1]
    for first, alike in ((0, False), (1, True)):
        index = keys.index.copy()
        index[first::2] += 100
        other = mixup_cutmix(images, targets, SampleKeys(keys.seed, keys.epoch, index, keys.repeat), Augment(**on))[1]
        assert other.equal(labels) == alike


@pytest.mark.parametrize("on", ON, ids=str)
def test_mixing_depends_on_the_epoch_and_is_repeatable(on):
    images, targets, keys = batch(16)
    later = SampleKeys(keys.seed, keys.epoch + 1, keys.index, keys.repeat)
    labels = mixup_cutmix(images, targets, keys, Augment(**on))[1]
    torch.manual_seed(1)
    np.random.seed(1)
    assert labels.equal(mixup_cutmix(images, targets, keys, Augment(**on))[1])
    assert not labels.equal(mixup_cutmix(images, targets, later, Augment(**on))[1])


@pytest.mark.parametrize("on", ON, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dtype_and_label_sum_are_kept_and_inputs_are_not_modified(on, dtype):
    images, targets, keys = batch(17)
    images, targets = images.to(dtype), (0.9 * targets + 0.1 / 7)
    before = images.clone(), targets.clone()
    mixed, labels = mixup_cutmix(images, targets, keys, Augment(**on))
    assert mixed.dtype == dtype
    assert labels.dtype == torch.float32
    torch.testing.assert_close(labels.sum(1), torch.ones(17))
    assert images.equal(before[0])
    assert targets.equal(before[1])


def test_without_mixup_and_cutmix_nothing_changes():
    images, targets, keys = batch(4)
    mixed, labels = mixup_cutmix(images, targets, keys, Augment())
    assert mixed is images
    assert labels is targets
