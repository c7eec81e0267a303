"""A new block: attention and MLP side by side, as in ViT-22B (Dehghani et al. 2023).

python examples/research/parallel_block.py OUT [--resume]
"""

import sys

import torch
from torch import Tensor, nn

import vitkit
from vitkit.model.attention import Attention
from vitkit.model.block import MLP
from vitkit.model.norm import make_norm


class ParallelBlock(nn.Module):
    """z ← z + α·(MSA(LN(z)) + MLP(LN(z))): one norm, and both branches read the same input."""

    def __init__(self, config: vitkit.ViTConfig, drop_path: float = 0.0) -> None:
        super().__init__()
        self.norm = make_norm(config)
        self.attn = Attention(config)
        self.mlp = MLP(config)
        self.scale = nn.Parameter(torch.ones(config.width))  # a parameter that vitkit does not know

    def init_weights(self, generator: torch.Generator | None) -> None:
        nn.init.ones_(self.scale)

    def forward(self, x: Tensor, rope: object = None, capture: object = None) -> Tensor:
        y = self.norm(x)
        return x + self.scale * (self.attn(y, rope, capture) + self.mlp(y))


class ParallelViT(vitkit.ViT):
    block_class = ParallelBlock


def main(out: str, resume: bool = False) -> vitkit.Result:
    recipe = vitkit.get_recipe("digits").override(["budget.epochs=1", "augment.mixup=0"])
    model = vitkit.create_model("vit_digits_patch2_8", model_class=ParallelViT, depth=2, seed=0)
    result = vitkit.train(recipe, out, resume, model=model)
    print(f"{result.val['top1']:.1%} on validation, {result.weights_sha256[:12]}")

    model = vitkit.load_model(out)  # the class is stored by its name
    assert isinstance(model, ParallelViT)
    print(f"{vitkit.evaluate(out, 'digits', split='test').top1:.1%} on test")
    image = vitkit.open_data("digits").splits["test"].images[0]
    print(vitkit.explain(model, [image], "rollout").maps.shape)
    return result


if __name__ == "__main__":
    main(sys.argv[1], "--resume" in sys.argv)
