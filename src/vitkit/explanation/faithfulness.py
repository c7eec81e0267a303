"""Faithfulness of explanation methods, measured without human judgement of the maps.

Deletion and insertion (Petsiuk et al. 2018, RISE) remove patches from an image, or restore them in a blurred image, in
the order of the map's values. With a faithful map the probability of the class falls early, or rises early: the area
under the deletion curve is small, and that under the insertion curve large.

The sanity check (Adebayo et al. 2018) compares the map with that of the same model with shuffled weights. A map that
does not change shows the image, not the model: the rank correlation of the two maps should be near 0.

Shapes: b images, s steps, (gh, gw) the grid of patches.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from vitkit.errors import InputError
from vitkit.evaluation.metrics import Interval
from vitkit.evaluation.predict import eval_mode
from vitkit.explanation.methods import METHODS
from vitkit.explanation.occlusion import BATCH_SIZE, mask_patches
from vitkit.explanation.result import Target, class_indices, explain
from vitkit.inference.image_inputs import ImageInputs, prepare_images
from vitkit.model import ViT

STEPS = 10  # of a curve: a tenth of the patches each
RESAMPLES = 10_000
_INPUT_LAYERS = ("patch_embed.", "cls_token", "dist_token", "reg_token", "pos_embed", "norm_pre.")


@dataclass(frozen=True)
class Curves:
    """The probability of the class while patches are removed or restored, the highest map values first."""

    fractions: np.ndarray  # (S,) of the patches, 0 … 1
    deletion: np.ndarray  # (B, S)
    insertion: np.ndarray  # (B, S)

    @property
    def deletion_area(self) -> np.ndarray:
        """(B,): smaller is better."""
        return np.trapezoid(self.deletion, self.fractions, axis=1)

    @property
    def insertion_area(self) -> np.ndarray:
        """(B,): larger is better."""
        return np.trapezoid(self.insertion, self.fractions, axis=1)

    @property
    def gain(self) -> np.ndarray:
        """(B,): insertion area minus deletion area. Methods are ranked by its mean; a random map is the baseline."""
        return self.insertion_area - self.deletion_area


@dataclass(frozen=True)
class Faithfulness:
    """One method on a set of images."""

    method: str
    curves: Curves
    sanity: np.ndarray  # (B,) rank correlation of the map with that of the same model with shuffled weights

    def summary(self) -> "dict[str, tuple[float, Interval | None]]":
        """Return the mean over the images and its 95 % bootstrap interval, by the names of the JSON output."""
        values = {
            "deletion": self.curves.deletion_area,
            "insertion": self.curves.insertion_area,
            "gain": self.curves.gain,
            "random_weights": self.sanity,
        }
        return {name: (float(value.mean()), bootstrap_interval(value)) for name, value in values.items()}


def faithfulness(
    model: ViT,
    images: ImageInputs,
    methods: Sequence[str] | None = None,
    *,
    target: Target | None = None,
    image_size: int | tuple[int, int] | None = None,
    steps: int = STEPS,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[Faithfulness]:
    """Measure each method, all by default; return the best first, by the mean of insertion minus deletion."""
    if not model.config.num_classes:
        raise InputError("the model has no classifier: faithfulness is measured by the probability of a class")
    names = list(METHODS if methods is None else methods)
    batch, _ = prepare_images(model, images, image_size)
    if target is None:
        target = explain(model, batch, "random").targets.tolist()  # the predicted classes
    targets = class_indices(model, target, len(batch))
    shuffled = with_shuffled_weights(model, seed)
    found = []
    for done, name in enumerate(names, start=1):
        classes = targets.tolist() if name in METHODS and METHODS[name].class_specific else None
        maps = explain(model, batch, name, target=classes, seed=seed).maps
        other = explain(shuffled, batch, name, target=classes, seed=seed + len(batch)).maps
        curves = deletion_insertion(model, batch, torch.from_numpy(maps), targets, steps)
        found.append(Faithfulness(name, curves, rank_correlation(maps, other)))
        if progress is not None:
            progress(done, len(names))
    return sorted(found, key=lambda f: -f.curves.gain.mean())


def deletion_insertion(
    model: ViT, images: Float[Tensor, "b c h w"], maps: Float[Tensor, "b gh gw"], targets: Tensor, steps: int = STEPS
) -> Curves:
    """Return both curves; deletion fills with the mean of the normalisation, insertion starts from a blurred image."""
    patch = model.config.patch_size
    masks = [top_patch_masks(values, steps) for values in maps]
    curves = []  # of each image: deletion, insertion
    with torch.no_grad(), eval_mode(model):
        for image, top, label in zip(images, masks, targets.tolist(), strict=True):
            top = top.to(image.device)
            deleted = mask_patches(image, top, patch)
            inserted = mask_patches(image, ~top, patch, fill=gaussian_blur(image, max(patch)))
            for masked in (deleted, inserted):
                scores = [model(some).softmax(dim=1)[:, label] for some in torch.split(masked, BATCH_SIZE)]
                curves.append(torch.cat(scores).float().cpu().numpy())
    return Curves(masks[0].float().mean(dim=(1, 2)).numpy(), np.stack(curves[::2]), np.stack(curves[1::2]))


def top_patch_masks(values: Float[Tensor, "gh gw"], steps: int) -> Bool[Tensor, "s gh gw"]:
    """Return masks of the patches with the highest values, from none to all in equal steps."""
    rank = values.flatten().argsort(descending=True, stable=True).argsort()
    counts = torch.linspace(0, values.numel(), min(steps, values.numel()) + 1).round()
    return (rank < counts[:, None]).view(-1, *values.shape)


def gaussian_blur(image: Float[Tensor, "c h w"], sigma: int) -> Float[Tensor, "c h w"]:
    """Convolve with a Gaussian; edges are mirrored."""
    for axis in (1, 2):
        reach = min(3 * sigma, image.shape[axis] - 1)
        kernel = torch.exp(-0.5 * (torch.arange(-reach, reach + 1, device=image.device) / sigma) ** 2)
        kernel = (kernel / kernel.sum()).to(image.dtype)
        shape, padding = ((-1, 1), (0, 0, reach, reach)) if axis == 1 else ((1, -1), (reach, reach, 0, 0))
        padded = F.pad(image[:, None], padding, mode="reflect")
        image = F.conv2d(padded, kernel.view(1, 1, *shape))[:, 0]
    return image


def with_shuffled_weights(model: ViT, seed: int = 0, blocks: int | None = None) -> ViT:
    """Return a copy with shuffled weights: of the classifier and the last `blocks` blocks, or of all layers.

    The values of each parameter are permuted. Their distribution stays, so that the copy is as nonlinear as the model.
    """
    made = copy.deepcopy(model).eval()
    kept = () if blocks is None else (*_INPUT_LAYERS, *(f"blocks.{i}." for i in range(model.config.depth - blocks)))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if not name.startswith(kept):
                order = torch.randperm(parameter.numel(), generator=generator).to(parameter.device)
                parameter.copy_(parameter.flatten()[order].view_as(parameter))
    return made


def rank_correlation(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return (B,): Spearman's rank correlation of each pair of maps; 0 if a map is constant."""
    x, y = (np.stack([_ranks(one.ravel()) for one in maps]) for maps in (a, b))
    scale = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    return (x * y).sum(axis=1) / np.where(scale > 0, scale, 1)


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks with mean 0; equal values share the mean of their ranks."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[which]
    return ranks - ranks.mean()


def bootstrap_interval(values: np.ndarray, level: float = 0.95, seed: int = 0) -> Interval | None:
    """Return the bootstrap interval of the mean; None for a single value."""
    if len(values) < 2:
        return None
    generator = np.random.default_rng(seed)
    means = values[generator.integers(0, len(values), (RESAMPLES, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
