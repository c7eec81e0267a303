"""A new loss: cross-entropy and the supervised contrastive loss (Khosla et al. 2020) of a trained projection.

python examples/research/contrastive.py OUT [--resume]
"""

import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vitkit
from vitkit.data import TrainingBatch


class SupervisedContrast(nn.Module):
    """Its parameters are trained with the model, and its state is saved with checkpoints, because it is a module."""

    whole_batch = True  # every image is compared with all others

    def __init__(self, width: int, temperature: float = 0.1, weight: float = 0.5) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.projection = nn.Linear(width, 32)
        self.temperature, self.weight = temperature, weight

    def forward(self, model: vitkit.ViT, batch: TrainingBatch) -> tuple[Tensor, dict[str, Tensor]]:
        tokens = model.forward_features(batch.images)
        logits = model.forward_head(tokens).float()
        z = F.normalize(self.projection(model.forward_head(tokens, pre_logits=True)).float(), dim=1)
        contrast = self.contrast(z, batch.labels)
        loss = F.cross_entropy(logits, batch.targets) + self.weight * contrast
        accuracy = (logits.argmax(1) == batch.labels).float().mean()
        return loss, {"accuracy": accuracy, "contrast": contrast.detach()}

    def contrast(self, z: Tensor, labels: Tensor) -> Tensor:
        """Return the mean of -log p(i → j) over all pairs of images with the same label."""
        itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
        scores = (z @ z.T / self.temperature).masked_fill(itself, float("-inf"))
        same = (labels[:, None] == labels) & ~itself
        log_p = scores.log_softmax(dim=1).masked_fill(~same, 0.0)
        return -log_p.sum() / same.sum().clamp(min=1)


def main(out: str, resume: bool = False) -> vitkit.Result:
    recipe = vitkit.get_recipe("digits").override(["budget.epochs=1", "augment.mixup=0", "config.depth=2"])
    result = vitkit.train(recipe, out, resume, objective=SupervisedContrast(width=64))
    print(f"{result.val['top1']:.1%} on validation, contrast {result.metrics['contrast']:.3f}")
    model = vitkit.load_model(out)  # a plain ViT: the projection belongs to the objective
    print(f"{vitkit.evaluate(out, 'digits', split='test').top1:.1%} on test")
    image = vitkit.open_data("digits").splits["test"].images[0]
    print(vitkit.explain(model, [image], "attention").maps.shape)
    return result


if __name__ == "__main__":
    main(sys.argv[1], "--resume" in sys.argv)
