"""Which map to believe? Two measurements that need no human judgement of what a good map looks like.

Deletion and insertion (Petsiuk et al. 2018, RISE): patches are taken away from the image, or given back to a blurred
one, in the order in which a map ranks them. If the map is right, the class's probability falls early, or rises early:
a small area under the deletion curve and a large one under the insertion curve.

Randomised weights (Adebayo et al. 2018): a map that stays the same when the model has forgotten everything shows the
image, not the model. The rank correlation of the two maps should be near 0.

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
from vitkit.evaluation.predict import eval_mode
from vitkit.explanation.methods import METHODS
from vitkit.explanation.occlusion import FORWARDS_AT_ONCE, cover
from vitkit.explanation.result import Target, class_indices, explain
from vitkit.inference.image_inputs import ImageInputs, prepare_images
from vitkit.model import ViT

STEPS = 10  # of a curve: a tenth of the patches each
RESAMPLES = 10_000
_INPUT = ("patch_embed.", "cls_token", "dist_token", "reg_token", "pos_embed", "norm_pre.")

Interval = tuple[float, float]


@dataclass(frozen=True)
class Curves:
    """The class's probability while patches go or come, best-ranked first."""

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
        """(B,): insertion minus deletion, the one number by which methods are ranked. The floor is a random map's."""
        return self.insertion_area - self.deletion_area


@dataclass(frozen=True)
class Faithfulness:
    """One method on a set of images."""

    method: str
    curves: Curves
    sanity: np.ndarray  # (B,) rank correlation of the map with that of the same model with random weights


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
    """Each method, all by default, best first by the mean of insertion minus deletion."""
    if not model.config.num_classes:
        raise InputError("the model has no classifier: faithfulness follows the probability of a class")
    names = list(METHODS if methods is None else methods)
    batch, _ = prepare_images(model, images, image_size)
    if target is None:
        targets = torch.from_numpy(explain(model, batch, "random").targets)  # the predicted classes
    else:
        targets = class_indices(model, target, len(batch))
    forgetful = randomised(model, seed)
    found = []
    for done, name in enumerate(names, start=1):
        of_class = targets.tolist() if name in METHODS and METHODS[name].by_class else None
        ours = explain(model, batch, name, target=of_class, seed=seed)
        theirs = explain(forgetful, batch, name, target=of_class, seed=seed + len(batch))
        measured = curves(model, batch, torch.from_numpy(ours.maps), targets, steps)
        found.append(Faithfulness(name, measured, rank_correlation(ours.maps, theirs.maps)))
        if progress is not None:
            progress(done, len(names))
    return sorted(found, key=lambda f: -f.curves.gain.mean())


def curves(
    model: ViT,
    images: Float[Tensor, "b c h w"],
    maps: Float[Tensor, "b gh gw"],
    targets: Tensor,
    steps: int = STEPS,
) -> Curves:
    """Deletion fills with 0, the mean of the normalisation; insertion starts from the image blurred beyond a patch."""
    patch = model.config.patch_size
    masks = [best_first(values, steps) for values in maps]
    deletion: list[np.ndarray] = []
    insertion: list[np.ndarray] = []
    with torch.no_grad(), eval_mode(model):
        for image, best, of_class in zip(images, masks, targets.tolist(), strict=True):
            best = best.to(image.device)
            for curve, pictures in (
                (deletion, cover(image, best, patch)),
                (insertion, cover(image, ~best, patch, by=blurred(image, max(patch)))),
            ):
                scores = [
                    model(pictures[i : i + FORWARDS_AT_ONCE]).softmax(dim=1)[:, of_class]
                    for i in range(0, len(pictures), FORWARDS_AT_ONCE)
                ]
                curve.append(torch.cat(scores).float().cpu().numpy())
    return Curves(masks[0].float().mean(dim=(1, 2)).numpy(), np.stack(deletion), np.stack(insertion))


def best_first(values: Float[Tensor, "gh gw"], steps: int) -> Bool[Tensor, "s gh gw"]:
    """Masks of the patches that a map ranks highest, from none to all."""
    rank = values.flatten().argsort(descending=True, stable=True).argsort()
    taken = torch.linspace(0, values.numel(), min(steps, values.numel()) + 1).round()
    return (rank < taken[:, None]).view(-1, *values.shape)


def blurred(image: Float[Tensor, "c h w"], deviation: int) -> Float[Tensor, "c h w"]:
    """Convolved with a Gaussian, edges mirrored."""
    for axis in (1, 2):
        reach = min(3 * deviation, image.shape[axis] - 1)
        kernel = torch.exp(-0.5 * (torch.arange(-reach, reach + 1, device=image.device) / deviation) ** 2)
        kernel = (kernel / kernel.sum()).to(image.dtype)
        shape, padding = ((-1, 1), (0, 0, reach, reach)) if axis == 1 else ((1, -1), (reach, reach, 0, 0))
        padded = F.pad(image[:, None], padding, mode="reflect")
        image = F.conv2d(padded, kernel.view(1, 1, *shape))[:, 0]
    return image


def randomised(model: ViT, seed: int = 0, blocks: int | None = None) -> ViT:
    """A copy that has forgotten its classifier and its last `blocks` blocks, or everything if not told how many.

    The numbers of each parameter are shuffled: their distribution stays, so that the copy is as far from linear as
    the model was.
    """
    made = copy.deepcopy(model).eval()
    kept = () if blocks is None else (*_INPUT, *(f"blocks.{i}." for i in range(model.config.depth - blocks)))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if not name.startswith(kept):
                order = torch.randperm(parameter.numel(), generator=generator).to(parameter.device)
                parameter.copy_(parameter.flatten()[order].view_as(parameter))
    return made


def rank_correlation(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(B,): Spearman's, of the patches of each pair of maps; 0 where a map is the same everywhere."""
    x, y = (np.stack([_ranks(one.ravel()) for one in maps]) for maps in (a, b))
    scale = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    return (x * y).sum(axis=1) / np.where(scale > 0, scale, 1)


def _ranks(values: np.ndarray) -> np.ndarray:
    """Around 0; equal values share the mean of their ranks."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[which]
    return ranks - ranks.mean()


def bootstrap(values: np.ndarray, level: float = 0.95, seed: int = 0) -> Interval | None:
    """Of the mean over images, by resampling them; none for a single image."""
    if len(values) < 2:
        return None
    generator = np.random.default_rng(seed)
    means = values[generator.integers(0, len(values), (RESAMPLES, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
